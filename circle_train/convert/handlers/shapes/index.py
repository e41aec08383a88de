"""Picking and placing elements by index."""

from __future__ import annotations

from math import prod

import numpy as np

from circle_train.convert.building.builder import Builder
from circle_train.convert.building.refusal import Refusal
from circle_train.convert.building.registry import Call, front, handles
from circle_train.ir import DType, Tensor
from circle_train.ir.tensor_type import Array
from circle_train.ops.base import REGISTRY
from circle_train.ops.seldom.stablehlo import combining


def counted_from_front(b: Builder, indices: Tensor, x: Tensor, axis: int) -> Tensor:
    """Negative indices count from the end of an axis of x."""
    value = b.value(indices)
    if value is not None and (value.size == 0 or value.min() >= 0):
        return indices
    if indices.dtype.numpy is not None and indices.dtype.numpy.kind == "u":
        return indices
    kind = indices.dtype.numpy
    size = b.partial_shape(x)[axis]
    length = (
        b.reshape(b.integers([size], kind), ()) if size != -1 else b.cast(_size_of(b, x, axis), indices.dtype)
    )
    return b("SELECT_V2", b("LESS", indices, b.like(indices, 0)), b("ADD", indices, length), indices)


@handles("Gather")
def gather(c: Call) -> Tensor:
    b, axis = c.b, c.axis(0)
    return b("GATHER", c[0], counted_from_front(b, c[1], c[0], axis), axis=axis, batch_dims=0)


@handles("GatherElements")
def gather_elements(c: Call) -> Tensor:
    """GATHER along the last axis, all others being batch; where their sizes differ, GATHER_ND with full indices."""
    b, axis, rank = c.b, c.axis(0), c.rank()
    indices = counted_from_front(b, c[1], c[0], axis)
    others = [[n for i, n in enumerate(b.shape(t)) if i != axis] for t in (c[0], indices)]
    if others[0] != others[1] or rank == 1:
        return b("GATHER_ND", c[0], element_places(b, indices, axis))
    order = [i for i in range(rank) if i != axis] + [axis]
    picked = b(
        "GATHER", b.transpose(c[0], order), b.transpose(indices, order), axis=rank - 1, batch_dims=rank - 1
    )
    return b.transpose(picked, [order.index(i) for i in range(rank)])


def element_places(b: Builder, indices: Tensor, axis: int) -> Tensor:
    """The full index that each element of `indices` means: along `axis` its value, elsewhere its place."""
    rank = indices.type.rank
    values = b("EXPAND_DIMS", b.cast(indices, DType.INT32), b.constant(rank, np.int32))
    columns = [values if other == axis else _along(b, values, other) for other in range(rank)]
    return columns[0] if rank == 1 else b("CONCATENATION", *columns, axis=rank)


def _along(b: Builder, like: Tensor, axis: int) -> Tensor:
    """Each element's place along one axis, in the shape of these integers."""
    if like.type.is_static:
        places = b.numbers(b.shape(like)[axis])
    else:
        places = b("RANGE", b.constant(0, np.int32), _size_of(b, like, axis), b.constant(1, np.int32))
    own = tuple(-1 if other == axis else 1 for other in range(like.type.rank))
    return b("ADD", b("RESHAPE", places, b.integers(own), new_shape=own), b("MUL", like, b.like(like, 0)))


def _size_of(b: Builder, tensor: Tensor, axis: int) -> Tensor:
    """A size that is known while running."""
    return b.reshape(b("SLICE", _sizes_while_running(b, tensor), b.integers([axis]), b.integers([1])), ())


def _sizes_while_running(b: Builder, tensor: Tensor) -> Tensor:
    return b("SHAPE", tensor, out_type=DType.INT32)


@handles("GatherND")
def gather_nd(c: Call) -> Tensor:
    b, x, batch = c.b, c[0], int(c.attr("batch_dims", 0))
    indices = c[1]
    if indices.type.shape[-1] < 0:
        raise Refusal("how many axes its indices speak of is known only while running")
    indices = _from_front(b, indices, x, batch)
    if batch:
        rank, indices = indices.type.rank, b.cast(indices, DType.INT32)
        begin, first = b.integers([0] * rank), b.integers([-1] * (rank - 1) + [1])
        like = b("SLICE", indices, begin, first)
        columns = [_along(b, like, axis) for axis in range(batch)]
        indices = b("CONCATENATION", *columns, indices, axis=rank - 1)
    return b("GATHER_ND", x, indices)


def _from_front(b: Builder, indices: Tensor, x: Tensor, first: int = 0) -> Tensor:
    """Negative entries of full indices, each counted from the end of its axis of x, of which the first is this."""
    value = b.value(indices)
    if value is not None and (value.size == 0 or value.min() >= 0):
        return indices
    depth = indices.type.shape[-1]
    limits = b.partial_shape(x)[first : first + depth]
    if -1 in limits:
        length = b("SLICE", _sizes_while_running(b, x), b.integers([first]), b.integers([depth]))
        length = b.cast(length, indices.dtype)
    else:
        length = b.integers(limits, indices.dtype.numpy)
    return b("SELECT_V2", b("LESS", indices, b.like(indices, 0)), b("ADD", indices, length), indices)


