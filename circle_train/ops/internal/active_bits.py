"""Where an activation of the RELU family lets a gradient pass, one bit an element: all that is kept of its output."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from circle_train.ir import DType, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Mixes
from circle_train.ops.base import Example, Op, random, register
from circle_train.record import record

SHAPES = ((7,), (3, 5), (2, 3, 4, 5), (2, 1100), (1,))


@register("ACTIVE_BITS", internal=True)
@record
class ActiveBits(Op):
    """Bit i % 8 of byte i // 8 says whether element i lies strictly between the bounds; None: not bounded above."""

    low: float = 0.0
    high: float | None = None
    stops_gradient = True
    axes = Mixes("eight elements share a byte")
    formula = "logical_and(greater(y, low), less(y, high)) if high else greater(y, low)"

    def infer(self, y: TensorType) -> TensorType:
        return TensorType(DType.UINT8, (-(-y.size // 8),))

    def forward(self, y: Array) -> Array:
        inside = y > self.low if self.high is None else (y > self.low) & (y < self.high)
        return np.packbits(inside.reshape(-1), bitorder="little")

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for low, high in ((0.0, None), (0.0, 6.0), (-1.0, 1.0)):
            for shape in SHAPES:
                y = np.clip(random(*shape, low=-3, high=9), low, high)
                yield Example(cls(low, high), (y,), differentiable=False)


@register("PASS_ACTIVE", internal=True)
@record
class PassActive(Op):
    """dy where the bit is set, else nothing."""

    inplace = ("dy",)
    axes = Mixes("eight elements share a byte")
    formula = "relu_mask(bits, dy)"

    def forward(self, dy: Array, bits: Array) -> Array:
        passes = np.unpackbits(bits, count=dy.size, bitorder="little").reshape(dy.shape)
        return np.where(passes, dy, dy.dtype.type(0))

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for shape in SHAPES:
            dy = random(*shape)
            bits = ActiveBits().forward(random(*shape, seed=1))
            yield Example(cls(), (dy, bits), differentiable=False)
