"""What only moves elements: numpy says where they go, one strided copy takes them there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from circle_train.backends.native.engine import abi
from circle_train.backends.native.engine.abi import MAX_RANK, Kernel
from circle_train.backends.native.engine.binding import (
    Calls,
    Values,
    binds,
    binds_gradient,
    call,
    pointer,
    sizes,
)
from circle_train.backends.native.engine.step import Call
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import Activation
from circle_train.ops.base import Op
from circle_train.ops.internal.gradient import Gradient, Zeros
from circle_train.ops.shapes import join, pad, shape, slice as slices

WORDS = (1, 2, 4, 8)


def strided_copy(source: Array, target: Array) -> list[Call] | None:
    """Copy between two layouts of one shape; the source may be broadcast."""
    if source.shape != target.shape or source.dtype != target.dtype or source.itemsize not in WORDS:
        return None
    extents, from_steps, to_steps = _merged(source, target)
    if len(extents) > MAX_RANK:
        return None
    args = abi.CopyArgs(
        pointer(source),
        pointer(target),
        sizes(extents),
        sizes(from_steps),
        sizes(to_steps),
        len(extents),
        source.itemsize,
    )
    return [call(Kernel.COPY, args, source, target)]


def _merged(source: Array, target: Array) -> tuple[list[int], list[int], list[int]]:
    """Extents and strides in elements, neighbouring axes as one where both layouts allow it."""
    extents: list[int] = []
    steps: tuple[list[int], list[int]] = ([], [])
    size = source.itemsize
    for n, a, b in zip(source.shape, source.strides, target.strides, strict=True):
        if n == 1:
            continue
        if extents and steps[0][-1] == a // size * n and steps[1][-1] == b // size * n:
            extents[-1] *= n
            steps[0][-1], steps[1][-1] = a // size, b // size
        else:
            extents.append(n)
            steps[0].append(a // size)
            steps[1].append(b // size)
    return (extents, *steps) if extents else ([1], [1], [1])


def fill(target: Array, value: Any = 0) -> list[Call] | None:
    """Every element the same."""
    if target.itemsize != 4:
        return None
    bits = int(np.array(value, target.dtype).view(np.int32))
    return [call(Kernel.FILL, abi.FillArgs(pointer(target), target.size, bits), target)]


def joined(*groups: list[Call] | None) -> Calls:
    """All the calls, or None if one group is not covered."""
    made: list[Call] = []
    for group in groups:
        if group is None:
            return None
        made += group
    return made


def _moves(pairs: Sequence[tuple[Array, Array]], sources: Sequence[Any]) -> Calls:
    """Copies of views into outputs; numpy must not have copied already."""
    arrays = [a for a in sources if isinstance(a, np.ndarray)]
    if not all(view.size == 0 or any(np.may_share_memory(view, a) for a in arrays) for view, _ in pairs):
        return None
    return joined(*(strided_copy(view, target) for view, target in pairs if target.size))


@binds(shape.Transpose, shape.BroadcastTo, slices.Slice, join.Split, join.SplitV)
def view(op: Op, inputs: Values, outputs: Sequence[Array]) -> Calls:
    """The op's own numpy gives a view of the input."""
    results = op.forward(*inputs)
    views = [results] if isinstance(results, np.ndarray) else list(results)
    return _moves(list(zip(views, outputs, strict=True)), inputs)


@binds(slices.StridedSlice)
def strided_slice(op: slices.StridedSlice, inputs: Values, outputs: Sequence[Array]) -> Calls:
    x, *bounds = inputs
    where = (*op.layout(x.ndim, *bounds), Ellipsis)  # a view also where every axis is an index
    return strided_copy(x[where], outputs[0])


@binds_gradient("x", shape.Transpose, pad.Pad, pad.PadV2)
@binds_gradient("xs", join.Concatenation)
def view_of_gradient(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    method = getattr(op.of, op.of.gradients[op.of.input_name(op.wrt)].method)
    return _moves([(np.asarray(method(**given)), out)], [given["dy"]])


@binds(join.Concatenation)
def concatenation(op: join.Concatenation, inputs: Values, outputs: Sequence[Array]) -> Calls:
    if op.activation is not Activation.NONE:
        return None
    ends = np.cumsum([x.shape[op.axis] for x in inputs])[:-1].tolist()
    parts = np.split(outputs[0], ends, axis=op.axis)
    return joined(*(strided_copy(x, part) for x, part in zip(inputs, parts, strict=True) if x.size))


@binds(join.Pack)
def pack(op: join.Pack, inputs: Values, outputs: Sequence[Array]) -> Calls:
    moved = np.moveaxis(outputs[0], op.axis, 0)
    parts = [moved[i, ...] for i in range(len(moved))]
    return joined(*(strided_copy(x, part) for x, part in zip(inputs, parts, strict=True) if x.size))


@binds(pad.Pad)
def padded(op: pad.Pad, inputs: Values, outputs: Sequence[Array]) -> Calls:
    x, paddings = inputs
    return joined(fill(outputs[0]), strided_copy(x, outputs[0][op.inside(paddings, x.shape)]))


@binds_gradient("x", slices.Slice)
def slice_gradient(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    assert isinstance(op.of, slices.Slice)
    where = op.of.where(given["begin"], given["size"])
    return joined(fill(out), strided_copy(given["dy"], out[where]))


@binds_gradient("x", slices.StridedSlice)
def strided_slice_gradient(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    assert isinstance(op.of, slices.StridedSlice)
    layout = op.of.layout(out.ndim, given["begin"], given["end"], given["strides"])
    where = (*layout, Ellipsis)  # a view also where every axis is an index
    return joined(fill(out), strided_copy(given["dy"], out[where]))


@binds_gradient("x", join.Split, join.SplitV)
def split_gradient(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    axis, dys = int(given["axis"].reshape(())), given["dys"]
    ends = np.cumsum([dy.shape[axis] for dy in dys])[:-1].tolist()
    return joined(
        *(strided_copy(dy, part) for dy, part in zip(dys, np.split(out, ends, axis=axis), strict=True))
    )


@binds(Zeros)
def zeros(op: Zeros, inputs: Values, outputs: Sequence[Array]) -> Calls:
    return fill(outputs[0])
