"""Sampling at computed places: grids of an affine map, GridSample."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np

from circle_train.convert.building.builder import Builder
from circle_train.convert.building.refusal import Refusal
from circle_train.convert.building.registry import Call, handles
from circle_train.ir import DType, Tensor
from circle_train.ir.size import Size

CUBIC = -0.75
"""The cubic kernel's coefficient."""


@handles("AffineGrid", since=20)
def affine_grid(c: Call) -> Tensor:
    """theta · (x, y, …, 1) for every place of an image between -1 and 1."""
    b, declared = c.b, c.declared_shape()
    sizes = b.sizes(c[1])
    spatial = sizes[2:] if sizes is not None else declared[1:-1] if declared is not None else None
    if spatial is None:
        raise Refusal("its size is computed while running")
    if any(isinstance(n, Size) for n in spatial):
        return _open_grid(c, spatial)
    ends = [1.0 if c.attr("align_corners", 0) else 1 - 1 / n for n in spatial]
    lines = [
        np.linspace(-end, end, n) if n > 1 else np.zeros(1) for end, n in zip(ends, spatial, strict=True)
    ]
    places = np.stack([*np.meshgrid(*lines, indexing="ij")[::-1], np.ones([int(n) for n in spatial])], -1)
    flat = b.like(c[0], places.reshape(1, -1, len(spatial) + 1))
    grid = b("BATCH_MATMUL", flat, c[0], adjoint_rhs=True)
    return b.reshape(grid, (c.shape()[0], *spatial, len(spatial)))


def _open_grid(c: Call, spatial: Sequence[int]) -> Tensor:
    """The same where sizes are open: theta's columns, each times the places along its own axis."""
    b, rank = c.b, len(spatial)
    grid = b.reshape(c[0], (c.shape()[0], rank, rank + 1))
    columns = b.all("UNPACK", grid, num=rank + 1, axis=2)
    total = b.reshape(columns[-1], (c.shape()[0], *[1] * rank, rank))
    for axis, size in enumerate(spatial):
        at = b.cast(b.numbers(size), c[0].dtype)
        many = sized(b, at, size)
        if c.attr("align_corners", 0):
            steps = b("DIV", b("ADD", at, at), b("MAXIMUM", b("SUB", many, b.like(at, 1)), b.like(at, 1)))
        else:
            steps = b("DIV", b("ADD", b("ADD", at, at), b.like(at, 1)), many)
        places = b("SUB", steps, b.like(at, 1))
        along = b.reshape(places, [-1 if i == axis + 1 else 1 for i in range(rank + 2)])
        column = b.reshape(columns[rank - 1 - axis], (c.shape()[0], *[1] * rank, rank))
        total = b("ADD", total, b("MUL", along, column))
    return total


def sized(b: Builder, like: Tensor, size: int, factor: float = 1.0) -> Tensor:
    """So many times the factor, as a number of the tensor's type; computed while running where the size is open."""
    if not isinstance(size, Size):
        return b.like(like, size * factor)
    made = b.cast(b.reshape(b.integers([size]), ()), like.dtype)
    return made if factor == 1 else b("MUL", made, b.like(like, factor))


@handles("GridSample", since=16)
def grid_sample(c: Call) -> Tensor:
    b, dims = c.b, c.shape()
    spatial, places = dims[2:], c.shape(1)[1:-1]
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(c.attr("mode", "linear"), c.attr("mode", "linear"))
    x = b.reshape(b.channels_last(c[0]), (dims[0], prod(spatial), dims[1]))
    grid = b.reshape(c[1], (c.shape(1)[0], prod(places), len(spatial)))
    coordinates = b.all("UNPACK", grid, num=len(spatial), axis=2)[::-1]
    aligned, padding = bool(c.attr("align_corners", 0)), c.attr("padding_mode", "zeros")
    found = [_denormalized(b, g, n, aligned) for g, n in zip(coordinates, spatial, strict=True)]
    if mode != "cubic":
        found = [_inside(b, at, n, padding, aligned) for at, n in zip(found, spatial, strict=True)]
    around = [taps(b, at, mode) for at in found]
    total: Tensor | None = None
    for cell in product(*around):
        index, valid = _place(b, [at for at, _ in cell], spatial, padding, aligned)
        value = b("GATHER", x, index, axis=1, batch_dims=1)
        weight = valid
        for _, factor in cell:
            weight = factor if weight is None else weight if factor is None else b("MUL", weight, factor)
        if weight is not None:
            value = b("MUL", value, b.reshape(weight, (*b.shape(weight), 1)))
        total = value if total is None else b("ADD", total, value)
    assert total is not None
    return b.channels_first(b.reshape(total, (dims[0], *places, dims[1])))


