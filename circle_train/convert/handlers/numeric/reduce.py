"""Reductions over axes, searches for extremes, cumulative sums."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circle_train.convert.building.builder import Builder
from circle_train.convert.building.refusal import Refusal
from circle_train.convert.building.registry import Call, front, handles
from circle_train.ir import DType, Tensor
from circle_train.ir.size import Size

SINCE_AXES_ARE_AN_INPUT = {"ReduceSum": 13}
PLAIN = {
    "ReduceSum": "SUM",
    "ReduceMean": "MEAN",
    "ReduceMax": "REDUCE_MAX",
    "ReduceMin": "REDUCE_MIN",
    "ReduceProd": "REDUCE_PROD",
}


Axes = tuple[int, ...] | Tensor


def reduced_axes(c: Call) -> Axes | None:
    """The axes (a tensor where they are computed while running); None where nothing is to be reduced."""
    axes: Sequence[int] | None = c.attr("axes")
    given = c.optional(1)
    if c.opset >= SINCE_AXES_ARE_AN_INPUT.get(c.op, 18) and given is not None:
        axes = c.b.sizes(given)
        if axes is None and given.type.size:
            if c.declared_shape() is None:
                raise Refusal("its axes are computed while running and its output's shape is not stated")
            return c.b.cast(given, DType.INT32)
    if not axes:
        return None if c.attr("noop_with_empty_axes", 0) else tuple(range(c.rank()))
    return tuple(sorted({front(int(axis), c.rank()) for axis in axes}))


def _without(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def reduced(c: Call, name: str, x: Tensor, axes: Axes) -> Tensor:
    over = axes if isinstance(axes, Tensor) else c.b.integers(axes)
    y = c.b(name, x, over, keep_dims=bool(c.attr("keepdims", 1)))
    return c.b.refine(y, c.declared_shape())


@handles(*PLAIN)
def reduce(c: Call) -> Tensor:
    x, axes = c[0], reduced_axes(c)
    if axes is None:
        return x
    if x.dtype is DType.BOOL:
        return reduced(c, "REDUCE_ANY" if c.op == "ReduceMax" else "REDUCE_ALL", x, axes)
    if x.type.is_static and x.type.size == 0:
        return _of_nothing(c, axes)
    return reduced(c, PLAIN[c.op], x, axes)


def _of_nothing(c: Call, axes: Axes) -> Tensor:
    """The neutral element, where no element is there to be reduced."""
    kind = np.dtype(c.dtype.numpy)
    limits = (np.inf, -np.inf) if c.dtype.is_float else (np.iinfo(kind).max, np.iinfo(kind).min)
    neutral = {"ReduceSum": 0, "ReduceProd": 1, "ReduceMin": limits[0], "ReduceMax": limits[1]}.get(
        c.op, np.nan
    )
    keep = bool(c.attr("keepdims", 1))
    if isinstance(axes, Tensor):
        return c.b.constant(np.full(c.declared_shape() or (), neutral, kind))
    shape = [1 if i in axes else n for i, n in enumerate(c.shape()) if keep or i not in axes]
    return c.b.constant(np.full(shape, neutral, kind))


@handles("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")
def reduce_compound(c: Call) -> Tensor:
    b, x, axes = c.b, c[0], reduced_axes(c)
    if axes is None:
        return _elementwise(b, c.op, x)
    if c.op == "ReduceL1":
        return reduced(c, "SUM", b("ABS", x), axes)
    if c.op in ("ReduceSumSquare", "ReduceL2"):
        total = reduced(c, "SUM", b("MUL", x, x), axes)
        return b("SQRT", total) if c.op == "ReduceL2" else total
    if c.op == "ReduceLogSum" or isinstance(axes, Tensor) or x.type.size == 0:
        return b("LOG", reduced(c, "SUM", x if c.op == "ReduceLogSum" else b("EXP", x), axes))
    over = b.integers(axes)
    most = b("REDUCE_MAX", x, over, keep_dims=True)
    most = b("SELECT_V2", b("EQUAL", b("ABS", most), b.like(x, np.inf)), b.like(x, 0), most)
    total = b("LOG", b("SUM", b("EXP", b("SUB", x, most)), over, keep_dims=True))
    result = b("ADD", total, most)
    return result if c.attr("keepdims", 1) else b.reshape(result, _without(b.shape(x), axes))


def _elementwise(b: Builder, op: str, x: Tensor) -> Tensor:
    """What the reduction is over no axis at all."""
    if op in ("ReduceL1", "ReduceL2"):
        return b("ABS", x)
    if op == "ReduceSumSquare":
        return b("MUL", x, x)
    return b("LOG", x) if op == "ReduceLogSum" else x


@handles("ArgMax", "ArgMin")
def arg_extreme(c: Call) -> Tensor:
    b, axis = c.b, c.axis(0)
    name = "ARG_MAX" if c.op == "ArgMax" else "ARG_MIN"
    x = c[0]
    if c.attr("select_last_index", 0):
        x = b("REVERSE_V2", x, b.integers([axis]))
    found = b(name, x, b.constant(axis, np.int32), output_type=DType.INT64)
    if c.attr("select_last_index", 0):
        last = b.cast(b.reshape(b.integers([c.shape()[axis] - 1]), ()), DType.INT64)
        found = b("SUB", last, found)
    if not c.attr("keepdims", 1):
        return found
    if not c[0].type.is_static:
        return b("EXPAND_DIMS", found, b.constant(axis, np.int32))
    return b.reshape(found, tuple(1 if i == axis else n for i, n in enumerate(c.shape())))


@handles("CumSum")
def cumulative_sum(c: Call) -> Tensor:
    axis = c.b.cast(c[1], DType.INT32)
    axis = c.b.reshape(axis, ()) if axis.type.rank else axis
    return c.b(
        "CUMSUM", c[0], axis, exclusive=bool(c.attr("exclusive", 0)), reverse=bool(c.attr("reverse", 0))
    )


@handles("CumProd", since=26)
def cumulative_product(c: Call) -> Tensor:
    """For each place the product of what lies before it, everything else taken as 1."""
    b, rank = c.b, c.rank()
    axis = front(int(c.value(1, "axis").reshape(())), rank)
    size = c.shape()[axis]
    if isinstance(size, Size):
        raise Refusal("it multiplies along a symbolic size")
    order = [i for i in range(rank) if i != axis] + [axis]
    x = b.transpose(c[0], order)
    rows, columns = np.arange(size)[:, None], np.arange(size)[None, :]
    before, after = (columns, rows) if not c.attr("reverse", 0) else (rows, columns)
    kept = before < after if c.attr("exclusive", 0) else before <= after
    dims = b.shape(x)
    wide = b.reshape(x, (*dims[:-1], 1, size))
    products = b("REDUCE_PROD", b("SELECT_V2", b.constant(kept), wide, b.like(x, 1)), b.integers([rank]))
    return b.transpose(products, [order.index(i) for i in range(rank)])


@handles("TopK", since=1)
def top_k_attribute(c: Call) -> list[Tensor]:
    return _top_k(c, c.b.integers([int(c.required("k"))]))


@handles("TopK", since=10)
def top_k(c: Call) -> list[Tensor]:
    k = c.b.sizes(c[1])
    declared = c.declared_shape()
    if k is None and declared is None:
        return _top_k(c, c.b.cast(c[1], DType.INT32))
    axis = c.axis(-1)
    return _top_k(c, c.b.integers([k[0] if k is not None else (declared or ())[axis]]))


def _top_k(c: Call, k: Tensor) -> list[Tensor]:
    """TOPK_V2 finds the largest of the last axis; the smallest are the largest of what is negated."""
    b, axis, largest = c.b, c.axis(-1), bool(c.attr("largest", 1))
    order = [i for i in range(c.rank()) if i != axis] + [axis]
    x = b.transpose(c[0], order)
    kind = np.dtype(c.dtype.numpy)
    if not largest:
        if kind.kind == "u":
            x = b("SUB", b.constant(np.array(np.iinfo(kind).max, kind)), x)
        else:
            x = b("BITWISE_XOR", x, b.constant(np.array(-1, kind))) if kind.kind == "i" else b("NEG", x)
    values, indices = b.all("TOPK_V2", x, b.reshape(k, ()))
    if not largest:
        if kind.kind == "u":
            values = b("SUB", b.constant(np.array(np.iinfo(kind).max, kind)), values)
        else:
            values = (
                b("BITWISE_XOR", values, b.constant(np.array(-1, kind)))
                if kind.kind == "i"
                else b("NEG", values)
            )
    back = [order.index(i) for i in range(len(order))]
    return [b.transpose(values, back), b.cast(b.transpose(indices, back), DType.INT64)]
