"""Comparisons, truth values and bits; no influence passes through them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import DType, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Elementwise
from circle_train.ops.base import Example, Op, register
from circle_train.ops.checks import booleans
from circle_train.ops.elementwise import Binary, broadcast, same_dtype
from circle_train.ops.versions import INT8, INT8_INT16, SHORT, Versions


class Comparison(Op):
    """Two operands of one element type that broadcast; the result is BOOL."""

    stops_gradient = True
    axes = Elementwise(data="x1")

    def infer(self, x1: TensorType, x2: TensorType) -> TensorType:
        same_dtype(self.name, x1, x2)
        return TensorType(DType.BOOL, broadcast(self.name, x1, x2))

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield Example(cls(), (np.array([[1.0, 2.0], [3.0, 2.0]]), np.array([[2.0, 2.0], [2.0, np.nan]])))
        yield Example(cls(), (np.array([[1, 2, 3]], np.int32), np.array([[2], [3]], np.int32)))
        yield Example(cls(), (np.array([4, -1], np.int64), np.array(4, np.int64)))


@register("EQUAL", "EqualOptions")
class Equal(Comparison):
    formula = "equal(x1, x2)"
    versions = Versions({DType.INT8: 2, DType.STRING: 3, DType.INT16: 4})
    litert_lacks = SHORT - {DType.BOOL}

    def forward(self, x1: Array, x2: Array) -> Array:
        return np.equal(x1, x2)


@register("NOT_EQUAL", "NotEqualOptions")
class NotEqual(Comparison):
    formula = "not_equal(x1, x2)"
    versions = Versions({DType.INT8: 2, DType.STRING: 3})
    litert_lacks = SHORT - {DType.BOOL}

    def forward(self, x1: Array, x2: Array) -> Array:
        return np.not_equal(x1, x2)


@register("LESS", "LessOptions")
class Less(Comparison):
    formula = "less(x1, x2)"
    versions = Versions(INT8_INT16)
    litert_lacks = SHORT

    def forward(self, x1: Array, x2: Array) -> Array:
        return np.less(x1, x2)


@register("LESS_EQUAL", "LessEqualOptions")
class LessEqual(Comparison):
    formula = "less_equal(x1, x2)"
    versions = Versions(INT8)
    litert_lacks = SHORT

    def forward(self, x1: Array, x2: Array) -> Array:
        return np.less_equal(x1, x2)


@register("GREATER", "GreaterOptions")
class Greater(Comparison):
    formula = "greater(x1, x2)"
    versions = Versions(INT8)
    litert_lacks = SHORT

    def forward(self, x1: Array, x2: Array) -> Array:
        return np.greater(x1, x2)


@register("GREATER_EQUAL", "GreaterEqualOptions")
class GreaterEqual(Comparison):
    formula = "greater_equal(x1, x2)"
    versions = Versions(INT8_INT16)
    litert_lacks = SHORT

    def forward(self, x1: Array, x2: Array) -> Array:
        return np.greater_equal(x1, x2)


class Connective(Op):
    """Two truth values that broadcast."""

    stops_gradient = True
    axes = Elementwise(data="x1")

    def infer(self, x1: TensorType, x2: TensorType) -> TensorType:
        booleans(self.name, "first operand", x1)
        booleans(self.name, "second operand", x2)
        return TensorType(DType.BOOL, broadcast(self.name, x1, x2))

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield Example(cls(), (np.array([True, True, False, False]), np.array([True, False, True, False])))
        yield Example(cls(), (np.array([[True], [False]]), np.array([True, False, True])))


@register("LOGICAL_AND", "LogicalAndOptions")
class LogicalAnd(Connective):
    formula = "logical_and(x1, x2)"

    def forward(self, x1: Array, x2: Array) -> Array:
        return np.logical_and(x1, x2)


@register("LOGICAL_OR", "LogicalOrOptions")
class LogicalOr(Connective):
    formula = "logical_or(x1, x2)"

    def forward(self, x1: Array, x2: Array) -> Array:
        return np.logical_or(x1, x2)


@register("LOGICAL_NOT", "LogicalNotOptions")
class LogicalNot(Op):
    formula = "logical_not(x)"
    stops_gradient = True
    axes = Elementwise()

    def infer(self, x: TensorType) -> TensorType:
        booleans(self.name, "input", x)
        return TensorType(DType.BOOL, x.shape)

    def forward(self, x: Array) -> Array:
        return np.logical_not(x)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield Example(cls(), (np.array([[True, False]]),))


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