def _denormalized(b: Builder, g: Tensor, size: int, aligned: bool) -> Tensor:
    """From -1 … 1 to positions of elements."""
    scale, shift = sized(b, g, size - 1 if aligned else size, 0.5), sized(b, g, size - 1, 0.5)
    return b("ADD", b("MUL", g, scale), shift)


def _inside(b: Builder, at: Tensor, size: int, padding: str, aligned: bool) -> Tensor:
    """Positions outside brought back, by the border or by mirrors."""
    if padding == "reflection":
        low, span = (0.0, size - 1) if aligned else (-0.5, size)
        if not isinstance(span, Size) and span == 0:
            return b("MUL", at, b.like(at, 0))
        away, around = b("ABS", b("SUB", at, b.like(at, low))), sized(b, at, span, 2.0)
        rest = b("FLOOR_MOD", away, around)
        at = b("ADD", b("MINIMUM", rest, b("SUB", around, rest)), b.like(at, low))
    if padding in ("border", "reflection"):
        return b("MINIMUM", b("MAXIMUM", at, b.like(at, 0)), sized(b, at, size - 1))
    return at


def taps(b: Builder, at: Tensor, mode: str, a: float = CUBIC) -> list[tuple[Tensor, Tensor | None]]:
    """Whole positions around one, with their weights; `a` is the cubic kernel's coefficient."""
    if mode == "nearest":
        return [(b("ROUND", at), None)]
    start = b("FLOOR", at)
    t = b("SUB", at, start)
    if mode == "linear":
        return [(start, b("SUB", b.like(at, 1), t)), (b("ADD", start, b.like(at, 1)), t)]
    if mode != "cubic":
        raise Refusal(f"its mode '{mode}' is unknown")
    distances = [b("ADD", t, b.like(at, 1)), t, b("SUB", b.like(at, 1), t), b("SUB", b.like(at, 2), t)]
    weights = [_cubic(b, d, outer, a) for d, outer in zip(distances, (True, False, False, True), strict=True)]
    return [(b("ADD", start, b.like(at, step - 1)), weight) for step, weight in enumerate(weights)]


def _cubic(b: Builder, d: Tensor, outer: bool, a: float) -> Tensor:
    """The cubic kernel at a distance below 1, or between 1 and 2; Horner's rule."""
    coefficients = (a, -5 * a, 8 * a, -4 * a) if outer else (a + 2, -(a + 3), 0.0, 1.0)
    value = b.like(d, coefficients[0])
    for coefficient in coefficients[1:]:
        value = b("ADD", b("MUL", value, d), b.like(d, coefficient))
    return value


def _place(
    b: Builder, positions: Sequence[Tensor], spatial: Sequence[int], padding: str, aligned: bool
) -> tuple[Tensor, Tensor | None]:
    """The element's index among all of an image, and 1 where it exists (None: always)."""
    index: Tensor | None = None
    valid: Tensor | None = None
    for at, size in zip(positions, spatial, strict=True):
        if padding != "zeros":
            inside = b("ROUND", _inside(b, at, size, padding, aligned))
        else:
            inside = b("MINIMUM", b("MAXIMUM", at, b.like(at, 0)), sized(b, at, size - 1))
            here = b.cast(b("EQUAL", inside, at), at.dtype)
            valid = here if valid is None else b("MUL", valid, here)
        whole = b.cast(inside, DType.INT32)
        index = whole if index is None else b("ADD", b("MUL", index, sized(b, whole, size)), whole)
    assert index is not None
    return index, valid
