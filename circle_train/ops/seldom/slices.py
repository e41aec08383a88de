"""StableHLO's gather and scatter: slices of a tensor, from and to where vectors of indices say that they begin."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from circle_train.errors import ModelError, UnsupportedOpError
from circle_train.ir import TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Mixes
from circle_train.ops.base import REGISTRY, Example, random, register
from circle_train.ops.checks import integers
from circle_train.ops.control.subgraph import WithGraphs
from circle_train.ops.movement import Movement, added
from circle_train.ops.seldom.stablehlo import TWINS, combining, only_operator
from circle_train.record import record

COMBINED = {"ADD": np.add, "MUL": np.multiply, "MAXIMUM": np.maximum, "MINIMUM": np.minimum}


def vectors(starts: Array, vector_axis: int) -> Array:
    """The indices with each vector along the last axis."""
    return starts[..., None] if vector_axis == starts.ndim else np.moveaxis(starts, vector_axis, -1)


def batch_sizes(shape: Sequence[int], vector_axis: int) -> list[int]:
    """The axes of the indices that count vectors."""
    return [size for axis, size in enumerate(shape) if axis != vector_axis]


@register("STABLEHLO_GATHER", "StablehloGatherOptions")
@record
class StablehloGather(Movement):
    """Slices of one size, one for each vector of indices; one that would reach beyond an edge begins earlier."""

    offset_dims: tuple[int, ...] = ()
    collapsed_slice_dims: tuple[int, ...] = ()
    start_index_map: tuple[int, ...] = ()
    index_vector_dim: int = 0
    slice_sizes: tuple[int, ...] = ()

    axes = Mixes("slices begin anywhere")

    def infer(self, table: TensorType, starts: TensorType) -> TensorType:
        integers(self.name, "starts", starts)
        left = [size for axis, size in enumerate(self.slice_sizes) if axis not in self.collapsed_slice_dims]
        batch = batch_sizes(starts.shape, self.index_vector_dim)
        rank = len(left) + len(batch)
        fits = all(
            0 < size <= whole or whole < 0 for size, whole in zip(self.slice_sizes, table.shape, strict=True)
        )
        ones = all(self.slice_sizes[axis] == 1 for axis in self.collapsed_slice_dims)
        if len(left) != len(self.offset_dims) or not fits or not ones:
            raise ModelError(
                f"{self.name}: slices of {list(self.slice_sizes)} do not fit {table}: the file is damaged"
            )
        sizes = iter(batch)
        offsets = dict(zip(self.offset_dims, left, strict=True))
        return TensorType(
            table.dtype, tuple(offsets[a] if a in offsets else next(sizes) for a in range(rank))
        )

    def where(self, starts: Array, shape: Sequence[int]) -> tuple[Array, ...]:
        """For each axis of the table an index; together they broadcast to the output's shape."""
        begins = vectors(starts, self.index_vector_dim).astype(np.int64)
        rank = begins.ndim - 1 + len(self.offset_dims)
        batch = [axis for axis in range(rank) if axis not in self.offset_dims]
        left = [axis for axis in range(len(shape)) if axis not in self.collapsed_slice_dims]
        windows = dict(zip(left, self.offset_dims, strict=True))
        places = []
        for axis, size in enumerate(self.slice_sizes):
            place = np.zeros((1,) * rank, np.int64)
            if axis in self.start_index_map:
                begin = begins[..., self.start_index_map.index(axis)].clip(0, shape[axis] - size)
                place = place + _along(begin, batch, rank)
            if axis in windows:
                place = place + _along(np.arange(size), [windows[axis]], rank)
            places.append(place)
        return tuple(places)

    def forward(self, table: Array, starts: Array) -> Array:
        (made,) = self.infer_types([TensorType.of(table), TensorType.of(starts)])
        return np.broadcast_to(table[self.where(starts, table.shape)], made.shape)

    def grad_table(self, dy: Array, starts: Array, table_shape: tuple[int, ...]) -> Array:
        return added(dy, table_shape, self.where(starts, table_shape))

    @classmethod
    def examples(cls) -> Iterable[Example]:
        rows = np.array([[0, 1], [2, 0], [1, 3]], np.int32)
        yield Example(cls((1,), (0,), (0, 1), 1, (1, 2)), (random(3, 5), rows))
        yield Example(cls((0, 2), (), (0, 1), 1, (2, 3)), (random(3, 5), rows))
        yield Example(cls((2,), (0,), (0,), 2, (1, 4)), (random(6, 4), np.array([[5, 0], [9, 2]], np.int32)))


