"""Rounding that training looks through: what quantisation-aware training does to weights and activations."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from circle_train.ir import TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Elementwise
from circle_train.ops.base import Example, Op, random, register
from circle_train.record import record


@register("ROUND_WITHIN", internal=True)
@record
class RoundWithin(Op):
    """round(x) + zero, kept from low to high; the gradient passes as if nothing were rounded, where nothing is cut off."""

    low: float = -128.0
    high: float = 127.0

    axes = Elementwise()

    def infer(self, x: TensorType, zero: TensorType | None = None) -> TensorType:
        return TensorType(x.dtype, x.shape)

    def forward(self, x: Array, zero: Array | None = None) -> Array:
        return np.clip(self._shifted(x, zero), self.low, self.high)

    def grad_x(self, dy: Array, x: Array, zero: Array | None) -> Array:
        y = self._shifted(x, zero)
        return np.where((self.low <= y) & (y <= self.high), dy, dy.dtype.type(0))

    @staticmethod
    def _shifted(x: Array, zero: Array | None) -> Array:
        return np.rint(x) if zero is None else np.rint(x) + zero

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield Example(cls(), (random(3, 4, low=-200, high=200),), differentiable=False)
        yield Example(cls(0, 255), (random(3, 4, low=-200, high=200), np.array(128.0)), differentiable=False)