@handles("OneHot")
def one_hot(c: Call) -> Tensor:
    b, rank = c.b, c.rank() + 1
    axis = front(int(c.attr("axis", -1)), rank)
    depth = b.value(c[1])
    declared = c.declared_shape()
    if depth is None and declared is None:
        raise Refusal("its depth is computed while running")
    count = int(depth.reshape(())) if depth is not None else (declared or ())[axis]
    indices = c[0]
    if indices.dtype not in (DType.INT32, DType.INT64):
        indices = b.cast(indices, DType.INT64)
    indices = b(
        "SELECT_V2",
        b("LESS", indices, b.like(indices, 0)),
        b("ADD", indices, b.like(indices, count)),
        indices,
    )
    off, on = (b.reshape(b("SLICE", c[2], b.integers([i]), b.integers([1])), ()) for i in (0, 1))
    return b("ONE_HOT", indices, b.constant(count, np.int32), on, off, axis=axis if axis != rank - 1 else -1)


@handles("Trilu", since=14)
def trilu(c: Call) -> Tensor:
    b, dims = c.b, c.shape()
    rows = b.reshape(b.numbers(dims[-2], np.int64), (dims[-2], 1))
    columns = b.reshape(b.numbers(dims[-1], np.int64), (1, dims[-1]))
    k = b.constant(0, np.int64) if c.optional(1) is None else c[1]
    if k.type.rank:
        k = b.reshape(k, ())
    distance = b("SUB", columns, rows)
    kept = b("GREATER_EQUAL" if c.attr("upper", 1) else "LESS_EQUAL", distance, k)
    return b("SELECT_V2", kept, c[0], b.like(c[0], 0))


@handles("ScatterND")
def scatter_nd(c: Call) -> Tensor:
    b, x, indices, updates = c.b, c[0], c[1], c[2]
    return scattered(b, x, _from_front(b, indices, x), updates, c.attr("reduction", "none"))


COMBINED = {"none": None, "mul": "STABLEHLO_MULTIPLY", "max": "STABLEHLO_MAXIMUM", "min": "STABLEHLO_MINIMUM"}
"""How an update goes with what is there."""


def scattered(b: Builder, x: Tensor, indices: Tensor, updates: Tensor, reduction: str) -> Tensor:
    """SCATTER_ND adds; overwriting removes first what stood there. Where indices may repeat the last update wins."""
    indices = b.cast(indices, DType.INT32)
    if reduction == "add":
        return b("ADD", x, b("SCATTER_ND", indices, updates, b.integers(b.shape(x))))
    if reduction not in COMBINED:
        raise Refusal(f"nothing is known of scattering by '{reduction}'")
    if reduction != "none" or not _are_distinct(b.value(indices)):
        return _written(b, x, indices, updates, COMBINED[reduction])
    shape = b.integers(b.shape(x))
    many = b.integers(b.shape(updates)) if updates.type.is_static else _sizes_while_running(b, updates)
    ones = b("FILL", many, b.constant(1, np.int32))
    hits = b("SCATTER_ND", indices, ones, shape)
    touched = b("GREATER", hits, b.constant(0, np.int32))
    placed = b("SCATTER_ND", indices, updates, shape)
    return b("SELECT_V2", touched, placed, x)


def _are_distinct(indices: Array | None) -> bool:
    """Whether it is known that no place is named twice."""
    if indices is None:
        return False
    flat = indices.reshape(-1, indices.shape[-1])
    return len(np.unique(flat, axis=0)) == len(flat)


def _written(b: Builder, x: Tensor, indices: Tensor, updates: Tensor, combined: str | None) -> Tensor:
    """One update after the other, by full indices of the first axes."""
    depth = indices.type.shape[-1]
    if depth < 0:
        raise Refusal("how many axes its indices speak of is known only while running")
    first = tuple(range(depth))
    return b(
        "STABLEHLO_SCATTER", x, indices, updates,
        graphs=(combining(None if combined is None else REGISTRY[combined](), x.dtype),),
        update_window_dims=tuple(range(indices.type.rank - 1, updates.type.rank)),
        inserted_window_dims=first, scatter_dims_to_operand_dims=first, index_vector_dim=indices.type.rank - 1,
    )  # fmt: skip


@handles("ScatterElements", "Scatter")
def scatter_elements(c: Call) -> Tensor:
    b, axis = c.b, c.axis(0)
    places = element_places(b, counted_from_front(b, c[1], c[0], axis), axis)
    return scattered(b, c[0], places, c[2], c.attr("reduction", "none"))


@handles("Compress")
def compress(c: Call) -> Tensor:
    b, wanted = c.b, c.value(1, "condition")
    x, axis = c[0], c.attr("axis")
    if axis is None:
        x, axis = b.reshape(x, (prod(c.shape(), start=1),)), 0
    return b(
        "GATHER",
        x,
        b.constant(np.flatnonzero(wanted), np.int32),
        axis=front(int(axis), x.type.rank),
        batch_dims=0,
    )


@handles("NonZero")
def non_zero(c: Call) -> Tensor:
    """A row for each axis, where Circle has one for each element that is found."""
    return c.b.transpose(c.b("WHERE", c[0]), (1, 0))
