"""Shapes and their arithmetic, joins, cuts and repetitions."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from circle_train.convert.building.builder import Builder
from circle_train.convert.building.emitter import Unfit
from circle_train.convert.building.refusal import Refusal
from circle_train.convert.building.registry import Call, front, handles
from circle_train.convert.onnx_file.elements import element_type
from circle_train.ir import DType, Tensor
from circle_train.ir.size import Size, is_open
from circle_train.ops.elementwise import common_size
from circle_train.ops.open.derive import left_over, require_equal


@handles("Constant")
def constant(c: Call) -> Tensor:
    for name in ("value", "value_float", "value_int", "value_floats", "value_ints"):
        value = c.attr(name)
        if value is not None:
            kinds = {
                "value_float": np.float32,
                "value_floats": np.float32,
                "value_int": np.int64,
                "value_ints": np.int64,
            }
            return c.b.constant(value, kinds.get(name))
    raise Refusal("its value is of a kind that Circle does not compute (strings, or a type that numpy lacks)")


@handles("Shape")
def shape(c: Call) -> Tensor:
    b, rank = c.b, c.rank()
    start, end = (
        min(max(v + rank if v < 0 else v, 0), rank) for v in (c.attr("start", 0), c.attr("end", rank))
    )
    whole = b("SHAPE", c[0], out_type=DType.INT64)
    if (start, end) == (0, rank):
        return whole
    return b("SLICE", whole, b.integers([start]), b.integers([max(end - start, 0)]))


@handles("Size")
def size(c: Call) -> Tensor:
    total: Any = prod(c.shape(), start=1)
    return c.b.reshape(c.b.integers([total], np.int64), ())


@handles("Reshape")
def reshape(c: Call) -> Tensor:
    b, dims = c.b, c.b.sizes(c[1])
    declared = c.declared_shape()
    if dims is None:
        if declared is not None:
            return b("RESHAPE", c[0], b.integers(declared), new_shape=declared)
        return b("RESHAPE", c[0], b.cast(c[1], DType.INT32))
    if not c[0].type.is_static and 0 not in dims:
        return b("RESHAPE", c[0], b.integers(dims))
    source = c.shape()
    if not c.attr("allowzero", 0):
        dims = tuple(source[i] if d == 0 and not isinstance(d, Size) else d for i, d in enumerate(dims))
    return b.reshape(c[0], _resolved(b, dims, source, c[1]))


def _resolved(b: Builder, dims: Sequence[int], source: Sequence[int], target: Tensor) -> tuple[int, ...]:
    """The sizes with -1 computed, so that a symbolic one is recognised wherever it stands; as many elements as there are."""
    total: Any = prod(source, start=1)
    if -1 not in dims:
        wanted: Any = prod(dims, start=1)
        require_equal(total, wanted)
        over = left_over(total, wanted)
        if (not isinstance(over, Size) or over.is_written) and b.example(over):
            raise Unfit(f"{total} elements do not fill the shape {list(dims)}", over)
        return tuple(dims)
    at = list(dims).index(-1)
    rest: Any = prod((d for d in dims if d != -1), start=1)
    if rest == 0:
        return tuple(0 if d == -1 else d for d in dims)
    left = total % rest
    if (not isinstance(left, Size) or left.is_written) and b.example(left):
        inner = left_over(prod(source[1:], start=1), rest) if at == 0 else left
        raise Unfit(f"{total} elements do not fill the shape {list(dims)}", inner)
    return (*dims[:at], total // rest, *dims[at + 1 :])


@handles("Flatten")
def flatten(c: Call) -> Tensor:
    dims = c.shape()
    axis = int(c.attr("axis", 1))
    axis = axis + len(dims) if axis < 0 else axis
    outer: Any = prod(dims[:axis], start=1)
    inner: Any = prod(dims[axis:], start=1)
    return c.b.reshape(c[0], (outer, inner))


@handles("Squeeze")
def squeeze(c: Call) -> Tensor:
    dims: Any = c.shape() if c[0].type.is_static else c[0].shape
    given = c.optional(1) if c.opset >= 13 else None
    axes = c.attr("axes") if c.opset < 13 else None
    if given is not None:
        axes = c.b.sizes(given)
        if axes is None:
            return _declared(c)
    if axes is None:
        if any(isinstance(n, Size) or n < 0 for n in dims):  # an open size of 1 is dropped when it comes
            return c.b("SQUEEZE", c[0])
        axes = [i for i, n in enumerate(dims) if n == 1]
    dropped = {front(int(a), len(dims)) for a in axes}
    if not c[0].type.is_static:
        return c.b("SQUEEZE", c[0], squeeze_dims=tuple(sorted(dropped)))
    for axis in dropped:
        if isinstance(dims[axis], Size):
            require_equal(dims[axis], 1)
    if any(not isinstance(dims[a], Size) and dims[a] != 1 for a in dropped):
        raise Refusal(f"axes {sorted(dropped)} of a tensor {list(dims)} have not size 1")
    if any(isinstance(dims[a], Size) for a in dropped):  # refuses other sizes when they come
        return c.b("SQUEEZE", c[0], squeeze_dims=tuple(sorted(dropped)))
    return c.b.reshape(c[0], tuple(n for i, n in enumerate(dims) if i not in dropped))


@handles("Unsqueeze")
def unsqueeze(c: Call) -> Tensor:
    axes = c.attr("axes") if c.opset < 13 else c.b.sizes(c[1])
    if axes is None:
        return _declared(c)
    if not c[0].type.is_static:
        made, rank = c[0], c.rank() + len(axes)
        for axis in sorted(front(int(a), rank) for a in axes):
            made = c.b("EXPAND_DIMS", made, c.b.constant(axis, np.int32))
        return made
    return c.b.reshape(c[0], with_ones(c.shape(), axes))


def with_ones(dims: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    """The shape with new axes of size 1."""
    rank = len(dims) + len(axes)
    new = {front(int(axis), rank) for axis in axes}
    rest = iter(dims)
    return tuple(1 if i in new else next(rest) for i in range(rank))


def _declared(c: Call) -> Tensor:
    """The same elements in the shape that the model states for the output."""
    declared = c.declared_shape()
    if declared is None:
        raise Refusal("its axes are computed while running and its output's shape is not stated")
    return c.b.reshape(c[0], declared)


@handles("Transpose")
def transpose(c: Call) -> Tensor:
    return c.b.transpose(c[0], [int(p) for p in c.attr("perm") or reversed(range(c.rank()))])


@handles("Concat")
def concat(c: Call) -> Tensor:
    tensors = [c[i] for i in range(len(c.inputs))]
    axis = front(int(c.attr("axis", 1)), tensors[0].type.rank)
    return tensors[0] if len(tensors) == 1 else c.b("CONCATENATION", *tensors, axis=axis)


@handles("Split")
def split(c: Call) -> list[Tensor]:
    b, axis, count = c.b, c.axis(0), c.output_count
    given = c.optional(1) if c.opset >= 13 else None
    lengths = c.attr("split")
    if given is not None:
        lengths = b.sizes(given)
        if lengths is None and all(c.declared_shape(i) is not None for i in range(count)):
            lengths = [(c.declared_shape(i) or ())[axis] for i in range(count)]
        if lengths is None:
            raise Refusal("its lengths are computed while running")
    if lengths is None:
        count, total = int(c.attr("num_outputs", count)), c.shape()[axis]
        if isinstance(total, Size) and "num_outputs" not in c.attributes:
            require_equal(total % count, 0)
        part = -(-total // count)
        lengths = [part] * (count - 1) + [total - part * (count - 1)]
    if len(lengths) == 1:
        return [c[0]]
    if all(n == lengths[0] for n in lengths):
        return b.all("SPLIT", b.constant(axis, np.int32), c[0], num_splits=len(lengths))
    sizes = b.integers(lengths)
    return b.all("SPLIT_V", c[0], sizes, b.constant(axis, np.int32), num_splits=len(lengths))


@handles("ReverseSequence")
def reverse_sequence(c: Call) -> Tensor:
    batch, time = c.axis(1, "batch_axis"), c.axis(0, "time_axis")
    lengths = c.b.cast(c[1], DType.INT32)
    return c.b("REVERSE_SEQUENCE", c[0], lengths, seq_dim=time, batch_dim=batch)


@handles("Expand")
def expand(c: Call) -> Tensor:
    b, x = c.b, c[0]
    target = b.sizes(c[1])
    if target is None:
        target = c.declared_shape()
    if target is None or not x.type.is_static:  # what is larger decides, along each axis
        is_bool = x.dtype is DType.BOOL
        ones = b("FILL", b.cast(c[1], DType.INT32), b.constant(True) if is_bool else b.like(x, 1))
        return b("LOGICAL_AND" if is_bool else "MUL", x, ones)
    return (
        b("BROADCAST_TO", x, b.integers(broadcast_shape(c.shape(), target)))
        if broadcast_shape(c.shape(), target) != c.shape()
        else x
    )


def broadcast_shape(first: Sequence[int], second: Sequence[int]) -> tuple[int, ...]:
    """numpy's common shape; symbolic sizes win over 1."""
    rank = max(len(first), len(second))
    one, two = ((1,) * (rank - len(s)) + tuple(s) for s in (first, second))
    result = []
    for a, z in zip(one, two, strict=True):
        size = common_size((a, z))
        if size is None and is_open((a, z)):
            require_equal(a, z)
        if size is None:
            raise Refusal(f"shapes {list(first)} and {list(second)} do not broadcast")
        result.append(size)
    return tuple(result)


