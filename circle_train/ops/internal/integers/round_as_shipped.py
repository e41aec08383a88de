"""Rounding as a model of integers does it, looked through by training: the forward part of quantisation-aware training."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Elementwise, Mixes
from circle_train.ops.base import Example, Op, random, register
from circle_train.record import record


@register("ROUND_TO_SCALE", internal=True)
@record
class RoundToScale(Op):
    """scale · round(x / scale), kept from low to high steps; the gradient passes where nothing is cut off."""

    scale: float = 1 / 64
    low: float = -128.0
    high: float = 127.0

    axes = Elementwise()
    formula = "mul_imm(min_imm(max_imm(round(mul_imm(x, imm=inverse)), imm=low), imm=high), imm=scale)"
    gradient_formulas = {"x": "mul(dy, logical_and(greater(x, bottom), less(x, top)))"}

    @property
    def inverse(self) -> float:
        return 1 / self.scale

    @property
    def bottom(self) -> float:
        """From here on numbers are cut off; half a step is rounding."""
        return (self.low - 0.5) * self.scale

    @property
    def top(self) -> float:
        return (self.high + 0.5) * self.scale

    def forward(self, x: Array) -> Array:
        kind = x.dtype.type
        return np.clip(np.rint(x * kind(self.inverse)), kind(self.low), kind(self.high)) * kind(self.scale)

    def grad_x(self, dy: Array, x: Array) -> Array:
        return dy * ((x > self.bottom) & (x < self.top))

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield Example(cls(), (random(3, 4, low=-4, high=4),), differentiable=False)
        yield Example(cls(0.1, -3, 4), (random(3, 4, low=-4, high=4),), differentiable=False)


@register("ROUND_WEIGHTS", internal=True)
@record
class RoundWeights(Op):
    """Weights in 8 bits: the largest of each entry of the axis is 127 steps; gradients pass as if nothing were rounded."""

    axis: int = 0

    identity_gradient = ("w",)
    axes = Mixes("the largest of an entry decides for all of it")

    def forward(self, w: Array) -> Array:
        others = tuple(i for i in range(w.ndim) if i != self.axis)
        largest = np.abs(w).max(axis=others, keepdims=True, initial=0)
        scale = np.where(largest > 0, largest / 127, 1).astype(w.dtype)
        rounded: Array = np.rint(w / scale) * scale
        return rounded

    def grad_w(self, dy: Array) -> Array:
        return dy

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield Example(cls(), (random(4, 3, 3, 2),), differentiable=False)
        yield Example(cls(1), (random(2, 5),), differentiable=False)
