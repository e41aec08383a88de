"""Quantised arithmetic, computed in floats: exact as long as sums of products stay below 2²⁴."""

from __future__ import annotations

import numpy as np

from circle_train.convert.building.builder import Builder
from circle_train.convert.building.provenance import Lineage, Widened
from circle_train.convert.building.refusal import Refusal
from circle_train.convert.building.registry import Call, front, handles
from circle_train.convert.handlers.layers.conv import (
    convolve_2d,
    convolve_3d,
    lift,
    lift_kernel,
    lifted,
    squeezed,
)
from circle_train.convert.handlers.numeric.linear import product
from circle_train.convert.handlers.window import geometry
from circle_train.convert.onnx_file.elements import element_type
from circle_train.convert.stages.lower import rounded
from circle_train.ir import DType, Role, Tensor
from circle_train.ops.internal.integers.round_within import RoundWithin


def along(b: Builder, vector: Tensor, axis: int, rank: int, block: int, length: int) -> Tensor:
    """Scales or zero points, shaped so that they broadcast over a tensor."""
    if vector.type.rank == 0 or (vector.type.rank == 1 and vector.type.size == 1):
        return b.reshape(vector, ()) if vector.type.rank else vector
    is_whole = vector.shape[:1] == (length,) or not block
    if vector.type.rank == 1 and (rank > 1 or is_whole):
        return b.reshape(vector, tuple(vector.shape[0] if i == axis else 1 for i in range(rank)))
    if not block:
        raise Refusal("its scale has a rank of its own, but block_size is not given")
    places = np.arange(length) // block
    if vector.is_constant and vector not in b.open:
        return b.constant(np.take(vector.data, places, axis))
    picked = b.constant(places, np.int32)
    return b("GATHER", vector, picked, axis=axis, batch_dims=0)


def along_which(c: Call, x: Tensor) -> int:
    """The axis of the scales; where one serves all, exporters name any."""
    return front(int(c.attr("axis", 1)), x.type.rank) if c[1].type.size > 1 else 0


