"""Parts of a tensor, cut out or written over."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import DType, TensorType
from circle_train.ir.size import largest, smallest
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Mixes
from circle_train.ops.base import Example, Op, random, register
from circle_train.ops.checks import integers, length, number, same_size, vector
from circle_train.ops.elementwise import same_dtype
from circle_train.ops.integers import KEPT
from circle_train.ops.movement import Movement, placed
from circle_train.ops.shapes.per_axis import Slices
from circle_train.ops.versions import Versions, option, rank_above
from circle_train.record import record

Index = int | slice | None
Numbers = Sequence[int] | Array


@register("SLICE", "SliceOptions")
class Slice(Movement):
    """`size` elements of each axis from `begin` on; size -1 means to the end."""

    axes = Slices(("begin", "size"), "size")
    in_integers = KEPT
    versions = Versions(
        {DType.INT8: 2, DType.STRING: 3, DType.INT16: 4, DType.UINT32: 6}, (rank_above(4, 5),)
    )

    def infer(self, x: TensorType, begin: TensorType, size: TensorType) -> TensorType:
        starts, sizes = vector(self.name, "begin", begin, x.rank), vector(self.name, "size", size, x.rank)
        if sizes is None:
            return TensorType(x.dtype, (-1,) * x.rank)
        if starts is None:
            return TensorType(x.dtype, tuple(sizes))
        for axis, (whole, start, count) in enumerate(zip(x.shape, starts, sizes, strict=True)):
            if start < 0 or count < -1 or 0 <= whole < start + max(count, 0):
                raise ModelError(
                    f"{self.name}: begin {start} and size {count} leave axis {axis} of the input {x}"
                )
        ends = zip(x.shape, starts, sizes, strict=True)
        return TensorType(x.dtype, tuple((n - b if n >= 0 else -1) if s == -1 else s for n, b, s in ends))

    def layout(self, rank: int, begin: Numbers, size: Numbers) -> list[Index]:
        return list(self.where(begin, size))

    def where(self, begin: Numbers, size: Numbers) -> tuple[slice, ...]:
        pairs = zip(begin, size, strict=True)
        return tuple(slice(int(b), None if s == -1 else int(b + s)) for b, s in pairs)

    def forward(self, x: Array, begin: Array, size: Array) -> Array:
        return x[self.where(begin, size)]

    def grad_x(self, dy: Array, begin: Array, size: Array, x_shape: tuple[int, ...]) -> Array:
        return placed(dy, x_shape, self.where(begin, size))

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for begin, size in (
            ((1,), (3,)),
            ((0, 2), (2, -1)),
            ((1, 0, 3), (-1, 2, 1)),
            ((0, 1, 0, 2), (2, 2, -1, 3)),
        ):
            x = random(*range(4, 4 + len(begin)))
            yield Example(cls(), (x, np.array(begin, np.int32), np.array(size, np.int32)))


def length_of(entry: slice, whole: int) -> int:
    """How many elements of an axis a slice takes."""
    step: int = 1 if entry.step is None else entry.step
    first, last = (0, whole) if step > 0 else (-1, whole - 1)

    def place(given: int | None, default: int) -> int:
        if given is None:
            return default
        at: int = smallest(largest(given + whole if given < 0 else given, first), last)
        return at

    start, stop = (
        place(entry.start, first if step > 0 else last),
        place(entry.stop, last if step > 0 else first),
    )
    taken: int = largest(-((start - stop) // step), 0)
    return taken


@register("STRIDED_SLICE", "StridedSliceOptions")
@record
class StridedSlice(Movement):
    """Python's slicing in integers: bit i of a mask speaks of the i-th entry of begin, end and strides.

    A masked begin or end is open; `ellipsis` stands for all axes that no entry names, `new_axis` adds one of
    size 1, `shrink_axis` takes the one element at begin. With `offset`, end counts from begin.
    """

    begin_mask: int = 0
    end_mask: int = 0
    ellipsis_mask: int = 0
    new_axis_mask: int = 0
    shrink_axis_mask: int = 0
    offset: bool = False

    axes = Slices(
        ("begin", "end", "strides"),
        "end",
        masks=("begin_mask", "end_mask"),
        shifts=("ellipsis_mask", "new_axis_mask"),
        drops=("shrink_axis_mask",),
    )
    in_integers = KEPT
    versions = Versions(
        {DType.INT8: 2, DType.BOOL: 3, DType.STRING: 5, DType.UINT32: 7},
        (rank_above(4, 4), option(6, "ellipsis_mask", "new_axis_mask"), option(8, "offset")),
    )

    def infer(self, x: TensorType, begin: TensorType, end: TensorType, strides: TensorType) -> TensorType:
        for name, operand in (("begin", begin), ("end", end), ("strides", strides)):
            integers(self.name, name, operand)
            if operand.rank != 1 or not same_size(operand.shape[0], begin.shape[0]):
                raise ModelError(
                    f"{self.name}: {name} is {operand}, expected a vector as long as begin, {begin}"
                )
        entries = length(self.name, "begin", begin)
        if begin.value is None or end.value is None or strides.value is None:
            layout = self.layout(x.rank, [0] * entries, [0] * entries, [1] * entries)
            return TensorType(
                x.dtype, tuple(1 if i is None else -1 for i in layout if not isinstance(i, int))
            )
        shape: list[int] = []
        axis = 0
        for entry in self.layout(x.rank, begin.value, end.value, strides.value):
            if entry is None:
                shape.append(1)
                continue
            shape.extend(self.size(entry, x.shape[axis], axis, x))
            axis += 1
        return TensorType(x.dtype, tuple(shape))

    def size(self, entry: int | slice, whole: int, axis: int, x: TensorType) -> list[int]:
        """What one entry leaves of an axis: nothing where it shrinks, else a size."""
        if isinstance(entry, int):
            if not -whole <= entry < whole and whole >= 0:
                raise ModelError(f"{self.name}: index {entry} is outside axis {axis} of the input {x}")
            return []
        if whole < 0:
            return [1 if entry == slice(0, 1, 1) else -1]
        return [length_of(entry, whole)]

    def layout(self, rank: int, begin: Numbers, end: Numbers, strides: Numbers) -> list[Index]:
        """The entries as numpy indices, the ellipsis written out and axes that no entry names left whole."""
        count = len(begin)
        ellipsis = next((i for i in range(count) if self.ellipsis_mask >> i & 1), count)
        added = sum(1 for i in range(count) if self.new_axis_mask >> i & 1 and i != ellipsis)
        named = count - added - (ellipsis < count)
        if named > rank:
            raise ModelError(
                f"{self.name}: {named} entries of begin name axes, but the input has rank {rank}"
            )
        layout: list[Index] = []
        for i in range(count):
            if i == ellipsis:
                layout += [slice(None)] * (rank - named)
            elif self.new_axis_mask >> i & 1:
                layout.append(None)
            else:
                layout.append(self.entry(i, *(number(table[i]) for table in (begin, end, strides))))
        return layout + [slice(None)] * (rank - named if ellipsis == count else 0)

    def entry(self, i: int, begin: int, end: int, stride: int) -> int | slice:
        """One axis: an index or a slice."""
        if self.shrink_axis_mask >> i & 1:
            if stride <= 0:
                raise ModelError(
                    f"{self.name}: entry {i} takes one element with stride {stride}, expected a positive one"
                )
            return 0 if self.begin_mask >> i & 1 else begin
        if stride == 0:
            raise ModelError(f"{self.name}: stride {i} is 0, expected a step other than 0")
        start = None if self.begin_mask >> i & 1 else begin
        if self.end_mask >> i & 1:
            return slice(start, None, stride)
        if not self.offset:
            return slice(start, end, stride)
        stop = end + (start or 0)
        return slice(start, None if (start or 0) < 0 <= stop else stop, stride)

    def forward(self, x: Array, begin: Array, end: Array, strides: Array) -> Array:
        return np.asarray(x[tuple(self.layout(x.ndim, begin, end, strides))])

    def grad_x(self, dy: Array, begin: Array, end: Array, strides: Array, x_shape: tuple[int, ...]) -> Array:
        return placed(dy, x_shape, tuple(self.layout(len(x_shape), begin, end, strides)))

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for masks, *entries in _STRIDED:
            x = random(5, 4, 6)
            yield Example(cls(**masks), (x, *(np.array(entry, np.int32) for entry in entries)))
        yield Example(
            cls(shrink_axis_mask=1), (np.array([3, 5, 7], np.int32), *np.array([[1], [2], [1]], np.int32))
        )


_STRIDED: tuple[tuple[dict[str, Any], tuple[int, ...], tuple[int, ...], tuple[int, ...]], ...] = (
    ({}, (1, 0, 2), (4, 4, 6), (1, 1, 1)),
    ({}, (0, 1, 5), (5, 4, 0), (2, 3, -2)),
    ({}, (-3, -4, -100), (-1, 100, 100), (1, 2, 4)),
    ({}, (4, 3, 5), (-100, -5, -7), (-1, -2, -3)),
    ({}, (1,), (3,), (1,)),
    ({"begin_mask": 1, "end_mask": 6}, (3, 1, 2), (4, 2, 3), (1, 2, 3)),
    ({"begin_mask": 5, "end_mask": 7}, (3, 1, 2), (0, 0, 0), (-1, 1, -2)),
    ({"shrink_axis_mask": 1}, (2, 1, 0), (3, 3, 6), (1, 1, 2)),
    ({"shrink_axis_mask": 6}, (0, -1, 3), (5, 0, 4), (2, 1, 1)),
    ({"shrink_axis_mask": 7}, (1, 2, 3), (2, 3, 4), (1, 1, 1)),
    ({"new_axis_mask": 2}, (1, 0, 2), (3, 0, 4), (1, 1, 1)),
    ({"new_axis_mask": 9, "end_mask": 2}, (0, 1, 1, 0), (0, 0, 3, 0), (1, 2, 1, 1)),
    ({"ellipsis_mask": 1}, (0, 2), (0, 5), (1, 2)),
    ({"ellipsis_mask": 2}, (1, 0, 3), (4, 0, 6), (1, 1, 1)),
    ({"ellipsis_mask": 2, "shrink_axis_mask": 4}, (1, 0, 3), (4, 0, 4), (1, 1, 1)),
    ({"ellipsis_mask": 2, "new_axis_mask": 4}, (1, 0, 0), (4, 0, 0), (2, 1, 1)),
    ({"begin_mask": 2, "shrink_axis_mask": 2}, (0, 2, 0), (5, 3, 6), (1, 1, 1)),
    ({"offset": True}, (1, 0, 2), (3, 2, 4), (1, 1, 2)),
    ({"offset": True}, (-4, -3, -2), (2, 3, 1), (1, 2, 1)),
)


@register("DYNAMIC_UPDATE_SLICE", "DynamicUpdateSliceOptions")
class DynamicUpdateSlice(Op):
    """The input with `update` written over it from `start` on, moved so that it lies inside."""

    axes = Mixes("it writes over a part of its input")

    def infer(self, x: TensorType, update: TensorType, start: TensorType) -> TensorType:
        same_dtype(self.name, x, update)
        vector(self.name, "start", start, x.rank)
        if update.rank != x.rank or any(u > n >= 0 for u, n in zip(update.shape, x.shape, strict=True)):
            raise ModelError(
                f"{self.name}: update is {update}, expected the rank of the input {x} and sizes within it"
            )
        return TensorType(x.dtype, x.shape)

    @staticmethod
    def where(start: Array, x_shape: tuple[int, ...], update_shape: tuple[int, ...]) -> tuple[slice, ...]:
        sizes = zip(start, x_shape, update_shape, strict=True)
        firsts = [(min(max(int(s), 0), n - u), u) for s, n, u in sizes]
        return tuple(slice(first, first + count) for first, count in firsts)

    def forward(self, x: Array, update: Array, start: Array) -> Array:
        result = x.copy()
        result[self.where(start, x.shape, update.shape)] = update
        return result

    def grad_x(self, dy: Array, start: Array, update_shape: tuple[int, ...]) -> Array:
        result = dy.copy()
        result[self.where(start, dy.shape, update_shape)] = 0
        return result

    def grad_update(self, dy: Array, start: Array, update_shape: tuple[int, ...]) -> Array:
        return dy[self.where(start, dy.shape, update_shape)]

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for start in ((1, 2), (0, 0), (9, -4)):
            yield Example(cls(), (random(4, 5), random(2, 3, seed=1), np.array(start, np.int32)))
        yield Example(cls(), (random(4, 2, 3), random(1, 2, 3, seed=1), np.array((2, 0, 0), np.int32)))
