"""Slices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circle_train.convert.building.builder import Builder
from circle_train.convert.building.refusal import Refusal
from circle_train.convert.building.registry import Call, front, handles
from circle_train.convert.handlers.window import Range, cut
from circle_train.ir import DType, Tensor
from circle_train.ir.size import Size, is_open

FAR = 10**9
"""Beyond the end of any axis."""


@handles("Slice", since=1)
def slice_attributes(c: Call) -> Tensor:
    starts, ends = list(c.required("starts")), list(c.required("ends"))
    return sliced(c, starts, ends, c.attr("axes") or range(len(starts)), [1] * len(starts))


@handles("Slice", since=10)
def slice_inputs(c: Call) -> Tensor:
    b = c.b
    operands = [b.sizes(c.optional(i)) if c.optional(i) is not None else None for i in (1, 2, 3, 4)]
    known = all(c.optional(i + 1) is None or operand is not None for i, operand in enumerate(operands))
    if not known:
        return _slice_at_run_time(c)
    starts, ends, axes, steps = operands
    assert starts is not None and ends is not None
    return sliced(
        c, starts, ends, axes if axes is not None else range(len(starts)), steps or [1] * len(starts)
    )


def sliced(
    c: Call, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int], steps: Sequence[int]
) -> Tensor:
    """STRIDED_SLICE with bounds clamped to the axes, in every world alike or refused."""
    b, dims = c.b, c.shape()
    ranges = {}
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        place = front(int(axis), len(dims))
        bounds = _bounds(start, end, int(step), dims[place])
        if bounds is not None:
            ranges[place] = bounds
    return cut(b, c[0], ranges) if ranges else c[0]


def _bounds(start: int, end: int, step: int, size: int) -> Range | None:
    """What the slice means, as Circle would be told; None for the whole axis."""
    if not is_open((start, end, size)):
        first, last, _ = slice(start, end, step).indices(size)
        if (first, last, step) == (0, size, 1):
            return None
        return first, None if last == -1 or (step > 0 and last == size and first < size) else last, step
    first, last = (_from_an_end(place, size) for place in (start, end))
    if last == (FAR if step > 0 else -FAR) or (
        isinstance(size, int) and not isinstance(last, Size) and last >= size
    ):
        return None if step == 1 and isinstance(first, int) and first == 0 else (first, None, step)
    return first, last, step


def _from_an_end(place: int, size: int) -> int:
    """A bound, which Circle understands as ONNX does: a number where it is one, or differs from the size by one."""
    if not isinstance(place, Size):
        return min(max(place, -FAR), FAR)
    if place.low is not None and place.low >= 0 and isinstance(from_end := place - size, int):
        return FAR if from_end >= 0 else from_end
    return place


def _slice_at_run_time(c: Call) -> Tensor:
    """Bounds that are inputs: the declared output says how many elements, the start which; else both bounds do."""
    b, declared = c.b, c.declared_shape()
    axes_value = b.sizes(c.optional(3)) if c.optional(3) is not None else None
    count = c[1].type.size
    if c.optional(3) is not None and axes_value is None:
        raise Refusal("its axes are computed while running")
    axes = [front(int(a), c.rank()) for a in axes_value] if axes_value is not None else list(range(count))
    x = c[0]
    if declared is None:
        for position, axis in enumerate(axes):
            x = b("GATHER", x, _range_of(c, x, position, axis), axis=axis, batch_dims=0)
        return x
    dims = c.shape()
    for position, axis in enumerate(axes):
        start, step = _entry(b, c[1], position), b.constant(1, np.int32)
        if c.optional(4) is not None:
            step = _entry(b, c[4], position)
        n = dims[axis]
        start = b("SELECT_V2", b("LESS", start, b.like(start, 0)), b("ADD", start, b.like(start, n)), start)
        backward = b("LESS", step, b.like(step, 0))
        most = b("SELECT_V2", backward, b.like(start, n - 1), b.like(start, n))
        start = b("MINIMUM", b("MAXIMUM", start, b.like(start, 0)), most)
        steps = b("MUL", b.constant(np.arange(declared[axis]), np.int32), step)
        x = b("GATHER", x, b("ADD", steps, start), axis=axis, batch_dims=0)
    return x


def _range_of(c: Call, x: Tensor, position: int, axis: int) -> Tensor:
    """The places along an axis that bounds name which are computed while running."""
    b = c.b
    start, end = _entry(b, c[1], position), _entry(b, c[2], position)
    step = b.constant(1, np.int32) if c.optional(4) is None else _entry(b, c[4], position)
    sizes = b("SHAPE", x, out_type=DType.INT32)
    size = b.reshape(b("SLICE", sizes, b.integers([axis]), b.integers([1])), ())
    zero, one = b.constant(0, np.int32), b.constant(1, np.int32)
    is_back = b("LESS", step, zero)
    least = b("SELECT_V2", is_back, b.constant(-1, np.int32), zero)
    most = b("SELECT_V2", is_back, b("SUB", size, one), size)

    def within(bound: Tensor, low: Tensor) -> Tensor:
        placed = b("SELECT_V2", b("LESS", bound, zero), b("ADD", bound, size), bound)
        return b("MINIMUM", b("MAXIMUM", placed, low), most)

    return b("RANGE", within(start, zero), within(end, least), step)


def _entry(b: Builder, vector: Tensor, position: int) -> Tensor:
    """One element of a vector as an int32 scalar; huge ones mean the end of an axis."""
    limit = 1 << 30
    wide = b("MINIMUM", b("MAXIMUM", vector, b.like(vector, -limit)), b.like(vector, limit))
    narrow = b.cast(wide, DType.INT32)
    return b.reshape(b("SLICE", narrow, b.integers([position]), b.integers([1])), ())
