"""Pools: Circle's over images where they fit, else a separable chain of slices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod

import numpy as np

from circle_train.convert.building.builder import Builder
from circle_train.convert.building.registry import Call, handles
from circle_train.convert.handlers.window import Geometry, Sizes, circle_padding, geometry, padded, slice_axes
from circle_train.ir import DType, Tensor
from circle_train.ir.size import is_open, largest, smallest
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import Padding


def window_of(c: Call) -> tuple[Geometry, tuple[tuple[int, int], ...]]:
    """The pool's window, and how much further ceil_mode reaches beyond each axis."""
    spatial = c.shape()[2:]
    g = geometry(c, spatial, tuple(c.required("kernel_shape")))
    ends = [(0, 0)] * len(spatial)
    if c.attr("ceil_mode", 0) and c.attr("auto_pad", "NOTSET") == "NOTSET":
        ends = [
            _ceil_pad(n, e, s, p) for n, e, s, p in zip(spatial, g.extents, g.strides, g.pads, strict=True)
        ]
    return g, tuple(ends)


def _ceil_pad(size: int, extent: int, stride: int, pads: tuple[int, int]) -> tuple[int, int]:
    """What must be added behind for the last, partial window, which starts inside the input or its pads."""
    total = size + sum(pads)
    positions = smallest(-(-(total - extent) // stride), (size + pads[0] - 1) // stride) + 1
    return 0, largest((positions - 1) * stride + extent - total, 0)


@handles("MaxPool")
def max_pool(c: Call) -> list[Tensor]:
    b = c.b
    g, ends = window_of(c)
    x = b.channels_last(c[0])
    padding = circle_padding(c.shape()[2:], g) if not reaches_beyond(ends) else None
    if c.uses(1):
        return [b.channels_first(x) for x in max_pool_with_indices(c, g, ends)]
    if padding is None:
        pads = [(p[0] + e[0], p[1] + e[1]) for p, e in zip(g.pads, ends, strict=True)]
        x, padding = padded(b, x, pads, lowest(x)), Padding.VALID
    return [b.channels_first(pooled(b, x, "MAX_POOL_2D", g, padding))]


def reaches_beyond(ends: Sequence[tuple[int, int]]) -> bool:
    """Whether windows stand where there is nothing, for some size at least."""
    return any(pair != (0, 0) for pair in ends)


def lowest(x: Tensor) -> float:
    """What never is a maximum."""
    return -np.inf if x.dtype.is_float else float(np.iinfo(np.dtype(x.dtype.numpy)).min)


def pooled(b: Builder, x: Tensor, name: str, g: Geometry, padding: Padding) -> Tensor:
    """Circle's pool over a channels-last image or sequence; volumes and dilated windows axis by axis."""
    if len(g.kernel) > 2 or set(g.dilations) != {1}:
        if padding is Padding.SAME:
            x = padded(b, x, g.pads, lowest(x) if name == "MAX_POOL_2D" else 0.0)
        return separable(b, x, g, "MAXIMUM" if name == "MAX_POOL_2D" else "ADD")
    if len(g.kernel) == 1:
        n, length, channels = b.shape(x)
        flat = Geometry((1, *g.kernel), (1, *g.strides), (1, 1), ((0, 0), *g.pads))
        y = pooled(b, b.reshape(x, (n, 1, length, channels)), name, flat, padding)
        n, _, length, channels = b.shape(y)
        return b.reshape(y, (n, length, channels))
    options = {
        "filter_height": g.kernel[0], "filter_width": g.kernel[1],
        "stride_h": g.strides[0], "stride_w": g.strides[1],
    }  # fmt: skip
    return b(name, x, padding=padding, **options)


def separable(b: Builder, x: Tensor, g: Geometry, name: str) -> Tensor:
    """For each axis in turn, the slices that the window's cells see, combined; x is padded already."""
    for axis, (kernel, stride, dilation) in enumerate(zip(g.kernel, g.strides, g.dilations, strict=True), 1):
        count = (b.shape(x)[axis] - (kernel - 1) * dilation - 1) // stride + 1
        starts = [cell * dilation for cell in range(kernel)]
        parts = [
            slice_axes(b, x, {axis: (start, start + (count - 1) * stride + 1, stride)}) for start in starts
        ]
        x = reduce(lambda first, second: b(name, first, second), parts)
    return x


@handles("AveragePool")
def average_pool(c: Call) -> Tensor:
    b = c.b
    g, ends = window_of(c)
    x = b.channels_last(c[0])
    plain = set(g.dilations) == {1} and len(g.kernel) < 3 and not reaches_beyond(ends)
    padding = circle_padding(c.shape()[2:], g)
    counts_pads = bool(c.attr("count_include_pad", 0))
    if plain and padding is not None and (padding is Padding.VALID or not counts_pads):
        return b.channels_first(pooled(b, x, "AVERAGE_POOL_2D", g, padding))
    pads = [(p[0] + e[0], p[1] + e[1]) for p, e in zip(g.pads, ends, strict=True)]
    if is_open(c.shape()[2:]):
        return b.channels_first(_average_over_open(c, padded(b, x, pads), g, ends, counts_pads))
    counts = divisors(c, g, ends, counts_pads)
    x = padded(b, x, pads)
    cells = prod(g.kernel)
    if set(g.dilations) == {1} and len(g.kernel) < 3:
        y = pooled(b, x, "AVERAGE_POOL_2D", g, Padding.VALID)
        factor = cells / counts
    else:
        y, factor = separable(b, x, g, "ADD"), 1 / counts
    if np.all(factor == 1):
        return b.channels_first(y)
    return b.channels_first(b("MUL", y, b.like(y, factor[..., None])))


def _average_over_open(
    c: Call, x: Tensor, g: Geometry, ends: tuple[tuple[int, int], ...], counts_pads: bool
) -> Tensor:
    """The sums of windows over padded x, divided by how many cells count, which a window over ones says."""
    b, spatial = c.b, c.shape()[2:]
    ones = b("FILL", b.integers((1, *spatial, 1)), b.like(x, 1))
    if counts_pads:
        counted = padded(b, padded(b, ones, g.pads, 1.0), ends)
    else:
        counted = padded(b, ones, [(p[0] + e[0], p[1] + e[1]) for p, e in zip(g.pads, ends, strict=True)])
    if set(g.dilations) == {1} and len(g.kernel) < 3:
        sums, counts = (pooled(b, t, "AVERAGE_POOL_2D", g, Padding.VALID) for t in (x, counted))
    else:
        sums, counts = (separable(b, t, g, "ADD") for t in (x, counted))
    return b("DIV", sums, counts)


def divisors(c: Call, g: Geometry, ends: tuple[tuple[int, int], ...], counts_pads: bool) -> Array:
    """How many cells of each window count; an array over the output's positions."""
    spatial = c.shape()[2:]
    per_axis = []
    for n, k, s, d, p, e in zip(spatial, g.kernel, g.strides, g.dilations, g.pads, ends, strict=True):
        total = n + sum(p) + e[1]
        counted = np.zeros(total)
        counted[(0 if counts_pads else p[0]) : (n + sum(p) if counts_pads else p[0] + n)] = 1
        positions = (total - (k - 1) * d - 1) // s + 1
        per_axis.append(
            np.array([counted[i * s : i * s + (k - 1) * d + 1 : d].sum() for i in range(positions)])
        )
    return reduce(np.multiply.outer, per_axis)


@handles("LpPool")
def lp_pool(c: Call) -> Tensor:
    b, p = c.b, float(c.attr("p", 2))
    g, ends = window_of(c)
    pads = [(q[0] + e[0], q[1] + e[1]) for q, e in zip(g.pads, ends, strict=True)]
    x = padded(b, b.channels_last(c[0]), pads)
    powers = b("SQUARE", x) if p == 2 else b("POW", b("ABS", x), b.like(x, p))
    summed = separable(b, powers, g, "ADD")
    root = b("SQRT", summed) if p == 2 else b("POW", summed, b.like(x, 1 / p))
    return b.channels_first(root)


@handles("GlobalAveragePool", "GlobalMaxPool")
def global_pool(c: Call) -> Tensor:
    name = "MEAN" if c.op == "GlobalAveragePool" else "REDUCE_MAX"
    return c.b(name, c[0], c.b.integers(range(2, c.rank())), keep_dims=True)


@handles("GlobalLpPool")
def global_lp_pool(c: Call) -> Tensor:
    b, x, p = c.b, c[0], float(c.attr("p", 2))
    powers = b("POW", b("ABS", x), b.like(x, p))
    return b("POW", b("SUM", powers, b.integers(range(2, c.rank())), keep_dims=True), b.like(x, 1 / p))


def max_pool_with_indices(c: Call, g: Geometry, ends: tuple[tuple[int, int], ...]) -> list[Tensor]:
    """Maxima and where they stand: the window's cells compared one after the other (channels last)."""
    b, shape = c.b, c.shape()
    pads = [(p[0] + e[0], p[1] + e[1]) for p, e in zip(g.pads, ends, strict=True)]
    x = padded(b, b.channels_last(c[0]), pads, lowest(c[0]))
    cells = list(np.ndindex(*g.kernel))
    positions = [(n - e) // s + 1 for n, e, s in zip(b.shape(x)[1:-1], g.extents, g.strides, strict=True)]

    def view(cell: Sizes) -> Tensor:
        offsets = [i * d for i, d in zip(cell, g.dilations, strict=True)]
        axes = enumerate(zip(offsets, positions, g.strides, strict=True), 1)
        return slice_axes(b, x, {axis: (o, o + (count - 1) * s + 1, s) for axis, (o, count, s) in axes})

    def place(cell: Sizes) -> Tensor:
        away = [i * d for i, d in zip(cell, g.dilations, strict=True)]
        offset = sum(n * step for n, step in zip(away, steps, strict=True))
        return b("ADD", first, b.reshape(b.integers([offset], np.int64), ()))

    best = view(cells[0])
    counts = b.shape(best)[1:-1]
    windows = [(n, stride, -before) for n, stride, (before, _) in zip(counts, g.strides, pads, strict=True)]
    first, steps = _places(b, shape, windows, bool(c.attr("storage_order", 0)))
    index = place(cells[0])
    for cell in cells[1:]:
        value = view(cell)
        further = b.cast(b("GREATER", value, best), DType.INT64)
        best = b("MAXIMUM", best, value)
        index = b("ADD", index, b("MUL", further, b("SUB", place(cell), index)))
    return [best, index]


def _places(
    b: Builder, shape: Sizes, windows: Sequence[tuple[int, int, int]], column_major: bool
) -> tuple[Tensor, list[int]]:
    """Where in the ONNX tensor each window begins, laid out channels last, and how far the next place of each axis is.

    `windows`: of each axis how many there are, how far apart, and where the first begins.
    """
    spatial = shape[2:]
    steps = [prod(spatial[:axis] if column_major else spatial[axis + 1 :]) for axis in range(len(spatial))]
    axes = [(shape[0], 1, 0), *windows, (shape[1], 1, 0)]
    weights = [prod(shape[1:]), *steps, prod(spatial)]
    total: Tensor | None = None
    for axis, ((count, stride, start), weight) in enumerate(zip(axes, weights, strict=True)):
        along = b("MUL", b.numbers(count, np.int64), b.constant(stride, np.int64))
        along = b("ADD", along, b.constant(start, np.int64))
        along = b("MUL", along, b.reshape(b.integers([weight], np.int64), ()))
        along = b.reshape(along, [-1 if i == axis else 1 for i in range(len(axes))])
        total = along if total is None else b("ADD", total, along)
    assert total is not None
    return total, steps
