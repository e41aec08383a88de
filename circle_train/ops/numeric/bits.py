"""Bits of two integer operands."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import DType, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.base import Example, register
from circle_train.ops.elementwise import Binary


class IntegerBinary(Binary):
    """Bits of two integer operands."""

    stops_gradient = True
    litert_lacks = frozenset({DType.INT64, DType.BOOL})

    def infer(self, x1: TensorType, x2: TensorType) -> TensorType:
        if x1.dtype.is_float:
            raise ModelError(
                f"{self.name}: operand has element type {x1.dtype.name}, expected integers; insert a CAST"
            )
        return super().infer(x1, x2)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield Example(
            cls(), (np.array([[5, -6, 127], [-128, 0, 3]], np.int8), np.array([1, 3, 100], np.int8))
        )
        yield Example(cls(), (np.array([70000, -70000], np.int32), np.array([[2], [-1], [40]], np.int32)))
        yield Example(cls(), (np.array([7, 255], np.uint8), np.array(2, np.uint8)))


@register("BITWISE_XOR", "BitwiseXorOptions")
class BitwiseXor(IntegerBinary):
    def forward(self, x1: Array, x2: Array) -> Array:
        return np.bitwise_xor(x1, x2)


@register("RIGHT_SHIFT", "RightShiftOptions")
class RightShift(IntegerBinary):
    """Arithmetic shift; amounts beyond the width count as the widest, negative ones as 0."""

    def forward(self, x1: Array, x2: Array) -> Array:
        return np.right_shift(x1, np.clip(x2, 0, 8 * x1.dtype.itemsize - 1))
