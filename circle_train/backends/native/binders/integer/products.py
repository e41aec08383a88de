"""CONV_2D, DEPTHWISE_CONV_2D and FULLY_CONNECTED on bytes: weights are packed when they are bound."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circle_train.backends.native.binders.conv import geometry
from circle_train.backends.native.binders.integer.bytes import SHORT, binds_bytes, binds_shorts, made, meaning
from circle_train.backends.native.binders.integer.shorts import fixed_point
from circle_train.backends.native.engine import abi
from circle_train.backends.native.engine.abi import Kernel
from circle_train.backends.native.engine.binding import Calls, Values, call, pointer
from circle_train.ir import Quantization
from circle_train.ir.tensor_type import Array
from circle_train.ops.internal.integers.quantized import Quantized
from circle_train.ops.layers.conv import Conv2D, DepthwiseConv2D
from circle_train.ops.layers.linear import FullyConnected
from circle_train.record import mutable

PANEL = abi.INT_PANEL
LARGEST_WINDOW, LARGEST_SUM = 1 << 15, (1 << 31) - 1
"""So many products of two bytes add up within 32 bits, whatever they are; and what fits into these."""
LARGEST_SHORT_SUM = 1 << 47
"""A factor of 15 bits leaves so much room in 63."""


@mutable
class Weights:
    """Signed, with a scale for each output; real = scale · (stored - zero)."""

    stored: Array
    scale: Array
    zero: int


@mutable
class Product:
    """A product's arrays and sizes; w: outputs × height × width × channels of a group."""

    x: Array
    w: Array
    b: Array | None
    y: Array
    shape: abi.ConvShape
    along: int = 0
    """Which axis of the file's weights counts the outputs."""


@binds_shorts(Conv2D)
@binds_bytes(Conv2D)
def convolution(op: Quantized, inputs: Values, y: Array) -> Calls:
    x, w, b = inputs
    assert isinstance(op.of, Conv2D)
    return _by_panels(op, Product(x, w, b, y, geometry(op.of, x.shape, w.shape, y.shape)))


@binds_shorts(FullyConnected)
@binds_bytes(FullyConnected)
def fully_connected(op: Quantized, inputs: Values, y: Array) -> Calls:
    """A pointwise convolution of one long row."""
    x, w, b = inputs
    outputs, taken = w.shape
    return _by_panels(op, Product(x, w.reshape(outputs, 1, 1, taken), b, y, long_row(y, w.shape)))


def long_row(y: Array, weights: Sequence[int]) -> abi.ConvShape:
    """A matrix product as a convolution."""
    outputs, taken = weights
    rows = y.size // max(outputs, 1)
    return abi.ConvShape(1, 1, rows, taken, 1, rows, outputs, 1, 1, 1, 1, 1, 1, 0, 0, 1)


@binds_shorts(DepthwiseConv2D)
@binds_bytes(DepthwiseConv2D)
def depthwise(op: Quantized, inputs: Values, y: Array) -> Calls:
    """With several outputs a channel, or more cells than 32 bits hold, a convolution of a group for each channel."""
    x, w, b = inputs
    assert isinstance(op.of, DepthwiseConv2D)
    shape = geometry(op.of, x.shape, w.shape, y.shape)
    product = Product(x, np.ascontiguousarray(w.transpose(3, 1, 2, 0)), b, y, shape, along=3)
    if w.shape[3] != x.shape[3] or (x.dtype == np.int16 and w[0, ..., 0].size > abi.SHORT_TAPS):
        shape.groups = x.shape[3]
        return _by_panels(op, product)
    weights = _weights(w, op.given[1], 3)
    return None if weights is None else _call(Kernel.INT_DEPTHWISE, op, product, weights, weights.stored)


def _by_panels(op: Quantized, product: Product) -> Calls:
    shape, weights = product.shape, _weights(product.w, op.given[1], product.along)
    if weights is None or (weights.zero and shape.groups > 1):
        return None
    is_together = shape.groups == 1 and shape.dilation_w == 1
    return _call(Kernel.INT_CONV, op, product, weights, packed(weights.stored, shape.groups, is_together))


