"""What convolutions and pools share: attributes per spatial axis, and how ONNX's pads become Circle's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from circle_train.convert.building.builder import Builder
from circle_train.convert.building.refusal import Refusal
from circle_train.convert.building.registry import Call
from circle_train.convert.building.sizes import worlds
from circle_train.ir import Tensor
from circle_train.ops.attributes import Padding

Sizes = tuple[int, ...]
Pads = tuple[tuple[int, int], ...]


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
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    auto = c.attr("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        pads = tuple(same_pads(n, e, s, auto) for n, e, s in zip(spatial, extents, strides, strict=True))
    elif auto == "VALID":
        pads = ((0, 0),) * rank
    else:
        flat = list(c.attr("pads") or (0,) * 2 * rank)
        pads = tuple((int(flat[i]), int(flat[i + rank])) for i in range(rank))
    return Geometry(kernel, strides, dilations, pads)


def same_pads(size: int, extent: int, stride: int, auto: str) -> tuple[int, int]:
    """Pads that keep ceil(size / stride) positions; equal for all symbolic sizes or refused."""
    amounts = {_same_total(n, extent, stride) for n in worlds(size, 1 + len(getattr(size, "others", ())))}
    if len(amounts) > 1:
        raise Refusal(f"auto_pad {auto} depends on a symbolic size")
    total = amounts.pop()
    small, large = total // 2, total - total // 2
    return (small, large) if auto == "SAME_UPPER" else (large, small)


def _same_total(size: int, extent: int, stride: int) -> int:
    return max((-(-size // stride) - 1) * stride + extent - size, 0)


def circle_padding(spatial: Sizes, g: Geometry) -> Padding | None:
    """SAME or VALID where Circle's rule gives these pads for every symbolic size; else None."""
    if not any(any(pair) for pair in g.pads):
        return Padding.VALID
    for size, extent, stride, pads in zip(spatial, g.extents, g.strides, g.pads, strict=True):
        for n in worlds(size, 1 + len(getattr(size, "others", ()))):
            if Padding.SAME.amounts(n, extent, stride) != pads:
                return None
    return Padding.SAME


def padded(
    b: Builder, x: Tensor, pads: Sequence[tuple[int, int]], value: float = 0.0, first: int = 1
) -> Tensor:
    """PAD around the axes from `first` on; negative pads cut off."""
    rank = x.type.rank
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


def cropped(b: Builder, x: Tensor, cuts: Sequence[tuple[int, int]]) -> Tensor:
    """The tensor without so many entries at the start and end of each axis."""
    if not any(any(pair) for pair in cuts):
        return x
    return slice_axes(b, x, {axis: (a, -z, 1) for axis, (a, z) in enumerate(cuts) if a or z})


def slice_axes(b: Builder, x: Tensor, ranges: dict[int, tuple[int, int, int]]) -> Tensor:
    """STRIDED_SLICE of some axes: (start, stop, step); a stop of 0 with a forward step means the end."""
    rank = x.type.rank
    begin, end, step, begin_mask, end_mask = [0] * rank, [0] * rank, [1] * rank, 0, 0
    for axis in range(rank):
        if axis not in ranges:
            begin_mask |= 1 << axis
            end_mask |= 1 << axis
            continue
        begin[axis], end[axis], step[axis] = ranges[axis]
        if end[axis] == 0 and step[axis] > 0:
            end_mask |= 1 << axis
    operands = [b.integers(values) for values in (begin, end, step)]
    return b("STRIDED_SLICE", x, *operands, begin_mask=begin_mask, end_mask=end_mask)
