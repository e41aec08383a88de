"""Bfloat16 arithmetic: what rounds activations, holds them in half the memory, and multiplies them.

A bfloat16 is the upper half of a float32: its eight bits of exponent, and eight of the 24 of the mantissa. Numpy has no such
type, so that tensors of them are uint16.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from circle_train.ir import DType, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Elementwise
from circle_train.ops.base import Example, Op, random, register
from circle_train.ops.layers.conv import Conv2D
from circle_train.ops.layers.linear import BatchMatMul, FullyConnected
from circle_train.record import record

EXPONENT, QUIET = np.uint32(0x7F800000), np.uint32(0x40)


def narrowed(x: Array) -> Array:
    """The nearest bfloat16s, of two equally near the even one; what float32 holds as a subnormal becomes 0."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    upper = bits >> 16
    rounded = (bits + np.uint32(0x7FFF) + (upper & 1)) >> 16
    rounded = np.where(bits & EXPONENT == 0, upper & 0x8000, rounded)
    return np.where(np.isnan(x), upper | QUIET, rounded).astype(np.uint16).reshape(np.shape(x))


def widened(x: Array) -> Array:
    """The same numbers as float32."""
    return (x.astype(np.uint32) << 16).view(np.float32)


def rounded(x: Array) -> Array:
    """The nearest bfloat16s as float32."""
    return widened(narrowed(x))


@register("ROUND_TO_BFLOAT16", internal=True)
@record
class RoundToBfloat16(Op):
    """A float32 tensor whose every element is a bfloat16."""

    inplace = ("x",)
    axes = Elementwise()
    formula = "round_bf16(x)"

    def forward(self, x: Array) -> Array:
        return rounded(x)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield Example(cls(), (random(3, 70),), differentiable=False)


@register("NARROW", internal=True)
@record
class Narrow(Op):
    """Float32 as bfloat16, in half the memory."""

    axes = Elementwise()
    formula = "copy(x)"

    def infer(self, x: TensorType) -> TensorType:
        return TensorType(DType.UINT16, x.shape)

    def forward(self, x: Array) -> Array:
        return narrowed(x)


@register("WIDEN", internal=True)
@record
class Widen(Op):
    """Bfloat16 as float32."""

    axes = Elementwise()
    formula = "copy(x)"

    def infer(self, x: TensorType) -> TensorType:
        return TensorType(DType.FLOAT32, x.shape)

    def forward(self, x: Array) -> Array:
        return widened(x)


# Products of rounded operands, summed as float32. They are their operators, computed otherwise: same name, same type rule.


@record
class RoundedFullyConnected(FullyConnected):
    def forward(self, x: Array, w: Array, b: Array | None = None) -> Array:
        return super().forward(rounded(x), rounded(w), b)

    def grad_x(self, dy: Array, w: Array, x_shape: tuple[int, ...]) -> Array:
        return super().grad_x(rounded(dy), rounded(w), x_shape)

    def grad_w(self, dy: Array, x: Array, w_shape: tuple[int, ...]) -> Array:
        return super().grad_w(rounded(dy), rounded(x), w_shape)


@record
class RoundedBatchMatMul(BatchMatMul):
    def forward(self, x: Array, w: Array) -> Array:
        return super().forward(rounded(x), rounded(w))

    def grad_x(self, dy: Array, w: Array) -> Array:
        return super().grad_x(rounded(dy), rounded(w))

    def grad_w(self, dy: Array, x: Array) -> Array:
        return super().grad_w(rounded(dy), rounded(x))


@record
class RoundedConv2D(Conv2D):
    def forward(self, x: Array, w: Array, b: Array | None = None) -> Array:
        return super().forward(rounded(x), rounded(w), b)

    def grad_x(self, dy: Array, w: Array, x_shape: tuple[int, ...]) -> Array:
        return super().grad_x(rounded(dy), rounded(w), x_shape)

    def grad_w(self, dy: Array, x: Array, w_shape: tuple[int, ...]) -> Array:
        return super().grad_w(rounded(dy), rounded(x), w_shape)


PRODUCTS: dict[type[Op], type[Op]] = {
    FullyConnected: RoundedFullyConnected,
    BatchMatMul: RoundedBatchMatMul,
    Conv2D: RoundedConv2D,
}
