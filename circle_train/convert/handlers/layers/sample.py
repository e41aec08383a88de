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
    if spatial is None or any(isinstance(n, Size) for n in spatial):
        raise Refusal("its size is computed while running")
    ends = [1.0 if c.attr("align_corners", 0) else 1 - 1 / n for n in spatial]
    lines = [
        np.linspace(-end, end, n) if n > 1 else np.zeros(1) for end, n in zip(ends, spatial, strict=True)
    ]
    places = np.stack([*np.meshgrid(*lines, indexing="ij")[::-1], np.ones([int(n) for n in spatial])], -1)
    flat = b.like(c[0], places.reshape(1, -1, len(spatial) + 1))
    grid = b("BATCH_MATMUL", flat, c[0], adjoint_rhs=True)
    return b.reshape(grid, (c.shape()[0], *spatial, len(spatial)))


@handles("GridSample", since=16)
def grid_sample(c: Call) -> Tensor:
    b, dims = c.b, c.shape()
    spatial, places = dims[2:], c.shape(1)[1:-1]
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(c.attr("mode", "linear"), c.attr("mode", "linear"))
    if any(isinstance(n, Size) for n in (*spatial, *places)):
        raise Refusal("it samples over a symbolic size")
    x = b.reshape(b.channels_last(c[0]), (dims[0], prod(spatial), dims[1]))
    grid = b.reshape(c[1], (c.shape(1)[0], prod(places), len(spatial)))
    coordinates = b.all("UNPACK", grid, num=len(spatial), axis=2)[::-1]
    aligned, padding = bool(c.attr("align_corners", 0)), c.attr("padding_mode", "zeros")
    found = [_denormalized(b, g, n, aligned) for g, n in zip(coordinates, spatial, strict=True)]
    if mode != "cubic":
        found = [_inside(b, at, n, padding, aligned) for at, n in zip(found, spatial, strict=True)]
    taps = [_taps(b, at, mode) for at in found]
    total: Tensor | None = None
    for cell in product(*taps):
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
    scale, shift = ((size - 1) / 2, (size - 1) / 2) if aligned else (size / 2, (size - 1) / 2)
    return b("ADD", b("MUL", g, b.like(g, scale)), b.like(g, shift))


def _inside(b: Builder, at: Tensor, size: int, padding: str, aligned: bool) -> Tensor:
    """Positions outside brought back, by the border or by mirrors."""
    if padding == "reflection":
        low, span = (0.0, float(size - 1)) if aligned else (-0.5, float(size))
        if span == 0:
            return b("MUL", at, b.like(at, 0))
        away = b("ABS", b("SUB", at, b.like(at, low)))
        rest = b("FLOOR_MOD", away, b.like(at, 2 * span))
        at = b("ADD", b("MINIMUM", rest, b("SUB", b.like(at, 2 * span), rest)), b.like(at, low))
    if padding in ("border", "reflection"):
        return b("MINIMUM", b("MAXIMUM", at, b.like(at, 0)), b.like(at, size - 1))
    return at


def _taps(b: Builder, at: Tensor, mode: str) -> list[tuple[Tensor, Tensor | None]]:
    """Whole positions around one, with their weights."""
    if mode == "nearest":
        return [(b("ROUND", at), None)]
    start = b("FLOOR", at)
    t = b("SUB", at, start)
    if mode == "linear":
        return [(start, b("SUB", b.like(at, 1), t)), (b("ADD", start, b.like(at, 1)), t)]
    if mode != "cubic":
        raise Refusal(f"its mode '{mode}' is unknown")
    distances = [b("ADD", t, b.like(at, 1)), t, b("SUB", b.like(at, 1), t), b("SUB", b.like(at, 2), t)]
    weights = [_cubic(b, d, outer) for d, outer in zip(distances, (True, False, False, True), strict=True)]
    return [(b("ADD", start, b.like(at, step - 1)), weight) for step, weight in enumerate(weights)]


def _cubic(b: Builder, d: Tensor, outer: bool) -> Tensor:
    """The cubic kernel at a distance below 1, or between 1 and 2; Horner's rule."""
    a = CUBIC
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
            inside = b("MINIMUM", b("MAXIMUM", at, b.like(at, 0)), b.like(at, size - 1))
            here = b.cast(b("EQUAL", inside, at), at.dtype)
            valid = here if valid is None else b("MUL", valid, here)
        whole = b.cast(inside, DType.INT32)
        index = whole if index is None else b("ADD", b("MUL", index, b.like(whole, size)), whole)
    assert index is not None
    return index, valid