def operands(c: Call, axis: int, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """Scale and zero point as floats."""
    b, rank, block = c.b, x.type.rank, int(c.attr("block_size", 0))
    length = x.shape[axis] if rank else 1
    scale = along(b, c[1], axis, rank, block, length)
    zero = c.optional(2)
    if zero is None:
        return scale, None
    return scale, along(b, b.cast(zero, scale.dtype), axis, rank, block, length)


@handles("DequantizeLinear")
def dequantize_linear(c: Call) -> Tensor:
    b, x = c.b, c[0]
    if x.dtype not in (DType.INT8, DType.UINT8, DType.INT16, DType.UINT16, DType.INT32):
        raise Refusal(f"it dequantizes {x.dtype.name}, Circle knows 8, 16 and 32 bit integers")
    axis = along_which(c, x)
    c[1].role |= Role.FIXED
    scale, zero = operands(c, axis, x)
    known = (scale, *([] if zero is None else [zero]))
    if x in b.stored and scale.dtype is DType.FLOAT32 and all(t.is_constant for t in known):
        found = _trainable(b, x, scale, zero)
        if found is not None:
            return found
    wide = DType.FLOAT64 if x.dtype is DType.INT32 else scale.dtype
    y = b.cast(x, scale.dtype)
    if zero is not None:
        exact = wide is not scale.dtype
        y = b.cast(b("SUB", x, b.cast(zero, x.dtype)), scale.dtype) if exact else b("SUB", y, zero)
    return b("MUL", y, scale)


def _trainable(b: Builder, x: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor | None:
    """Weights that the file holds as integers are computed, and trained, as the reals that they stand for.

    None where the same integers stand for others elsewhere: those are no one's to move.
    """
    zeros = np.zeros(()) if zero is None else np.asarray(zero.data, np.float64)
    bits = 4 if b.stored[x] in b.four_bits else None
    step = Widened(np.asarray(scale.data, np.float64), zeros, np.dtype(x.dtype.numpy).name, bits)
    if x not in b.widened:
        b.widened[x] = b.parameter(step.forward(x.data), Lineage(b.stored[x], (step,)))
    known = b.widened[x]
    return known if np.array_equal(known.data, step.forward(x.data), equal_nan=True) else None


@handles("QuantizeLinear")
def quantize_linear(c: Call) -> Tensor:
    b, x = c.b, c[0]
    zero = c.optional(2)
    code = int(c.attr("output_dtype", 0))
    target = zero.dtype if zero is not None else element_type(code) if code else DType.UINT8
    if target not in (DType.INT8, DType.UINT8, DType.INT16, DType.UINT16):
        raise Refusal("it quantizes to a type other than 8 or 16 bit integers")
    axis = along_which(c, x)
    c[1].role |= Role.FIXED
    scale, zero = operands(c, axis, x)
    if not x.dtype.is_float:
        x = b.cast(x, DType.FLOAT32)
    scale = b.cast(scale, x.dtype)
    zeros = [] if zero is None else [b.cast(zero, x.dtype)]
    return b.cast(b.emit(within(target), [b("DIV", x, scale), *zeros])[0], target)


def requantized(b: Builder, x: Tensor, zero: Tensor | None, target: DType) -> Tensor:
    """Rounded half to even, shifted, clipped and stored as an integer."""
    return b.cast(rounded(b, x, zero, within(target)), target)


def within(target: DType) -> RoundWithin:
    """Rounding to what the integers can hold."""
    info = np.iinfo(np.dtype(target.numpy))
    return RoundWithin(float(info.min), float(info.max))


def shifted(b: Builder, x: Tensor, zero: Tensor | None, axis: int) -> Tensor:
    """An integer tensor without its zero point, as floats that are whole numbers."""
    y = b.cast(x, DType.FLOAT32)
    if zero is None:
        return y
    rank = x.type.rank
    shape = (
        tuple(zero.shape[0] if i == axis else 1 for i in range(rank))
        if zero.type.size > 1 and zero.type.rank == 1
        else None
    )
    zero = b.cast(zero, DType.FLOAT32)
    if shape is not None:
        zero = b.reshape(zero, shape)
    elif zero.type.size == 1:
        zero = b.reshape(zero, ())
    return b("SUB", y, zero)


@handles("MatMulInteger")
def matmul_integer(c: Call) -> Tensor:
    b = c.b
    x = shifted(b, c[0], c.optional(2), c.rank(0) - 2)
    w = shifted(b, c[1], c.optional(3), c.rank(1) - 1)
    return b.cast(b("ROUND", product(b, x, w)), DType.INT32)


@handles("ConvInteger")
def conv_integer(c: Call) -> Tensor:
    b = c.b
    x, w = shifted(b, c[0], c.optional(2), 1), shifted(b, c[1], c.optional(3), 0)
    return b.cast(b("ROUND", convolved(c, x, w, b.shape(w)[2:])), DType.INT32)


def convolved(c: Call, x: Tensor, w: Tensor, kernel: tuple[int, ...]) -> Tensor:
    """A convolution of floats with the node's attributes."""
    b, group = c.b, int(c.attr("group", 1))
    g = geometry(c, c.shape()[2:], kernel)
    x = b.channels_last(x)
    if len(kernel) == 1:
        return b.channels_first(
            squeezed(b, convolve_2d(b, lifted(b, x), lift_kernel(b, w), None, lift(g), group))
        )
    convolve = convolve_2d if len(kernel) == 2 else convolve_3d
    return b.channels_first(convolve(b, x, w, None, g, group))


@handles("QLinearMatMul")
def qlinear_matmul(c: Call) -> Tensor:
    b = c.b
    x, w = shifted(b, c[0], c[2], c.rank(0) - 2), shifted(b, c[3], c[5], c.rank(3) - 1)
    scale = b(
        "DIV", b("MUL", b.cast(c[1], DType.FLOAT32), b.cast(c[4], DType.FLOAT32)), b.cast(c[6], DType.FLOAT32)
    )
    if scale.type.size > 1:
        raise Refusal("scales per row or column are not expressed")
    y = b("MUL", product(b, x, w), b.reshape(scale, ()))
    return requantized(b, y, b.reshape(b.cast(c[7], DType.FLOAT32), ()), c[7].dtype)


@handles("QLinearConv")
def qlinear_conv(c: Call) -> Tensor:
    b = c.b
    x, w = shifted(b, c[0], c[2], 1), shifted(b, c[3], c[5], 0)
    y = convolved(c, x, w, b.shape(w)[2:])
    rank = y.type.rank
    if (bias := c.optional(8)) is not None:
        y = b("ADD", y, b.reshape(b.cast(bias, DType.FLOAT32), (bias.shape[0], *(1,) * (rank - 2))))
    scale = b("DIV", b("MUL", c[1], c[4]), c[6])
    scale = b.reshape(scale, (scale.type.size, *(1,) * (rank - 2)) if scale.type.size > 1 else ())
    zero = b.cast(c[7], DType.FLOAT32)
    return requantized(b, b("MUL", y, scale), b.reshape(zero, ()), c[7].dtype)
