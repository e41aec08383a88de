"""Sums and products of bytes, pools and means, softmax, and what only moves."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from circle_train.backends.native.binders.integer.bytes import (
    Meaning,
    binds_bytes,
    is_same,
    looked_up,
    made,
    meaning,
)
from circle_train.backends.native.binders.places.movement import joined, strided_copy
from circle_train.backends.native.binders.pool import geometry
from circle_train.backends.native.engine import abi
from circle_train.backends.native.engine.abi import MAX_RANK, Kernel, Reduce
from circle_train.backends.native.engine.binding import (
    Calls,
    Values,
    binds_fused,
    call,
    floats,
    pointer,
    sizes,
)
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import Activation
from circle_train.ops.internal.fused import Fused
from circle_train.ops.internal.integers.quantized import Quantized
from circle_train.ops.layers.pool import AveragePool2D, MaxPool2D
from circle_train.ops.numeric.activation import Softmax
from circle_train.ops.numeric.arithmetic import Add, Mul, Sub
from circle_train.ops.numeric.quantize import Quantize
from circle_train.ops.numeric.reduce import Mean
from circle_train.ops.shapes.join import Concatenation
from circle_train.ops.shapes.pad import Pad, PadV2
from circle_train.ops.shapes.shape import Reshape

LEAST_RATIO, LARGEST_RATIO = 2.0**-10, 2.0**8
"""What XNNPACK takes of an operand's scale over the result's."""


@binds_bytes(Add, Sub, Mul)
def binary(op: Quantized, inputs: Values, y: Array) -> Calls:
    a, b = inputs
    first, second, wanted = meaning(a, op.given[0]), meaning(b, op.given[1]), made(op, y)
    limits = wanted.range(op.of.activation) if wanted is not None else None
    if first is None or second is None or wanted is None or limits is None or y.ndim > MAX_RANK:
        return None
    factors = _whole_factors(op, first, second, wanted) or _factors(op, first, second, wanted.scale)
    strides = [sizes(np.broadcast_to(operand, y.shape).strides) for operand in (a, b)]
    args = abi.IntBinaryArgs(
        pointer(a), pointer(b), pointer(y), sizes(y.shape), *strides, y.ndim, first.flip, second.flip,
        **limits, **factors,
    )  # fmt: skip
    return [call(Kernel.INT_BINARY, args, a, b, y)]


def _whole_factors(op: Quantized, a: Meaning, b: Meaning, made: Meaning) -> dict[str, int] | None:
    """Of a sum as XNNPACK has it, halves rounded up: the larger factor of 21 bits; None where it asks others."""
    if isinstance(op.of, Mul):
        return None
    real = np.array([a.scale, b.scale], np.float32) / np.float32(made.scale)
    if not (real >= LEAST_RATIO).all() or not (real < LARGEST_RATIO).all():
        return None
    shift = 21 - int(np.frexp(real.max())[1])
    factor_a, factor_b = (int(np.rint(np.ldexp(ratio, shift))) for ratio in real)
    if isinstance(op.of, Sub):
        factor_b = -factor_b
    bias = (1 << (shift - 1)) - factor_a * a.unsigned_zero - factor_b * b.unsigned_zero
    return {"factor_a": factor_a, "factor_b": factor_b, "bias": bias, "shift": shift}


def _factors(op: Quantized, a: Meaning, b: Meaning, scale: float) -> dict[str, float]:
    """Of unsigned bytes, their product and 1, in units of the result."""
    za, zb = a.unsigned_zero, b.unsigned_zero
    if isinstance(op.of, Mul):
        unit = a.scale * b.scale / scale
        return {"scale_a": -unit * zb, "scale_b": -unit * za, "scale_ab": unit, "offset": unit * za * zb}
    sa, sb = a.scale / scale, (-b.scale if isinstance(op.of, Sub) else b.scale) / scale
    return {"scale_a": sa, "scale_b": sb, "scale_ab": 0.0, "offset": -sa * za - sb * zb}


@binds_bytes(AveragePool2D)
def average_pool(op: Quantized, inputs: Values, y: Array) -> Calls:
    assert isinstance(op.of, AveragePool2D)
    return _pool(op, inputs[0], y, geometry(op.of, inputs[0].shape, y.shape), Reduce.SUM)


@binds_bytes(MaxPool2D)
def max_pool(op: Quantized, inputs: Values, y: Array) -> Calls:
    assert isinstance(op.of, MaxPool2D)
    if not is_same(op, 0, inputs[0], y):
        return None
    return _pool(op, inputs[0], y, geometry(op.of, inputs[0].shape, y.shape), Reduce.MAX)


@binds_bytes(Mean)
def mean(op: Quantized, inputs: Values, y: Array) -> Calls:
    """Over axes that lie together: one window over all of them."""
    x, axis = inputs
    assert isinstance(op.of, Mean)
    axes = sorted(op.of.along(axis, x.ndim))
    if not axes or axes != list(range(axes[0], axes[-1] + 1)):
        return None
    outer, many, inner = (
        prod(x.shape[: axes[0]]),
        prod(x.shape[a] for a in axes),
        prod(x.shape[axes[-1] + 1 :]),
    )
    shape = abi.ConvShape(outer, many, 1, inner, 1, 1, inner, many, 1, 1, 1, 1, 1, 0, 0, 1)
    return _pool(op, x, y, shape, Reduce.SUM)


def _pool(op: Quantized, x: Array, y: Array, shape: abi.ConvShape, how: Reduce) -> Calls:
    given, wanted = meaning(x, op.given[0]), made(op, y)
    limits = wanted.range(op.of.activation) if wanted is not None else None
    if given is None or wanted is None or limits is None or shape.kernel_h * shape.kernel_w > 1 << 22:
        return None
    args = abi.IntPoolArgs(
        pointer(x), pointer(y), shape, given.flip, given.unsigned_zero, **limits, op=int(how),
        scale=given.scale / wanted.scale,
    )  # fmt: skip
    return [call(Kernel.INT_POOL, args, x, y)]


@binds_bytes(Softmax)
def softmax(op: Quantized, inputs: Values, y: Array) -> Calls:
    (x,) = inputs
    given, wanted = meaning(x, op.given[0]), made(op, y)
    assert isinstance(op.of, Softmax)
    if given is None or wanted is None or op.of.beta < 0 or not x.size:
        return None
    power = np.exp(-np.arange(256) * (given.scale * op.of.beta)).astype(np.float32)
    args = abi.IntSoftmaxArgs(
        pointer(x), pointer(y), pointer(power), None, x.size // x.shape[-1], x.shape[-1], given.flip,
        **(wanted.range(Activation.NONE) or {}), scale=1 / wanted.scale,
    )  # fmt: skip
    return [call(Kernel.INT_SOFTMAX, args, x, y, power)]


@binds_fused("settle")
def settled(op: Fused, given: dict[str, Any], outputs: Sequence[Array]) -> Calls:
    """A grid in training: what lies on it, where gradients pass, and the bytes."""
    x, made = given["x"], dict(zip(op.settings.made, outputs, strict=True))
    if not floats(x, made["y"]) or not all(a.flags.c_contiguous for a in (x, *outputs)):
        return None
    grid, (low, high) = op.settings.grid, op.settings.inside
    args = abi.IntSettleArgs(
        pointer(x), pointer(made["y"]), pointer(made.get("bytes")), pointer(made.get("bits")), x.size,
        grid.inverse, grid.scale, grid.zero, grid.low, grid.high, low, np.inf if high is None else high,
    )  # fmt: skip
    return [call(Kernel.INT_SETTLE, args, x, *outputs)]


@binds_bytes(Reshape)
def reshaped(op: Quantized, inputs: Values, y: Array) -> Calls:
    """That also changes what the bytes mean."""
    return looked_up(op, 0, inputs[0].reshape(-1), y.reshape(-1), Quantize())


@binds_bytes(Concatenation)
def concatenated(op: Quantized, inputs: Values, y: Array) -> Calls:
    """Each part as rows, as it is or looked up."""
    assert isinstance(op.of, Concatenation)
    if op.of.activation or not y.size:
        return None
    axis = op.of.axis % y.ndim
    outer = prod(y.shape[:axis])
    rows, at, calls = y.reshape(outer, -1), 0, []
    for index, x in enumerate(inputs):
        width = x.size // outer
        part, source = rows[:, at : at + width], x.reshape(outer, width)
        at += width
        if width:
            is_plain = is_same(op, index, x, y)
            calls.append(
                strided_copy(source, part) if is_plain else looked_up(op, index, source, part, Quantize())
            )
    return joined(*calls)


@binds_bytes(Pad, PadV2)
def padded(op: Quantized, inputs: Sequence[Array], y: Array) -> Calls:
    """What stands for 0, or the value, all over; then the input within."""
    x, paddings = inputs[:2]
    wanted = made(op, y)
    if wanted is None or not is_same(op, 0, x, y) or (len(inputs) > 2 and op.given[2] != op.made[0][1]):
        return None
    value = inputs[2] if len(inputs) > 2 else np.array([wanted.zero], y.dtype)
    assert isinstance(op.of, (Pad, PadV2))
    around = strided_copy(np.broadcast_to(value.reshape(()), y.shape), y)
    return joined(around, strided_copy(x, y[op.of.inside(paddings, x.shape)]))
