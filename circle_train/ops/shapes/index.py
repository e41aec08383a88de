"""Elements picked by indices that are tensors, and put back by them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import DType, TensorType
from circle_train.ir.size import Size
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import LastAxis, Mixes
from circle_train.ops.base import Example, random, register
from circle_train.ops.checks import (
    axis_in,
    has_rank,
    indices_below,
    integers,
    length,
    same_size,
    scalar,
    sizes_in,
)
from circle_train.ops.elementwise import same_dtype
from circle_train.ops.integers import ONLY_8, InIntegers, Scales
from circle_train.ops.movement import Movement, added
from circle_train.ops.rearranging import Joins, Picks
from circle_train.ops.versions import Versions, option
from circle_train.record import record


@register("GATHER", "GatherOptions")
@record
class Gather(Movement):
    """What the indices name along one axis; `batch_dims` leading axes run along with the indices'."""

    axis: int = 0
    batch_dims: int = 0

    parameters = ("table",)
    axes = Picks()
    in_integers = InIntegers(Scales.KEPT, data=("table",))
    versions = Versions(
        {DType.INT8: 2, DType.BOOL: 3, DType.INT16: 4, DType.INT4: 7}, (option(5, "batch_dims"),)
    )

    def infer(self, table: TensorType, indices: TensorType) -> TensorType:
        integers(self.name, "indices", indices)
        axis = axis_in(self.name, self.axis, table.rank)
        batch = self.batch(indices.rank)
        if not 0 <= batch <= axis or batch > indices.rank:
            raise ModelError(
                f"{self.name}: batch_dims is {self.batch_dims}, expected 0 to axis {axis}, within {indices}"
            )
        if any(not same_size(a, b) for a, b in zip(table.shape[:batch], indices.shape[:batch], strict=True)):
            raise ModelError(
                f"{self.name}: the first {batch} sizes of {table} and {indices} differ, expected equal ones"
            )
        return TensorType(
            table.dtype, (*table.shape[:axis], *indices.shape[batch:], *table.shape[axis + 1 :])
        )

    def batch(self, rank: int) -> int:
        return self.batch_dims + rank if self.batch_dims < 0 else self.batch_dims

    def where(self, indices: Array, shape: tuple[int, ...]) -> tuple[Array, ...]:
        """For each axis of the table an index; together they broadcast to the output's shape."""
        axis, batch = self.axis % len(shape), self.batch(indices.ndim)
        indices_below(self.name, indices, shape[axis])
        inner = indices.ndim - batch
        rank = len(shape) - 1 + inner
        places: list[Array] = []
        for i, size in enumerate(shape):
            if i == axis:
                middle = (*indices.shape[:batch], *[1] * (axis - batch), *indices.shape[batch:])
                places.append(indices.reshape(*middle, *[1] * (rank - len(middle))))
            else:
                behind = rank - 1 - i if i < axis else len(shape) - 1 - i
                places.append(np.arange(size).reshape(size, *[1] * behind))
        return tuple(places)

    def forward(self, table: Array, indices: Array) -> Array:
        if self.batch_dims == 0:
            indices_below(self.name, indices, table.shape[self.axis])
            return np.take(table, indices, axis=self.axis)
        return table[self.where(indices, table.shape)]

    def grad_table(self, dy: Array, indices: Array, table_shape: tuple[int, ...]) -> Array:
        if self.batch_dims == 0:
            return added(dy, table_shape, (*[slice(None)] * (self.axis % len(table_shape)), indices))
        return added(dy, table_shape, self.where(indices, table_shape))

    @classmethod
    def examples(cls) -> Iterable[Example]:
        rows = np.array([[2, 0, 2], [1, 1, 0]], np.int32)
        for axis in (0, 1, 2, -1, -2):
            yield Example(cls(axis), (random(3, 4, 5), rows))
        yield Example(cls(), (random(6, 2), np.array([5, 0, 0, 3], np.int32)))
        yield Example(cls(1), (random(3, 4), np.array(2, np.int32)))
        for axis, batch_dims in ((1, 1), (2, 1), (2, 2), (-1, 1), (-1, -1)):
            yield Example(cls(axis, batch_dims), (random(2, 3, 4), rows))
        yield Example(cls(), (np.array([7, 8, 9], np.int64), np.array([2, 1], np.int32)))


@register("EMBEDDING_LOOKUP")
class EmbeddingLookup(Movement):
    """Rows of a table."""

    in_integers = InIntegers(Scales.KEPT, data=("table",), types=ONLY_8)
    parameters = ("table",)
    axes = Picks("ids")

    def infer(self, ids: TensorType, table: TensorType) -> TensorType:
        integers(self.name, "ids", ids)
        has_rank(self.name, "ids", ids, 1)
        if table.rank < 2:
            raise ModelError(f"{self.name}: table is {table}, expected rank 2 or more: one row per id")
        return TensorType(table.dtype, (*ids.shape, *table.shape[1:]))

    def forward(self, ids: Array, table: Array) -> Array:
        indices_below(self.name, ids, table.shape[0])
        return table[ids]

    def grad_table(self, dy: Array, ids: Array, table_shape: tuple[int, ...]) -> Array:
        return added(dy, table_shape, ids)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for shape in ((4, 3), (5, 2, 2)):
            yield Example(cls(), (np.array([3, 0, 3, 1], np.int32), random(*shape)))


