"""What TensorFlow's quantisation-aware training leaves in a float model."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Elementwise
from circle_train.ops.base import Example, Op, random, register
from circle_train.ops.window import check_floats
from circle_train.record import record


@register("FAKE_QUANT", "FakeQuantOptions")
@record
class FakeQuant(Op):
    """Rounded to the steps from min to max, which are moved so that 0 is one; training looks through it."""

    min: float = 0.0
    max: float = 0.0
    num_bits: int = 0
    narrow_range: bool = False

    stops_gradient = True
    axes = Elementwise()

    def infer(self, x: TensorType) -> TensorType:
        check_floats(self.name, x)
        if not 2 <= self.num_bits <= 16 or not self.min < self.max:
            raise ModelError(
                f"{self.name}: {self.num_bits} bits from {self.min} to {self.max}, expected 2 to 16 bits and min < max"
            )
        return TensorType(x.dtype, x.shape)

    def forward(self, x: Array) -> Array:
        low, high, scale = self.grid(x.dtype.type)
        steps = np.floor((np.clip(x, low, high) - low) * (1 / scale) + x.dtype.type(0.5))
        return steps * scale + low

    def grid(self, kind: type) -> tuple[float, float, float]:
        """The least and the largest number, and the step between two."""
        least, most = int(self.narrow_range), (1 << self.num_bits) - 1
        scale = (kind(self.max) - kind(self.min)) / kind(most - least)
        zero = np.clip(np.floor(least - kind(self.min) / scale + kind(0.5)), least, most)
        return (least - zero) * scale, (most - zero) * scale, scale

    @classmethod
    def examples(cls) -> Iterable[Example]:
        x = random(3, 5, low=-3, high=3)
        for op in (cls(-1.0, 2.0, 8), cls(0.0, 2.5, 4), cls(-1.0, 2.0, 3, True), cls(0.5, 2.0, 8)):
            yield Example(op, (x,), differentiable=False)
