"""Normalisations: along channels, over neighbouring channels, over an image, over the root mean square."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import Activation
from circle_train.ops.axes import Image, LastAxis
from circle_train.ops.base import Example, Op, random, register
from circle_train.ops.integers import fixed
from circle_train.ops.versions import INT8, Versions
from circle_train.ops.window import check_floats
from circle_train.record import record

SMALLEST_NORM = 1e-6
"""TFLite divides by no less."""


@register("L2_NORMALIZATION", "L2NormOptions")
@record
class L2Normalization(Op):
    """y = x / max(‖x‖, 1e-6) along the last axis."""

    fused_activation_function: Activation = Activation.NONE

    axes = LastAxis()
    in_integers = fixed(1 / 128, 0)
    versions = Versions(INT8)

    def infer(self, x: TensorType) -> TensorType:
        check_floats(self.name, x)
        if not x.rank:
            raise ModelError(f"{self.name}: the input is {x}, expected at least one axis")
        return TensorType(x.dtype, x.shape)

    def forward(self, x: Array) -> Array:
        y: Array = x / self.norm(x)
        return y

    def grad_x(self, dy: Array, x: Array) -> Array:
        norm = self.norm(x)
        y = x / norm
        radial = np.where(norm > SMALLEST_NORM, y * np.sum(dy * y, axis=-1, keepdims=True), x.dtype.type(0))
        dx: Array = (dy - radial) / norm
        return dx

    def norm(self, x: Array) -> Array:
        norm = np.sqrt(np.sum(x * x, axis=-1, keepdims=True))
        limited: Array = np.maximum(norm, x.dtype.type(SMALLEST_NORM))
        return limited

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for shape in ((5,), (3, 4), (2, 3, 4, 5)):
            yield Example(cls(), (random(*shape),))
        yield Example(cls(), (random(2, 3, high=1e-8, low=-1e-8),), differentiable=False)
        for activation in (Activation.RELU, Activation.RELU6, Activation.RELU_N1_TO_1):
            yield Example(cls(activation), (random(3, 4),))


@register("LOCAL_RESPONSE_NORMALIZATION", "LocalResponseNormalizationOptions")
@record
class LocalResponseNormalization(Op):
    """y = x · (bias + alpha Σ x²)^-beta, the sum over channels at most `radius` away."""

    radius: int = 5
    bias: float = 1.0
    alpha: float = 1.0
    beta: float = 0.5

    axes = LastAxis()

    def infer(self, x: TensorType) -> TensorType:
        check_floats(self.name, x)
        if self.radius < 0 or not x.shape:
            raise ModelError(
                f"{self.name}: radius {self.radius} on input {x}, expected at least 0, and channels"
            )
        return TensorType(x.dtype, x.shape)

    def forward(self, x: Array) -> Array:
        return x * self.base(x) ** -self.beta

    def grad_x(self, dy: Array, x: Array) -> Array:
        base = self.base(x)
        inner = self.neighbours(dy * x * base ** (-self.beta - 1))
        return dy * base**-self.beta - 2 * self.alpha * self.beta * x * inner

    def base(self, x: Array) -> Array:
        return self.bias + self.alpha * self.neighbours(x * x)

    def neighbours(self, values: Array) -> Array:
        """The sum of every channel with those at most `radius` away."""
        channels = values.shape[-1]
        result: Array = values.copy()
        for step in range(1, min(self.radius, channels - 1) + 1):
            result[..., step:] += values[..., :-step]
            result[..., :-step] += values[..., step:]
        return result

    @classmethod
    def examples(cls) -> Iterable[Example]:
        x = random(2, 3, 2, 7)
        for op in (
            cls(),
            cls(radius=1),
            cls(radius=0, bias=2.0),
            cls(2, 1.5, 0.3, 0.75),
            cls(20, 1.0, 0.1, 1.0),
        ):
            yield Example(op, (x,))


@register("INSTANCE_NORM", "InstanceNormOptions")
@record
class InstanceNorm(Op):
    """y = gamma · (x - mean) / √(variance + epsilon) + beta, over the spatial axes of every sample."""

    epsilon: float = 1e-5
    fused_activation_function: Activation = Activation.NONE

    parameters = ("gamma", "beta")
    axes = Image()

    def infer(self, x: TensorType, gamma: TensorType, beta: TensorType) -> TensorType:
        check_floats(self.name, x, gamma, beta)
        if x.rank < 3:
            raise ModelError(
                f"{self.name}: input is {x}, expected batch × spatial sizes × channels; insert a RESHAPE"
            )
        for name, scale in (("gamma", gamma), ("beta", beta)):
            if scale.rank > 1 or (x.shape[-1] >= 0 and scale.shape not in ((), (1,), (x.shape[-1],))):
                raise ModelError(
                    f"{self.name}: {name} is {scale}, expected {x.shape[-1]} elements, one per channel of {x}"
                )
        return TensorType(x.dtype, x.shape)

    def forward(self, x: Array, gamma: Array, beta: Array) -> Array:
        return self.normalised(x)[0] * gamma + beta

    def grad_x(self, dy: Array, x: Array, gamma: Array) -> Array:
        normal, inverse = self.normalised(x)
        axes = tuple(range(1, x.ndim - 1))
        dnormal = dy * gamma
        mean = dnormal.mean(axes, keepdims=True)
        dx: Array = (dnormal - mean - normal * (dnormal * normal).mean(axes, keepdims=True)) * inverse
        return dx

    def grad_gamma(self, dy: Array, x: Array) -> Array:
        return dy * self.normalised(x)[0]

    def grad_beta(self, dy: Array) -> Array:
        return dy

    def normalised(self, x: Array) -> tuple[Array, Array]:
        """(x - mean) / deviation, and 1 / deviation."""
        axes = tuple(range(1, x.ndim - 1))
        centred = x - x.mean(axes, keepdims=True)
        variance = (centred * centred).mean(axes, keepdims=True)
        inverse = 1 / np.sqrt(variance + x.dtype.type(self.epsilon))
        return centred * inverse, inverse

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for shape in ((2, 3, 4, 5), (2, 4, 3), (2, 2, 3, 2, 2)):
            yield Example(cls(), (random(*shape), random(shape[-1]), random(shape[-1], seed=1)))
        x = random(2, 3, 4, 5)
        yield Example(cls(0.5), (x, random(5), random(5, seed=1)))
        yield Example(cls(1e-3), (x, random(1), random(1, seed=1)))
        for activation in (Activation.RELU, Activation.RELU6, Activation.RELU_N1_TO_1):
            yield Example(cls(fused_activation_function=activation), (x, random(5), random(5, seed=1)))


@register("RMS_NORM", "RmsNormOptions")
@record
class RmsNorm(Op):
    """y = gamma · x / √(mean of x² along the last axis + epsilon)"""

    epsilon: float = 1e-6

    parameters = ("gamma",)
    axes = LastAxis()

    def infer(self, x: TensorType, gamma: TensorType) -> TensorType:
        check_floats(self.name, x, gamma)
        if (
            not x.shape
            or gamma.rank > 1
            or (x.shape[-1] >= 0 and gamma.shape not in ((), (1,), (x.shape[-1],)))
        ):
            raise ModelError(
                f"{self.name}: gamma is {gamma}, expected one element per channel of the input {x}"
            )
        return TensorType(x.dtype, x.shape)

    def forward(self, x: Array, gamma: Array) -> Array:
        return x * self.inverse(x) * gamma

    def grad_x(self, dy: Array, x: Array, gamma: Array) -> Array:
        inverse = self.inverse(x)
        normal, dnormal = x * inverse, dy * gamma
        dx: Array = (dnormal - normal * (dnormal * normal).mean(-1, keepdims=True)) * inverse
        return dx

    def grad_gamma(self, dy: Array, x: Array) -> Array:
        return dy * x * self.inverse(x)

    def inverse(self, x: Array) -> Array:
        inverse: Array = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + x.dtype.type(self.epsilon))
        return inverse

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for shape in ((3, 4), (2, 3, 4), (2, 2, 3, 4), (4,)):
            yield Example(cls(), (random(*shape), random(shape[-1], seed=1)))
        yield Example(cls(0.5), (random(3, 4), random(1)))
