"""Activation functions that stand alone."""

from __future__ import annotations

from collections.abc import Iterable
from math import erf, pi, sqrt

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import DType, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Elementwise, LastAxis
from circle_train.ops.base import Example, Op, random, register
from circle_train.ops.elementwise import OfFloats, broadcast, only_floats, same_dtype
from circle_train.ops.integers import ONLY_8, OWN, OWN_8, InIntegers, fixed
from circle_train.ops.versions import INT8, INT8_INT16, Versions
from circle_train.record import record


class Activating(OfFloats):
    """Of numbers small and large."""

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield from super().examples()
        yield Example(cls(), (random(3, 1, 2, 4, low=-9, high=9),))


@register("RELU")
class Relu(Activating):
    in_integers = OWN
    versions = Versions({DType.INT8: 2, DType.UINT8: 2, DType.INT16: 3})
    formula = "max_imm(x, imm=0)"
    gradient_formulas = {"x": "relu_mask(y, dy)"}

    def forward(self, x: Array) -> Array:
        return np.maximum(x, x.dtype.type(0))

    def grad_x(self, dy: Array, y: Array) -> Array:
        return dy * (y > 0)


class Clipped(Activating):
    """Clips to an interval; the gradient passes strictly inside it."""

    low = 0.0
    high = 1.0
    formula = "min_imm(max_imm(x, imm=low), imm=high)"

    def forward(self, x: Array) -> Array:
        return np.clip(x, x.dtype.type(self.low), x.dtype.type(self.high))

    def grad_x(self, dy: Array, y: Array) -> Array:
        return dy * ((y > self.low) & (y < self.high))


@register("RELU6")
class Relu6(Clipped):
    high = 6.0
    in_integers = OWN
    versions = Versions(INT8_INT16)
    gradient_formulas = {"x": "relu6_mask(y, dy)"}


@register("RELU_N1_TO_1")
class ReluN1To1(Clipped):
    in_integers = OWN_8
    low = -1.0
    gradient_formulas = {"x": "relu_n1_to_1_mask(y, dy)"}


@register("RELU_0_TO_1")
class Relu0To1(Clipped):
    in_integers = OWN_8
    gradient_formulas = {"x": "mul(dy, logical_and(greater(y, low), less(y, high)))"}


@register("LEAKY_RELU", "LeakyReluOptions")
@record
class LeakyRelu(Activating):
    alpha: float = 0.2

    in_integers = OWN
    versions = Versions({DType.INT16: 2})
    formula = "leaky_relu(x, imm=alpha)"
    gradient_formulas = {"x": "leaky_relu_grad(x, dy, imm=alpha)"}

    def forward(self, x: Array) -> Array:
        return np.where(x > 0, x, x * self.alpha)

    def grad_x(self, dy: Array, x: Array) -> Array:
        return np.where(x > 0, dy, dy * self.alpha)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield from super().examples()
        yield Example(cls(alpha=0.5), (random(2, 5),))
        yield Example(cls(alpha=0.0), (random(2, 5),))
        yield Example(cls(alpha=-1.5), (random(2, 5),))


@register("PRELU")
class Prelu(Op):
    """Slopes below zero that broadcast over the input, mostly one per channel."""

    in_integers = InIntegers(data=("x", "alpha"), types=ONLY_8)
    parameters = ("alpha",)
    inplace = ("x",)
    axes = Elementwise()
    formula = "select(greater(x, 0), x, mul(x, alpha))"
    gradient_formulas = {
        "x": "select(greater(x, 0), dy, mul(dy, alpha))",
        "alpha": "select(greater(x, 0), 0, mul(dy, x))",
    }

    def infer(self, x: TensorType, alpha: TensorType) -> TensorType:
        same_dtype(self.name, x, alpha)
        shape = broadcast(self.name, x, alpha)
        if len(shape) > x.rank or any(a > b >= 0 for a, b in zip(shape, x.shape, strict=True)):
            raise ModelError(
                f"{self.name}: slopes are {alpha}, expected a shape that broadcasts to the input {x}"
            )
        return TensorType(x.dtype, x.shape)

    def forward(self, x: Array, alpha: Array) -> Array:
        return np.where(x > 0, x, x * alpha)

    def grad_x(self, dy: Array, x: Array, alpha: Array) -> Array:
        return np.where(x > 0, dy, dy * alpha)

    def grad_alpha(self, dy: Array, x: Array) -> Array:
        return np.where(x > 0, dy.dtype.type(0), dy * x)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for slopes in ((5,), (1, 1, 5), (3, 4, 5), (1,)):
            yield Example(cls(), (random(2, 3, 4, 5), random(*slopes, seed=1)))
        yield Example(cls(), (random(6, 3), random(3, seed=1)))


@register("ELU")
class Elu(Activating):
    in_integers = OWN_8
    formula = "elu(x)"
    gradient_formulas = {"x": "elu_grad(y, dy)"}

    def forward(self, x: Array) -> Array:
        return np.where(x > 0, x, np.expm1(np.minimum(x, x.dtype.type(0))))

    def grad_x(self, dy: Array, y: Array) -> Array:
        return np.where(y > 0, dy, dy * (y + 1))


