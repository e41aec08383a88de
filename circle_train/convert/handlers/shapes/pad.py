"""Padding in all its modes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circle_train.convert.building.builder import Builder
from circle_train.convert.building.refusal import Refusal
from circle_train.convert.building.registry import Call, front, handles
from circle_train.convert.handlers.window import cropped, padded, slice_axes
from circle_train.ir import DType, Tensor
from circle_train.ir.size import Size, is_open
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import MirrorPadMode


@handles("Pad", since=2)
def pad_attributes(c: Call) -> Tensor:
    return pad_with(c, list(c.required("pads")), c.attr("value", 0.0), range(c.rank()))


@handles("Pad", since=11)
def pad(c: Call) -> Tensor:
    b, rank = c.b, c.rank()
    given = c.optional(3)
    axes = range(rank) if given is None else [front(int(a), rank) for a in c.value(3, "axes")]
    fill = c.optional(2)
    value = 0 if fill is None else b.value(fill)
    table = b.sizes(c[1])
    if table is None or value is None:
        return _pad_at_run_time(c, axes, fill)
    return pad_with(c, table, np.asarray(value).reshape(-1)[0].item() if fill is not None else 0, axes)


def _pad_at_run_time(c: Call, axes: Sequence[int], fill: Tensor | None) -> Tensor:
    """PADV2 with pads that are an input."""
    b, rank = c.b, c.rank()
    if c.attr("mode", "constant") != "constant" or c.declared_shape() is None or len(axes) != rank:
        raise Refusal("its pads are computed while running")
    if list(axes) != list(range(rank)) or any(
        n < m for n, m in zip(c.declared_shape() or (), c.shape(), strict=True)
    ):
        raise Refusal("its pads are computed while running and may be negative")
    table = b.transpose(b.reshape(b.cast(c[1], DType.INT32), (2, rank)), (1, 0))
    value = b.like(c[0], 0) if fill is None else b.reshape(fill, ())
    return b("PADV2", c[0], table, value)


@handles("CenterCropPad", since=18)
def centre_crop_pad(c: Call) -> Tensor:
    """Cut or filled with zeros on both sides alike."""
    b, dims, rank = c.b, c.shape(), c.rank()
    axes = [front(int(axis), rank) for axis in c.attr("axes") or range(rank)]
    target = b.sizes(c[1])
    if target is None and c.declared_shape() is not None:
        target = tuple((c.declared_shape() or ())[axis] for axis in axes)
    if target is None or is_open([*target, *(dims[axis] for axis in axes)]):
        raise Refusal("its sizes are computed while running")
    pads = [(0, 0)] * rank
    for axis, size in zip(axes, target, strict=True):
        more = size - dims[axis]
        before = more // 2 if more > 0 else -(-more // 2)
        pads[axis] = (before, more - before)
    return padded(b, c[0], pads, first=0)


def pad_with(c: Call, flat: Sequence[int], value: float, axes: Sequence[int]) -> Tensor:
    """PAD, PADV2 or MIRROR_PAD; edge and wrap by picking indices."""
    b, x, mode = c.b, c[0], c.attr("mode", "constant")
    half = len(flat) // 2
    pads = [(0, 0)] * c.rank()
    for position, axis in enumerate(axes):
        pads[axis] = (flat[position], flat[position + half])
    if mode == "constant":
        return padded(b, x, pads, value, first=0)
    dims = c.shape()
    if is_open(flat):
        raise Refusal(f"mode {mode} by amounts that depend on open sizes")
    inside = all(
        p >= 0 and (isinstance(n, Size) or p < n)
        for n, pair in zip(dims, pads, strict=True)
        for p in pair
        if p
    )
    if mode == "reflect" and inside:
        table = np.array(pads, np.int32)
        return b("MIRROR_PAD", x, b.constant(table), mode=MirrorPadMode.REFLECT) if table.any() else x
    for axis, (before, after) in enumerate(pads):
        if (before or after) and isinstance(dims[axis], Size) and mode == "edge":
            x = _with_edges(b, x, axis, before, after)
        elif before or after:
            x = b("GATHER", x, b.constant(_picked(dims[axis], before, after, mode)), axis=axis, batch_dims=0)
    return x


def _with_edges(b: Builder, x: Tensor, axis: int, before: int, after: int) -> Tensor:
    """The first and last entry of an open axis repeated; negative amounts cut off."""
    x = cropped(
        b, x, [(max(-before, 0), max(-after, 0)) if i == axis else (0, 0) for i in range(x.type.rank)]
    )
    times = [1] * x.type.rank
    parts = [x]
    if before > 0:
        times[axis] = before
        parts.insert(0, b("TILE", slice_axes(b, x, {axis: (0, 1, 1)}), b.integers(times)))
    if after > 0:
        times[axis] = after
        parts.append(b("TILE", slice_axes(b, x, {axis: (-1, 0, 1)}), b.integers(times)))
    return b("CONCATENATION", *parts, axis=axis) if len(parts) > 1 else x


def _picked(size: int, before: int, after: int, mode: str) -> Array:
    """Which elements a padded axis consists of."""
    if isinstance(size, Size):
        raise Refusal(f"mode {mode} over a symbolic size")
    positions = np.arange(-before, size + after)
    if mode == "edge":
        picked = np.clip(positions, 0, size - 1)
    elif mode == "wrap":
        picked = positions % size
    elif mode == "reflect":
        period = max(2 * (size - 1), 1)
        folded = positions % period
        picked = np.where(folded < size, folded, period - folded)
    else:
        raise Refusal(f"its mode '{mode}' is unknown")
    return picked.astype(np.int32)
