"""Batch normalisation by the batch's own statistics: what training puts in the place of a converted model's formula."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from circle_train.ir import TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import Activation
from circle_train.ops.axes import Mixes
from circle_train.ops.base import Example, Op, random, register
from circle_train.record import record

MIXES = Mixes("statistics are taken over all entries")


@register("BATCH_STATISTICS", internal=True)
@record
class BatchStatistics(Op):
    """Mean and variance (not corrected) of every channel, the last axis, over all others."""

    axes = MIXES
    stops_gradient = True

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        return TensorType(x.dtype, x.shape[-1:]), TensorType(x.dtype, x.shape[-1:])

    def forward(self, x: Array) -> tuple[Array, Array]:
        flat = x.reshape(-1, x.shape[-1])
        mean = flat.mean(0)
        centred = flat - mean
        return mean, (centred * centred).mean(0)

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        return 4 * sum(t.size for t in inputs[:1] if t is not None)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield Example(cls(), (random(2, 3, 4, 5),), differentiable=False)


@register("NORMALISE_BY_BATCH", internal=True)
@record
class NormaliseByBatch(Op):
    """y = gamma · (x - mean) / √(variance + ε) + beta, mean and variance those of BATCH_STATISTICS."""

    epsilon: float = 1e-5
    fused_activation_function: Activation = Activation.NONE

    parameters = ("gamma", "beta")
    together = ("x", "gamma", "beta")
    axes = MIXES

    def infer(self, x: TensorType, gamma: TensorType, beta: TensorType) -> TensorType:
        return TensorType(x.dtype, x.shape)

    def forward(self, x: Array, gamma: Array, beta: Array) -> Array:
        normal: Array = self.normal(x)[0] * gamma + beta
        return normal

    def grads(self, dy: Array, x: Array, gamma: Array) -> dict[str, Array]:
        normal, inverse = self.normal(x)
        over = tuple(range(x.ndim - 1))
        dbeta, dgamma = dy.sum(over), (dy * normal).sum(over)
        count = max(x.size // max(x.shape[-1], 1), 1)
        dx = gamma * inverse * (dy - dbeta / count - normal * (dgamma / count))
        return {"x": dx.astype(x.dtype, copy=False), "gamma": dgamma, "beta": dbeta}

    def normal(self, x: Array) -> tuple[Array, Array]:
        """(x - mean) / √(variance + ε), and the inverse of that root."""
        mean, variance = BatchStatistics().forward(x)
        inverse = 1 / np.sqrt(variance + x.dtype.type(self.epsilon))
        return (x - mean) * inverse, inverse

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        return 8 * sum(t.size for t in inputs[:1] if t is not None)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for shape in ((3, 5), (2, 3, 4, 17), (2, 2, 3, 64)):
            yield Example(cls(), (random(*shape), random(shape[-1], seed=1), random(shape[-1], seed=2)))
        yield Example(cls(0.5), (random(4, 3), random(3, seed=1), random(3, seed=2)))
        for act in (Activation.RELU, Activation.RELU6, Activation.TANH):
            op = cls(fused_activation_function=act)
            yield Example(op, (random(3, 4, 20), random(20, seed=1) + 2, random(20, seed=2)))