@register("GELU", "GeluOptions")
@record
class Gelu(Activating):
    """x Φ(x), Φ the normal distribution, or its approximation through tanh."""

    approximate: bool = False

    in_integers = OWN_8
    versions = Versions({DType.INT8: 2, DType.UINT8: 2})
    formula = "gelu_tanh(x) if approximate else gelu(x)"
    gradient_formulas = {"x": "gelu_tanh_grad(x, dy) if approximate else gelu_grad(x, dy)"}

    def forward(self, x: Array) -> Array:
        return x * self.phi(x)

    def phi(self, x: Array) -> Array:
        if self.approximate:
            return 0.5 * (1 + np.tanh(_TANH_SCALE * (x + 0.044715 * (x * x * x))))
        return 0.5 * (1 + np.asarray(_erf(x * (1 / sqrt(2)))).astype(x.dtype))

    def grad_x(self, dy: Array, x: Array) -> Array:
        phi = self.phi(x)
        if self.approximate:
            slope = 2 * phi * (1 - phi) * _TANH_SCALE * (1 + 3 * 0.044715 * (x * x))
        else:
            slope = np.exp(-0.5 * (x * x)) / sqrt(2 * pi)
        return dy * (phi + x * slope)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield from super().examples()
        yield Example(cls(approximate=True), (random(3, 4, low=-4, high=4),))
        yield Example(cls(approximate=True), (random(2, 2, 2, 2),))


_TANH_SCALE = sqrt(2 / pi)
_erf = np.frompyfunc(erf, 1, 1)


@register("LOGISTIC")
class Logistic(Activating):
    """1 / (1 + exp(-x)), never through an exponential that overflows."""

    in_integers = fixed(1 / 256, -128, 1 / 32768)
    versions = Versions(INT8_INT16)
    formula = "logistic(x)"
    gradient_formulas = {"x": "logistic_grad(y, dy)"}

    def forward(self, x: Array) -> Array:
        small = np.exp(-np.abs(x))
        return np.where(x >= 0, x.dtype.type(1), small) / (1 + small)

    def grad_x(self, dy: Array, y: Array) -> Array:
        return dy * y * (1 - y)


@register("TANH")
class Tanh(Activating):
    in_integers = fixed(1 / 128, 0, 1 / 32768)
    versions = Versions(INT8_INT16)
    formula = "tanh(x)"
    gradient_formulas = {"x": "tanh_grad(y, dy)"}

    def forward(self, x: Array) -> Array:
        return np.tanh(x)

    def grad_x(self, dy: Array, y: Array) -> Array:
        return dy * (1 - y * y)


@register("HARD_SWISH", "HardSwishOptions")
class HardSwish(Activating):
    """x relu6(x + 3) / 6."""

    in_integers = OWN_8
    formula = "hard_swish(x)"
    gradient_formulas = {"x": "hard_swish_grad(x, dy)"}

    def forward(self, x: Array) -> Array:
        return np.where(x < 3, x * np.maximum(x + 3, x.dtype.type(0)) / 6, x)

    def grad_x(self, dy: Array, x: Array) -> Array:
        return dy * np.where(x < -3, x.dtype.type(0), np.where(x > 3, x.dtype.type(1), (2 * x + 3) / 6))


@register("SOFTMAX", "SoftmaxOptions")
@record
class Softmax(Op):
    """exp(beta x) over the last axis, divided by its sum."""

    beta: float = 1.0

    axes = LastAxis()
    in_integers = fixed(1 / 256, -128, 1 / 32768)
    versions = Versions(INT8_INT16)

    def infer(self, x: TensorType) -> TensorType:
        return _with_last_axis(self.name, x)

    def forward(self, x: Array) -> Array:
        powers = np.exp((x - x.max(axis=-1, keepdims=True)) * self.beta)
        return powers / powers.sum(axis=-1, keepdims=True)

    def grad_x(self, dy: Array, y: Array) -> Array:
        return self.beta * y * (dy - (dy * y).sum(axis=-1, keepdims=True))

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for beta, shape in ((1.0, (2, 5)), (2.0, (3, 4)), (0.5, (2, 3, 4)), (1.0, (2, 2, 2, 3)), (1.0, (6,))):
            yield Example(cls(beta), (random(*shape, low=-3, high=3),))


@register("LOG_SOFTMAX", "LogSoftmaxOptions")
class LogSoftmax(Op):
    """x - log Σ exp(x) over the last axis."""

    axes = LastAxis()
    versions = Versions(INT8)

    def infer(self, x: TensorType) -> TensorType:
        return _with_last_axis(self.name, x)

    def forward(self, x: Array) -> Array:
        shifted = x - x.max(axis=-1, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))

    def grad_x(self, dy: Array, y: Array) -> Array:
        return dy - np.exp(y) * dy.sum(axis=-1, keepdims=True)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for shape in ((2, 5), (2, 3, 4), (6,)):
            yield Example(cls(), (random(*shape, low=-30, high=30),))


def _with_last_axis(op: str, x: TensorType) -> TensorType:
    if x.rank == 0:
        raise ModelError(f"{op}: input is a scalar, expected at least one axis to run over")
    return only_floats(op, x)