@register("STABLEHLO_SCATTER", "StablehloScatterOptions")
@record
class StablehloScatter(WithGraphs):
    """Updates put into a tensor, or combined with what is there as the graph says; what lies beyond an edge is left out."""

    update_window_dims: tuple[int, ...] = ()
    inserted_window_dims: tuple[int, ...] = ()
    scatter_dims_to_operand_dims: tuple[int, ...] = ()
    index_vector_dim: int = 0
    update_computation_subgraph_index: int = field(default=0, compare=False)

    graph_options = ("update_computation_subgraph_index",)
    axes = Mixes("slices lie anywhere")

    def infer(self, x: TensorType, starts: TensorType, updates: TensorType) -> TensorType:
        integers(self.name, "starts", starts)
        windows, inserted = self.update_window_dims, self.inserted_window_dims
        batch = len(batch_sizes(starts.shape, self.index_vector_dim))
        if (
            x.dtype is not updates.dtype
            or len(windows) + len(inserted) != x.rank
            or batch + len(windows) != updates.rank
        ):
            raise ModelError(
                f"{self.name}: updates {updates} at {starts} do not fit {x}: the file is damaged"
            )
        return TensorType(x.dtype, x.shape)

    @property
    def combine(self) -> Any:
        """How an update goes with what is there; None: it takes its place."""
        (graph,) = self.graphs
        if graph.outputs == graph.inputs[1:]:
            return None
        combine = COMBINED.get(only_operator(graph))
        if combine is None:
            raise UnsupportedOpError(
                f"{self.name}: combines by '{graph.name}', expected one sum, product, maximum or minimum, or the update"
            )
        return combine

    def where(
        self, starts: Array, shape: Sequence[int], updates: Sequence[int]
    ) -> tuple[tuple[Array, ...], Array]:
        """The places of the updates that lie inside, and which those are."""
        begins, rank = vectors(starts, self.index_vector_dim).astype(np.int64), len(updates)
        batch = [axis for axis in range(rank) if axis not in self.update_window_dims]
        left = [axis for axis in range(len(shape)) if axis not in self.inserted_window_dims]
        windows = dict(zip(left, self.update_window_dims, strict=True))
        inside, places = np.ones(tuple(updates), bool), []
        for axis, size in enumerate(shape):
            place = np.zeros(tuple(updates), np.int64)
            if axis in self.scatter_dims_to_operand_dims:
                begin = begins[..., self.scatter_dims_to_operand_dims.index(axis)]
                place = place + _along(begin, batch, rank)
            if axis in windows:
                place = place + _along(np.arange(updates[windows[axis]]), [windows[axis]], rank)
            inside &= (place >= 0) & (place < size)
            places.append(place)
        return tuple(place[inside] for place in places), inside

    def forward(self, x: Array, starts: Array, updates: Array) -> Array:
        places, inside = self.where(starts, x.shape, updates.shape)
        y, combine = np.array(x), self.combine
        if combine is None:
            y[places] = updates[inside]
        else:
            combine.at(y, places, updates[inside])
        return y

    def grad_x(self, dy: Array, x: Array, starts: Array, updates: Array) -> Array:
        combine, (places, inside) = self.combine, self.where(starts, x.shape, updates.shape)
        if combine is np.add:
            return dy
        if combine is None:
            result = np.array(dy)
            result[places] = 0
            return result
        if combine is np.multiply:
            return dy * self._factors(x, places, updates[inside])
        return dy * (x == self.forward(x, starts, updates))

    def grad_updates(self, dy: Array, x: Array, starts: Array, updates: Array) -> Array:
        combine, (places, inside) = self.combine, self.where(starts, x.shape, updates.shape)
        slopes, given = dy[places], updates[inside]
        if combine is None:
            writer = np.full(x.shape, -1)
            writer[places] = np.arange(len(given))
            slopes = slopes * (writer[places] == np.arange(len(given)))
        elif combine is np.multiply:
            others = self._factors(x, places, given)[places] / np.where(given == 0, 1, given)
            slopes = slopes * x[places] * others
        elif combine is not np.add:
            slopes = slopes * ((given == self.forward(x, starts, updates)[places]) & (given != x[places]))
        result = np.zeros_like(updates)
        result[inside] = slopes
        return result

    @staticmethod
    def _factors(x: Array, places: tuple[Array, ...], updates: Array) -> Array:
        """What each element is multiplied by."""
        factors = np.ones_like(x)
        np.multiply.at(factors, places, updates)
        return factors

    @classmethod
    def examples(cls) -> Iterable[Example]:
        starts = np.array([[1], [3], [9]], np.int32)
        for op in (None, *(REGISTRY[name]() for name in TWINS)):
            given = cls(
                update_window_dims=(1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,), index_vector_dim=1,
                graphs=(combining(op),),
            )  # fmt: skip
            yield Example(given, (random(5, 4), starts, random(3, 4, seed=1)))
        whole = replace(
            given, update_window_dims=(), inserted_window_dims=(0, 1), scatter_dims_to_operand_dims=(0, 1),
            graphs=(combining(REGISTRY["STABLEHLO_ADD"]()),),
        )  # fmt: skip
        yield Example(whole, (random(3, 4), np.array([[1, 2], [0, 3], [1, 2]], np.int32), random(3)))


def _along(values: Array, axes: Sequence[int], rank: int) -> Array:
    """Values whose axes are these of so many."""
    shape = [1] * rank
    for axis, size in zip(axes, values.shape, strict=True):
        shape[axis] = size
    return values.reshape(shape)