@register("GATHER_ND", "GatherNdOptions")
class GatherNd(Movement):
    """The last axis of the indices holds the first coordinates of a part of the input."""

    parameters = ("table",)
    axes = LastAxis(data="indices")
    in_integers = InIntegers(Scales.KEPT, data=("table",))
    versions = Versions({DType.STRING: 2, DType.INT16: 3, DType.BOOL: 5})

    def infer(self, table: TensorType, indices: TensorType) -> TensorType:
        integers(self.name, "indices", indices)
        depth = indices.shape[-1] if indices.rank else 0
        if (not 1 <= depth <= table.rank and depth != 0) or not indices.rank:
            raise ModelError(f"{self.name}: indices are {indices}, expected a last size of 1 to {table.rank}")
        return TensorType(table.dtype, (*indices.shape[:-1], *table.shape[depth:]))

    def forward(self, table: Array, indices: Array) -> Array:
        found = table[_coordinates(self.name, indices, table.shape)]
        return (
            found if indices.shape[-1] else np.broadcast_to(table, (*indices.shape[:-1], *table.shape)).copy()
        )

    def grad_table(self, dy: Array, indices: Array, table_shape: tuple[int, ...]) -> Array:
        if not indices.shape[-1]:
            return dy.reshape(-1, *table_shape).sum(0)
        return added(dy, table_shape, _coordinates(self.name, indices, table_shape))

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for indices in ([[0, 1], [2, 3], [0, 1]], [[2], [0]], [[[0, 1, 2]], [[2, 3, 4]]], [1, 2]):
            yield Example(cls(), (random(3, 4, 5), np.array(indices, np.int32)))
        yield Example(cls(), (np.array([[1, 2], [3, 4]], np.int32), np.array([[1, 0]], np.int32)))


def _coordinates(op: str, indices: Array, shape: tuple[int, ...]) -> tuple[Array, ...]:
    """One index per leading axis."""
    columns = tuple(np.moveaxis(indices, -1, 0))
    for column, size in zip(columns, shape, strict=False):
        indices_below(op, column, size)
    return columns


@register("SCATTER_ND", "ScatterNdOptions")
class ScatterNd(Movement):
    """Zeros of the given shape with the updates added at the coordinates."""

    invents = True
    axes = Mixes("updates of one place add up")
    static_inputs = ("shape",)

    def infer(self, indices: TensorType, updates: TensorType, shape: TensorType) -> TensorType:
        integers(self.name, "indices", indices)
        rank, depth = length(self.name, "shape", shape), indices.shape[-1] if indices.rank else 0
        sizes = (-1,) * rank if shape.value is None else tuple(sizes_in(shape.value))
        if not isinstance(depth, Size) and depth < 0:
            return TensorType(updates.dtype, sizes)
        wanted = (*indices.shape[:-1], *sizes[depth:])
        fits = len(wanted) == updates.rank and all(map(same_size, wanted, updates.shape))
        if not 1 <= depth <= rank or not fits:
            expected = TensorType(updates.dtype, wanted)
            raise ModelError(f"{self.name}: updates are {updates} for indices {indices}, expected {expected}")
        return TensorType(updates.dtype, sizes)

    def forward(self, indices: Array, updates: Array, shape: Array) -> Array:
        sizes = tuple(int(n) for n in shape)
        return added(updates, sizes, _coordinates(self.name, indices, sizes))

    def grad_updates(self, dy: Array, indices: Array) -> Array:
        return dy[_coordinates(self.name, indices, dy.shape)]

    @classmethod
    def examples(cls) -> Iterable[Example]:
        cases: tuple[tuple[list[list[int]], tuple[int, ...], tuple[int, ...]], ...] = (
            ([[4], [1], [4]], (3,), (6,)),
            ([[0], [2]], (2, 4), (3, 4)),
            ([[0, 1], [2, 3], [2, 3]], (3, 5), (3, 4, 5)),
        )
        for indices, updates, shape in cases:
            yield Example(cls(), (np.array(indices, np.int32), random(*updates), np.array(shape, np.int32)))


@register("ONE_HOT", "OneHotOptions")
@record
class OneHot(Movement):
    """A new axis of `depth` elements, `on` at the index and `off` elsewhere; no `on` for an index outside."""

    invents = True
    axis: int = -1

    stops_gradient = True
    axes = Joins(is_new=True, data="indices")

    def infer(self, indices: TensorType, depth: TensorType, on: TensorType, off: TensorType) -> TensorType:
        integers(self.name, "indices", indices)
        same_dtype(self.name, on, off)
        count = scalar(self.name, "depth", depth)
        if count is not None and count < 0:
            raise ModelError(f"{self.name}: depth is {count}, expected at least 0")
        shape = list(indices.shape)
        shape.insert(axis_in(self.name, self.axis, indices.rank + 1), -1 if count is None else count)
        return TensorType(on.dtype, tuple(shape))

    def forward(self, indices: Array, depth: Array, on: Array, off: Array) -> Array:
        axis = self.axis % (indices.ndim + 1)
        positions = np.arange(int(depth.reshape(()))).reshape(-1, *[1] * (indices.ndim - axis))
        return np.where(np.expand_dims(indices, axis) == positions, on.reshape(()), off.reshape(()))

    @classmethod
    def examples(cls) -> Iterable[Example]:
        labels = np.array([[1, 0, 3], [2, -1, 9]], np.int32)
        for axis in (-1, 0, 1, 2):
            yield Example(cls(axis), (labels, np.array(4, np.int32), np.array(1.0), np.array(0.0)))
        yield Example(cls(), (labels[0], np.array(5, np.int32), np.array(0.9), np.array(0.025)))
        yield Example(cls(), (labels[0], np.array(4, np.int32), np.array(1, np.int32), np.array(0, np.int32)))
