"""Parts named by coordinates: flat places first, then as rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from circle_train.backends.native.binders.chain import chain
from circle_train.backends.native.binders.places.index import INDEX_TYPES, gathered, scattered
from circle_train.backends.native.binders.update import gradient_only
from circle_train.backends.native.engine import abi
from circle_train.backends.native.engine.abi import ChainOp, Kernel
from circle_train.backends.native.engine.binding import (
    Calls,
    Values,
    binds,
    binds_gradient,
    call,
    copied,
    floats,
    pointer,
    sizes,
)
from circle_train.backends.native.engine.step import Call
from circle_train.ir.tensor_type import Array
from circle_train.ops.internal.gather_from_end import GatherFromEnd
from circle_train.ops.internal.gradient import Gradient
from circle_train.ops.numeric.segment import SegmentSum, UnsortedSegmentSum
from circle_train.ops.shapes.index import Gather, GatherNd, OneHot, ScatterNd


def _flat(
    coordinates: Array, extents: Sequence[int], group: int = 0, drops: bool = False
) -> tuple[list[Call], Array] | None:
    """The call that makes flat places of coordinates, and where these are."""
    fits = coordinates.dtype in INDEX_TYPES and coordinates.flags.c_contiguous and prod(extents) < 1 << 31
    if not fits or not extents or not coordinates.size:
        return None
    count = coordinates.size // len(extents)
    places = np.empty(count, np.int32)
    args = abi.FlatIndexArgs(
        pointer(coordinates), pointer(places), sizes(extents), count, group, len(extents), coordinates.itemsize,
        wraps=group > 0, drops=drops,
    )  # fmt: skip
    return [call(Kernel.FLAT_INDEX, args, coordinates, places)], places


def _found(table: Array, indices: Array, y: Array) -> Calls:
    """y = the parts of the table that the coordinates name."""
    depth = indices.shape[-1]
    flat = _flat(indices, table.shape[:depth]) if floats(table, y) else None
    return flat and _together(flat[0], gathered(_rows(table, depth), flat[1], 0, y))


def _put(parts: Array, indices: Array, out: Array) -> Calls:
    """Zeros with the parts added where the coordinates say."""
    depth = indices.shape[-1]
    flat = _flat(indices, out.shape[:depth]) if floats(parts, out) else None
    shape = _rows(out, depth).shape
    return flat and _together(flat[0], scattered(parts, flat[1], shape, 0, gradient_only(out), (out,)))


def _together(first: list[Call], then: Calls) -> Calls:
    return None if then is None else [*first, *then]


def _rows(table: Array, depth: int) -> Array:
    return table.reshape(prod(table.shape[:depth]), prod(table.shape[depth:]))


@binds(GatherNd)
def gather_nd(op: GatherNd, inputs: Values, outputs: Sequence[Array]) -> Calls:
    return _found(inputs[0], inputs[1], outputs[0])


@binds_gradient("table", GatherNd)
def gather_nd_gradient(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    return _put(given["dy"], given["indices"], out)


@binds(ScatterNd)
def scatter_nd(op: ScatterNd, inputs: Values, outputs: Sequence[Array]) -> Calls:
    return _put(inputs[1], inputs[0], outputs[0])


@binds_gradient("updates", ScatterNd)
def scatter_nd_gradient(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    return _found(given["dy"], given["indices"], out)


@binds(SegmentSum)
def segment_sum(op: SegmentSum, inputs: Values, outputs: Sequence[Array]) -> Calls:
    x, ids = inputs
    return (
        scattered(x, ids, outputs[0].shape, 0, gradient_only(outputs[0]), (outputs[0],))
        if floats(x)
        else None
    )


@binds_gradient("x", SegmentSum)
def segment_sum_gradient(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    return gathered(given["dy"], given["ids"], 0, out)


@binds(UnsortedSegmentSum)
def unsorted_segment_sum(op: UnsortedSegmentSum, inputs: Values, outputs: Sequence[Array]) -> Calls:
    """What belongs to no segment goes to one behind the last, which is left out."""
    (x, ids, _), total = inputs, outputs[0]
    flat = _flat(ids, total.shape[:1], drops=True) if floats(x, total) and x.size else None
    if flat is None:
        return None
    more = np.empty((len(total) + 1, *total.shape[1:]), np.float32)
    added = scattered(x, flat[1], more.shape, 0, gradient_only(more), (more,))
    return None if added is None else [*flat[0], *added, *copied(more[:-1], total)]


@binds(Gather, GatherFromEnd)
def gather(op: Gather | GatherFromEnd, inputs: Values, outputs: Sequence[Array]) -> Calls:
    table, indices = inputs
    if not getattr(op, "batch_dims", 0):
        return gathered(table, indices, op.axis % table.ndim, outputs[0])
    found = _of_each(op, table, indices)
    return found and _together(found[0], gathered(found[2], found[1], 0, outputs[0]))


@binds_gradient("table", Gather, GatherFromEnd)
def gather_gradient(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    of, dy, indices = op.of, given["dy"], given["indices"]
    assert isinstance(of, (Gather, GatherFromEnd))
    update, keep = gradient_only(out), (out,)
    if not getattr(of, "batch_dims", 0):
        return scattered(dy, indices, out.shape, of.axis % out.ndim, update, keep)
    found = _of_each(of, out, indices)
    return found and _together(found[0], scattered(dy, found[1], found[2].shape, 0, update, keep))


def _of_each(op: Any, table: Array, indices: Array) -> tuple[list[Call], Array, Array] | None:
    """Samples with tables of their own, as one table: the call that makes places in it, these, and its rows."""
    batch = op.batch(indices.ndim)
    if op.axis % table.ndim != batch or not floats(table):
        return None
    samples = prod(table.shape[:batch])
    flat = _flat(indices, table.shape[batch : batch + 1], max(indices.size // max(samples, 1), 1))
    return flat and (*flat, _rows(table, batch + 1))


@binds(OneHot)
def one_hot(op: OneHot, inputs: Values, outputs: Sequence[Array]) -> Calls:
    """`on` where the index is the place along the new axis."""
    indices, _, on, off = inputs
    if not floats(on, off, outputs[0]) or not outputs[0].size:
        return None
    axis = op.axis % (indices.ndim + 1)
    count = outputs[0].shape[axis]
    if count > 1 << 24:
        return None
    places = np.arange(count, dtype=np.float32).reshape(-1, *[1] * (indices.ndim - axis))
    spread = np.expand_dims(indices, axis)
    return chain(
        lambda b, i, p, on, off: b.emit(ChainOp.SELECT, b.emit(ChainOp.EQUAL, i, p), on, off),
        [spread, places, on.reshape(()), off.reshape(())],
        outputs[0],
    )
