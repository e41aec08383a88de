"""Layer normalisation as one op (Circle files spell it out in many), and what the gradients of norms read."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from circle_train.ir import TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import LastAxis
from circle_train.ops.base import Example, Op, random, register
from circle_train.ops.layers.norm import RmsNorm
from circle_train.record import record


@record
class RowStatistics:
    """Mean and 1/√(variance + ε) of the last axis."""

    epsilon: float = 1e-5

    def of(self, x: Array) -> tuple[Array, Array]:
        mean = x.mean(-1, keepdims=True)
        centred = x - mean
        return mean, 1 / np.sqrt((centred * centred).mean(-1, keepdims=True) + x.dtype.type(self.epsilon))


@register("LAYER_NORM", internal=True)
@record
class LayerNorm(Op):
    """y = gamma · (x - mean) / √(variance + ε) + beta, along the last axis."""

    epsilon: float = 1e-5
    parameters = ("gamma", "beta")
    axes = LastAxis()

    def infer(self, x: TensorType, gamma: TensorType, beta: TensorType) -> TensorType:
        return TensorType(x.dtype, x.shape)

    def forward(self, x: Array, gamma: Array, beta: Array) -> Array:
        return self.normal(x)[0] * gamma + beta

    def grad_x(self, dy: Array, x: Array, gamma: Array) -> Array:
        normal, rstd = self.normal(x)
        dnormal = dy * gamma
        dx: Array = (
            dnormal - dnormal.mean(-1, keepdims=True) - normal * (dnormal * normal).mean(-1, keepdims=True)
        ) * rstd
        return dx

    def grad_gamma(self, dy: Array, x: Array) -> Array:
        return dy * self.normal(x)[0]

    def grad_beta(self, dy: Array) -> Array:
        return dy

    def normal(self, x: Array) -> tuple[Array, Array]:
        """(x - mean)·rstd, and rstd."""
        mean, rstd = RowStatistics(self.epsilon).of(x)
        return (x - mean) * rstd, rstd

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for shape in ((3, 5), (2, 3, 17), (4,)):
            yield Example(cls(), (random(*shape), random(shape[-1], seed=1), random(shape[-1], seed=2)))
        yield Example(cls(0.5), (random(3, 4), random(4, seed=1), random(4, seed=2)))


@register("LAYER_NORM_STATISTICS", internal=True)
@record
class LayerNormStatistics(Op):
    """Mean and 1/√(variance + ε) of every row: what the gradients of LAYER_NORM read."""

    epsilon: float = 1e-5

    axes = LastAxis()

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        rows = TensorType(x.dtype, x.shape[:-1])
        return rows, TensorType(x.dtype, x.shape[:-1])

    def forward(self, x: Array) -> tuple[Array, ...]:
        return tuple(value[..., 0] for value in RowStatistics(self.epsilon).of(x))

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield Example(cls(), (random(3, 5),), differentiable=False)


@register("RMS_NORM_STATISTICS", internal=True)
@record
class RmsNormStatistics(Op):
    """1/√(mean of x² + ε) of every row: what the gradients of RMS_NORM read."""

    epsilon: float = 1e-6

    axes = LastAxis()

    def infer(self, x: TensorType) -> TensorType:
        return TensorType(x.dtype, x.shape[:-1])

    def forward(self, x: Array) -> Array:
        return RmsNorm(self.epsilon).inverse(x)[..., 0]

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield Example(cls(), (random(3, 5),), differentiable=False)
