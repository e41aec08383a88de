"""Cross-entropies as single ops, because only the whole formula is stable; one loss per item of the batch."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from circle_train.ir import TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Elementwise, LastAxis
from circle_train.ops.base import Example, Op, random, register
from circle_train.record import record

TINY = 1e-20
"""Smallest probability whose logarithm is taken."""


@record
class DenseLoss(Op):
    """A loss of a prediction and a target of the same shape, summed over the last axis."""

    axes = LastAxis(("target",))

    def infer(self, x: TensorType, target: TensorType) -> TensorType:
        return TensorType(x.dtype, x.shape[:-1])

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for shape in ((4, 5), (2, 3, 4)):
            target = random(*shape, seed=1, low=0.05, high=1)
            target /= target.sum(-1, keepdims=True)
            yield Example(cls(), (random(*shape, low=0.1, high=3), target))


@record
class SparseLoss(Op):
    """A loss of a prediction and integer labels; a label outside the classes counts nothing."""

    axes = LastAxis(("target",))

    def infer(self, x: TensorType, target: TensorType) -> TensorType:
        return TensorType(x.dtype, x.shape[:-1])

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield Example(cls(), (random(4, 5, low=0.1, high=3), np.array([0, 4, 2, -1], np.int32)))
        yield Example(cls(), (random(2, 3, 4, low=0.1, high=3), np.array([[0, 3, 2], [1, 1, 0]], np.int32)))


@register("SOFTMAX_CROSS_ENTROPY", internal=True)
@record
class SoftmaxCrossEntropy(DenseLoss):
    """-Σ t·log softmax(x)."""

    def forward(self, x: Array, target: Array) -> Array:
        return -(target * log_softmax(x)).sum(-1)

    def grad_x(self, dy: Array, x: Array, target: Array) -> Array:
        return dy[..., None] * (np.exp(log_softmax(x)) * target.sum(-1, keepdims=True) - target)


@register("SPARSE_SOFTMAX_CROSS_ENTROPY", internal=True)
@record
class SparseSoftmaxCrossEntropy(SparseLoss):
    """-log softmax(x)[label]."""

    def forward(self, x: Array, target: Array) -> Array:
        return -(one_hot(target, x) * log_softmax(x)).sum(-1)

    def grad_x(self, dy: Array, x: Array, target: Array) -> Array:
        hot = one_hot(target, x)
        return dy[..., None] * (np.exp(log_softmax(x)) * hot.sum(-1, keepdims=True) - hot)


@register("SPARSE_SOFTMAX_STATISTICS", internal=True)
@record
class SparseSoftmaxStatistics(Op):
    """Of every row: its maximum, and `scale` over the sum of its exponentials; 0 where its label counts nothing."""

    scale: float = 1.0

    axes = LastAxis(("target",))
    stops_gradient = True

    def infer(self, x: TensorType, target: TensorType) -> tuple[TensorType, ...]:
        rows = TensorType(x.dtype, x.shape[:-1])
        return rows, TensorType(x.dtype, x.shape[:-1])

    def forward(self, x: Array, target: Array) -> tuple[Array, Array]:
        top = x.max(-1)
        return top, self.scale * one_hot(target, x).sum(-1) / np.exp(x - top[..., None]).sum(-1)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        labels = np.array([[0, 3, -1], [4, 1, 0]], np.int32)
        yield Example(cls(0.5), (random(2, 3, 4, low=-3, high=3), labels), differentiable=False)


@register("CROSS_ENTROPY", internal=True)
@record
class CrossEntropy(DenseLoss):
    """-Σ t·log max(p, 1e-20) of probabilities."""

    def forward(self, x: Array, target: Array) -> Array:
        return -(target * np.log(np.maximum(x, x.dtype.type(TINY)))).sum(-1)

    def grad_x(self, dy: Array, x: Array, target: Array) -> Array:
        """0 where x is so small that the loss no longer varies with it."""
        slope = -dy[..., None] * target / np.maximum(x, x.dtype.type(TINY))
        return np.where(x > TINY, slope, x.dtype.type(0))


@register("SPARSE_CROSS_ENTROPY", internal=True)
@record
class SparseCrossEntropy(SparseLoss):
    """-log max(p[label], 1e-20) of probabilities."""

    def forward(self, x: Array, target: Array) -> Array:
        return -(one_hot(target, x) * np.log(np.maximum(x, x.dtype.type(TINY)))).sum(-1)

    def grad_x(self, dy: Array, x: Array, target: Array) -> Array:
        slope = -dy[..., None] * one_hot(target, x) / np.maximum(x, x.dtype.type(TINY))
        return np.where(x > TINY, slope, x.dtype.type(0))


@register("SIGMOID_CROSS_ENTROPY", internal=True)
@record
class SigmoidCrossEntropy(Op):
    """pos_weight·t·log(1 + e^-x) + (1-t)·log(1 + e^x), elementwise and stable at any logit."""

    axes = Elementwise()
    formula = "add(mul(mul(pos_weight, target) if pos_weight else target, softplus(neg(x))), mul(sub(1, target), softplus(x)))"
    gradient_formulas = {
        "x": "mul(dy, sub(mul(sub(1, target), logistic(x)), "
        "mul(mul(pos_weight, target) if pos_weight else target, logistic(neg(x)))))"
    }

    def forward(self, x: Array, target: Array, pos_weight: Array | None = None) -> Array:
        near = np.log1p(np.exp(-np.abs(x)))
        positive = target if pos_weight is None else pos_weight * target
        return positive * (near + np.maximum(-x, 0)) + (1 - target) * (near + np.maximum(x, 0))

    def grad_x(self, dy: Array, x: Array, target: Array, pos_weight: Array | None) -> Array:
        positive = target if pos_weight is None else pos_weight * target
        return dy * ((1 - target) * _logistic(x) - positive * _logistic(-x))

    @classmethod
    def examples(cls) -> Iterable[Example]:
        target = (random(3, 4, seed=1) > 0).astype(np.float64)
        yield Example(cls(), (random(3, 4, low=-3, high=3), target))
        yield Example(cls(), (random(3, 4, low=-40, high=40), target, np.array([1.0, 2.0, 0.5, 3.0])))


@register("BINARY_CROSS_ENTROPY", internal=True)
@record
class BinaryCrossEntropy(Op):
    """-(pos_weight·t·log p + (1-t)·log(1-p)), elementwise, p kept 1e-7 away from 0 and 1.

    The gradient is that at the kept p, so that an output stuck at the wrong end still learns.
    """

    axes = Elementwise(data="p")
    formula = (
        "neg(add(mul(mul(pos_weight, target) if pos_weight else target, log(max_imm(min_imm(p, imm=0.9999999), imm=1e-7))), "
        "mul(sub(1, target), log(sub(1, max_imm(min_imm(p, imm=0.9999999), imm=1e-7))))))"
    )
    gradient_formulas = {
        "p": "mul(dy, sub(div(sub(1, target), sub(1, max_imm(min_imm(p, imm=0.9999999), imm=1e-7))), "
        "div(mul(pos_weight, target) if pos_weight else target, max_imm(min_imm(p, imm=0.9999999), imm=1e-7))))"
    }

    def forward(self, p: Array, target: Array, pos_weight: Array | None = None) -> Array:
        kept = self._kept(p)
        positive = target if pos_weight is None else pos_weight * target
        return -(positive * np.log(kept) + (1 - target) * np.log(1 - kept))

    def grad_p(self, dy: Array, p: Array, target: Array, pos_weight: Array | None) -> Array:
        kept = self._kept(p)
        positive = target if pos_weight is None else pos_weight * target
        return dy * ((1 - target) / (1 - kept) - positive / kept)

    def _kept(self, p: Array) -> Array:
        low = p.dtype.type(1e-7)
        return np.clip(p, low, 1 - low)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        target = (random(3, 4, seed=1) > 0).astype(np.float64)
        yield Example(cls(), (random(3, 4, low=0.02, high=0.98), target))
        yield Example(cls(), (random(3, 4, low=0.02, high=0.98), target, np.array([1.0, 2.0, 0.5, 3.0])))


def log_softmax(x: Array) -> Array:
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def one_hot(labels: Array, x: Array) -> Array:
    """Rows of zeros with a one at the label, in x's type; a label outside the classes gives zeros."""
    return (labels[..., None] == np.arange(x.shape[-1])).astype(x.dtype)


def _logistic(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))