@handles("Tile")
def tile(c: Call) -> Tensor:
    b, times = c.b, c.b.sizes(c[1])
    declared = c.declared_shape()
    if times is None and declared is not None and 0 not in c.shape():
        times = tuple(n // m for n, m in zip(declared, c.shape(), strict=True))
    if times is None:
        return b("TILE", c[0], b.cast(c[1], DType.INT32))
    return c[0] if set(times) == {1} else b("TILE", c[0], b.integers(times))


@handles("ConstantOfShape")
def constant_of_shape(c: Call) -> Tensor:
    b = c.b
    given = c.attr("value")
    value = np.float32(0) if given is None else np.asarray(given).reshape(-1)[0]
    dims = b.sizes(c[0])
    dims = dims if dims is not None else c.declared_shape()
    if dims is None:
        return b("FILL", b.cast(c[0], DType.INT32), b.constant(value))
    if 0 in dims and not is_open(dims):
        return b.constant(np.zeros([int(d) for d in dims], value.dtype))
    return b("FILL", b.integers(dims), b.constant(value))


@handles("Range")
def number_range(c: Call) -> Tensor:
    b = c.b
    start, limit, step = (b.reshape(c[i], ()) if c.rank(i) else c[i] for i in range(3))
    declared = c.declared_shape()
    if declared is not None and not all(t.is_constant for t in (start, limit, step)):
        steps = b.constant(np.arange(declared[0]).astype(c.dtype.numpy))
        return b("ADD", start, b("MUL", steps, step))
    return b("RANGE", start, limit, step)


@handles("DepthToSpace")
def depth_to_space(c: Call) -> Tensor:
    b, block = c.b, int(c.required("blocksize"))
    n, channels, height, width = c.shape()
    if c.attr("mode", "DCR") == "DCR":
        return b.channels_first(b("DEPTH_TO_SPACE", b.channels_last(c[0]), block_size=block))
    depth = channels // (block * block)
    x = b.reshape(b.channels_last(c[0]), (n, height, width, depth, block * block))
    x = b.reshape(b.transpose(x, (0, 1, 2, 4, 3)), (n, height, width, channels))
    return b.channels_first(b("DEPTH_TO_SPACE", x, block_size=block))


@handles("SpaceToDepth")
def space_to_depth(c: Call) -> Tensor:
    b, block = c.b, int(c.required("blocksize"))
    if c.attr("mode", "DCR") == "DCR":
        return b.channels_first(b("SPACE_TO_DEPTH", b.channels_last(c[0]), block_size=block))
    n, channels, height, width = c.shape()
    x = b.reshape(b.channels_last(c[0]), (n, height // block, block, width // block, block, channels))
    x = b.transpose(x, (0, 1, 3, 5, 2, 4))
    return b.channels_first(b.reshape(x, (n, height // block, width // block, channels * block * block)))


@handles("EyeLike")
def eye_like(c: Call) -> Tensor:
    dtype = element_type(int(c.attr("dtype"))) if c.attr("dtype") else c.dtype
    dims = c.shape()
    if dtype is None or is_open(dims):
        raise Refusal("its size is symbolic or its element type one that Circle does not compute")
    return c.b.constant(np.eye(dims[0], dims[1], int(c.attr("k", 0))), dtype.numpy)