def packed(w: Array, groups: int, is_together: bool) -> Array:
    """Panels of 16 outputs: [group, panel][run][fours][16][4]."""
    outputs, height, width, _ = w.shape
    runs = w.reshape(groups, outputs // groups, height * (1 if is_together else width), -1)
    each, fours = -(-runs.shape[1] // PANEL), -(-runs.shape[3] // 4)
    whole = np.zeros((groups, each * PANEL, runs.shape[2], fours * 4), np.int8)
    whole[:, : runs.shape[1], :, : runs.shape[3]] = runs
    split = whole.reshape(groups, each, PANEL, runs.shape[2], fours, 4)
    return np.ascontiguousarray(split.transpose(0, 1, 3, 4, 2, 5))


def _weights(w: Array, quantization: Quantization | None, along: int) -> Weights | None:
    if quantization is None or w.itemsize != 1 or w.dtype.kind not in "iu":
        return None
    zeros = set(quantization.zero_point) or {0}
    if len(zeros) != 1 or (len(quantization.scale) > 1 and not quantization.is_along(along)):
        return None
    zero = int(zeros.pop())
    scale = np.array(quantization.scale, np.float32)
    return Weights(_signed(w), scale, zero - 128 if w.dtype == np.uint8 else zero)


def _signed(w: Array) -> Array:
    return (w ^ np.uint8(0x80)).view(np.int8) if w.dtype == np.uint8 else w


def _bias(op: Quantized, b: Array | None, unit: Array, count: int) -> Array | None:
    """In units of the products."""
    if b is None:
        return np.zeros(count, np.int64)
    meant = op.given[2]
    if meant is None:
        scale = np.ones(1)
        stored = np.asarray(b, np.float64)
    else:
        scale, stored = (
            np.array(meant.scale, np.float64),
            b.reshape(-1) - np.array(meant.zero_point or (0,), np.float64),
        )
    ratio = np.broadcast_to(scale / unit.astype(np.float64), count)
    exact = np.abs(ratio - 1) < 1e-3  # LiteRT asks no more of the two to take the integers as they are
    real = stored.reshape(-1) * np.where(exact, 1.0, ratio)
    return (
        np.rint(real).astype(np.int64)
        if np.isfinite(real).all() and np.abs(real).max(initial=0) < 1 << 62
        else None
    )


def _call(kernel: Kernel, op: Quantized, product: Product, weights: Weights, panels: Array) -> Calls:
    x, w, y = product.x, product.w, product.y
    if x.dtype == np.int16:
        return _call_of_shorts(kernel, op, product, weights, panels)
    given, wanted = meaning(x, op.given[0]), made(op, y)
    if given is None or wanted is None:
        return None
    stored, terms = _signed(w), w[:1].size
    sums = stored.sum((1, 2, 3), dtype=np.int64) - weights.zero * terms
    unit = np.float32(given.scale) * weights.scale
    bias, limits = _bias(op, product.b, unit, len(w)), wanted.range(op.of.activation)
    if bias is None or limits is None:
        return None
    bias = bias - given.unsigned_zero * sums
    sizes = np.abs(stored, dtype=np.int16).sum((1, 2, 3), dtype=np.int64)
    most = np.abs(bias) + 255 * (sizes + abs(weights.zero) * terms)
    if most.max(initial=0) > LARGEST_SUM:
        return None
    bias = bias.astype(np.int32)
    scale = np.broadcast_to(unit / np.float32(wanted.scale), len(w))
    groups = product.shape.groups
    places = (in_panels(bias, groups), in_panels(scale, groups))
    args = abi.IntConvArgs(
        pointer(x), pointer(panels), *map(pointer, places), None, pointer(y), product.shape, x_flip=given.flip,
        x_zero=given.unsigned_zero, w_zero=weights.zero, **limits,
    )  # fmt: skip
    return [call(kernel, args, x, panels, places, y)]


def _call_of_shorts(
    kernel: Kernel, op: Quantized, product: Product, weights: Weights, panels: Array
) -> Calls:
    """In 64 bits, and back by LiteRT's factor of 15; that of a FULLY_CONNECTED has 31, or as many as there is room for."""
    x, w, y = product.x, product.w, product.y
    given, wanted = meaning(x, op.given[0], SHORT), meaning(y, op.made[0][1], SHORT)
    limits = wanted.range(op.of.activation) if wanted is not None else None
    if given is None or wanted is None or limits is None or given.zero or wanted.zero or weights.zero:
        return None
    unit = given.scale * weights.scale.astype(np.float64)
    bias = _bias(op, product.b, unit, len(w))
    if bias is None:
        return None
    most = int(
        (np.abs(bias) + (np.abs(_signed(w), dtype=np.int16).sum((1, 2, 3), dtype=np.int64) << 15)).max(
            initial=0
        )
    )
    bits = min(31, 63 - most.bit_length()) if isinstance(op.of, FullyConnected) else 15
    factor, shift = fixed_point(np.broadcast_to(unit / wanted.scale, len(w)), bits)
    if most >= LARGEST_SHORT_SUM or shift.min(initial=1) < 1:
        return None
    groups = product.shape.groups
    exact = in_panels(bias, groups), *(in_panels(a.astype(np.int32), groups) for a in (factor, shift))
    args = abi.IntConvArgs(
        pointer(x), pointer(panels), *map(pointer, exact), pointer(y), product.shape, **limits
    )
    return [call(kernel, args, x, panels, exact, y)]


def in_panels(values: Array, groups: int) -> Array:
    """The outputs of each group from a panel's begin; a whole vector of the widest kind can be read everywhere."""
    outputs = values.size // groups
    width = -(-outputs // PANEL) * PANEL
    whole = np.zeros(groups * width + abi.INT_OUTPUTS, values.dtype)
    whole[: groups * width].reshape(groups, width)[:, :outputs] = values.reshape(groups, outputs)
    return whole
