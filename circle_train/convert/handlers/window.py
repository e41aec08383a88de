"""What convolutions and pools share: attributes per spatial axis, and how ONNX's pads become Circle's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from circle_train.convert.building.builder import Builder
from circle_train.convert.building.refusal import Refusal
from circle_train.convert.building.registry import Call
from circle_train.ir import Tensor
from circle_train.ir.size import is_open, largest
from circle_train.ops.attributes import Padding

Sizes = tuple[int, ...]
Pads = tuple[tuple[int, int], ...]
Range = tuple[int, int | None, int]


WIDEST = 1 << 24
"""Cells along a spatial axis, and in its padding."""


@dataclass(frozen=True)
class Geometry:
    """A window over the spatial axes: one entry per axis."""

    kernel: Sizes
    strides: Sizes
    dilations: Sizes
    pads: Pads

    @property
    def extents(self) -> Sizes:
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))


def geometry(c: Call, spatial: Sizes, kernel: Sizes) -> Geometry:
    """The node's window; auto_pad resolved."""
    rank = len(spatial)
    strides = tuple(c.attr("strides") or (1,) * rank)
    dilations = tuple(c.attr("dilations") or (1,) * rank)
    if not len(kernel) == len(strides) == len(dilations) == rank:
        raise Refusal(f"kernel {kernel}, strides {strides}, dilations {dilations} for {rank} spatial axes")
    if min((1, *kernel, *strides, *dilations)) < 1:
        raise Refusal(f"kernel {kernel}, strides {strides}, dilations {dilations}, expected sizes from 1")
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    auto = c.attr("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        if -1 in spatial:
            raise Refusal(f"{auto} pads by sizes that are known only while running")
        pads = tuple(same_pads(n, e, s, auto) for n, e, s in zip(spatial, extents, strides, strict=True))
    elif auto == "VALID":
        pads = ((0, 0),) * rank
    else:
        flat = list(c.attr("pads") or (0,) * 2 * rank)
        pads = tuple((int(flat[i]), int(flat[i + rank])) for i in range(rank))
    if any(isinstance(size, int) and abs(size) > WIDEST for pair in (*pads, spatial) for size in pair):
        raise Refusal(f"sizes {spatial} with pads {pads}, expected no more than {WIDEST} along an axis")
    return Geometry(kernel, strides, dilations, pads)


def same_pads(size: int, extent: int, stride: int, auto: str) -> tuple[int, int]:
    """Pads that keep ceil(size / stride) positions."""
    small, large = Padding.SAME.amounts(size, extent, stride)
    return (small, large) if auto == "SAME_UPPER" else (large, small)


def circle_padding(spatial: Sizes, g: Geometry) -> Padding | None:
    """SAME or VALID where Circle's rule gives these pads for every size that is open or -1; else None."""
    if all(pair == (0, 0) for pair in g.pads):
        return Padding.VALID
    if -1 in spatial:
        return None
    for size, extent, stride, pads in zip(spatial, g.extents, g.strides, g.pads, strict=True):
        if Padding.SAME.amounts(size, extent, stride) != pads:
            return None
    return Padding.SAME


def padded(
    b: Builder, x: Tensor, pads: Sequence[tuple[int, int]], value: float = 0.0, first: int = 1
) -> Tensor:
    """PAD around the axes from `first` on; negative pads cut off."""
    rank = x.type.rank
    if is_open(amount for pair in pads for amount in pair):
        return _padded_at_run_time(b, x, pads, value, first)
    table = np.zeros((rank, 2), np.int32)
    table[first : first + len(pads)] = np.maximum(pads, 0) if len(pads) else 0
    cuts = {first + i: (max(-a, 0), max(-z, 0)) for i, (a, z) in enumerate(pads) if a < 0 or z < 0}
    if cuts:
        x = cropped(b, x, [cuts.get(axis, (0, 0)) for axis in range(rank)])
    if not table.any():
        return x
    if value == 0:
        return b("PAD", x, b.constant(table))
    return b("PADV2", x, b.constant(table), b.like(x, value))


def _padded_at_run_time(
    b: Builder, x: Tensor, pads: Sequence[tuple[int, int]], value: float, first: int
) -> Tensor:
    """PAD by amounts that depend on open sizes; what is negative cuts off."""
    rank = x.type.rank
    flat = [0] * (2 * rank)
    flat[2 * first : 2 * (first + len(pads))] = [amount for pair in pads for amount in pair]
    ranges: dict[int, Range] = {}
    for axis, size in enumerate(b.shape(x)):
        start, end = (largest(-amount, 0) for amount in flat[2 * axis : 2 * axis + 2])
        if start != 0 or end != 0:
            ranges[axis] = (start, size - end, 1)
    x = cut(b, x, ranges) if ranges else x
    flat = [largest(amount, 0) for amount in flat]
    table = b.reshape(b.integers(flat), (rank, 2))
    return b("PAD", x, table) if value == 0 else b("PADV2", x, table, b.like(x, value))


def cropped(b: Builder, x: Tensor, cuts: Sequence[tuple[int, int]]) -> Tensor:
    """The tensor without so many entries at the start and end of each axis."""
    if not any(any(pair) for pair in cuts):
        return x
    return slice_axes(b, x, {axis: (a, -z, 1) for axis, (a, z) in enumerate(cuts) if a or z})


def slice_axes(b: Builder, x: Tensor, ranges: dict[int, tuple[int, int, int]]) -> Tensor:
    """STRIDED_SLICE of some axes: (start, stop, step); a stop of 0 with a forward step means the end."""
    wanted: dict[int, Range] = {
        axis: (start, None if isinstance(stop, int) and stop == 0 and step > 0 else stop, step)
        for axis, (start, stop, step) in ranges.items()
    }
    return cut(b, x, wanted)


def cut(b: Builder, x: Tensor, ranges: dict[int, Range]) -> Tensor:
    """STRIDED_SLICE of some axes: (start, stop, step); no stop means as far as there is anything."""
    rank = x.type.rank
    begin, end, step, begin_mask, end_mask = [0] * rank, [0] * rank, [1] * rank, 0, 0
    for axis in range(rank):
        if axis not in ranges:
            begin_mask |= 1 << axis
            end_mask |= 1 << axis
            continue
        begin[axis], stop, step[axis] = ranges[axis]
        end[axis] = 0 if stop is None else stop
        end_mask |= (stop is None) << axis
    operands = [b.integers(values) for values in (begin, end, step)]
    return b("STRIDED_SLICE", x, *operands, begin_mask=begin_mask, end_mask=end_mask)
