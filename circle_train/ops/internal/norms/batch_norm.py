"""Batch normalisation by running statistics as one op, which files spell out in many."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from circle_train.ir import TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import Activation
from circle_train.ops.axes import Elementwise
from circle_train.ops.base import Example, Op, random, register
from circle_train.record import record


@register("BATCH_NORM", internal=True)
@record
class BatchNorm(Op):
    """y = x·γ/σ + (β - γ·μ/σ), σ² = variance + ε; operands but x have one entry for each channel."""

    epsilon: float = 1e-5
    momentum: float = 0.9
    fused_activation_function: Activation = Activation.NONE

    axes = Elementwise()

    def infer(
        self, x: TensorType, gamma: TensorType, beta: TensorType, mean: TensorType, variance: TensorType
    ) -> TensorType:
        return TensorType(x.dtype, x.shape)

    def forward(self, x: Array, gamma: Array, beta: Array, mean: Array, variance: Array) -> Array:
        scale, shift = self.scale_and_shift(gamma, beta, mean, variance)
        return x * scale + shift

    def scale_and_shift(self, gamma: Array, beta: Array, mean: Array, variance: Array) -> tuple[Array, Array]:
        deviation = 1 / np.sqrt(variance + variance.dtype.type(self.epsilon))
        return gamma * deviation, beta - gamma * (mean * deviation)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        vectors = (*(random(3, seed=i) for i in (1, 2, 3)), random(3, seed=4, low=0.5))
        yield Example(cls(), (random(4, 2, 3), *vectors), differentiable=False)
        wide = tuple(vector.reshape(3, 1) for vector in vectors)
        yield Example(cls(0.1), (random(4, 3, 2), *wide), differentiable=False)
        yield Example(
            cls(fused_activation_function=Activation.RELU), (random(5, 3), *vectors), differentiable=False
        )
