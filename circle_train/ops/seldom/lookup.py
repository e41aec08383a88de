"""Rows of tables by number or key, added up as a sparse tensor says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import DType, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import CombinerType
from circle_train.ops.axes import Mixes
from circle_train.ops.base import Example, Op, random, register
from circle_train.ops.checks import has_rank, indices_below, integers, length, same_size, sizes_in
from circle_train.ops.movement import Movement, added
from circle_train.ops.window import check_floats
from circle_train.record import record


@register("EMBEDDING_LOOKUP_SPARSE", "EmbeddingLookupSparseOptions")
@record
class EmbeddingLookupSparse(Op):
    """Σ weight · row of all entries of a sparse tensor of row numbers that differ in their last coordinate alone.

    The mean divides by the weights' sum, SQRTN by the root of that of their squares.
    """

    combiner: CombinerType = CombinerType.SUM

    parameters = ("table",)
    static_inputs = ("shape",)
    axes = Mixes("rows are added up by coordinates that are data")

    def infer(
        self, ids: TensorType, places: TensorType, shape: TensorType, weights: TensorType, table: TensorType
    ) -> TensorType:
        for name, operand, rank in (("ids", ids, 1), ("places", places, 2), ("shape", shape, 1)):
            integers(self.name, name, operand)
            has_rank(self.name, name, operand, rank)
        check_floats(self.name, weights, table)
        rank = length(self.name, "shape", shape)
        entries = [operand.shape[0] for operand in (places, weights) if operand.rank]
        fits = len(entries) == 2 and all(same_size(size, ids.shape[0]) for size in entries)
        if rank < 1 or table.rank < 2 or not fits or not same_size(places.shape[1], rank):
            raise ModelError(
                f"{self.name}: rows {ids} at {places} of a tensor of rank {rank}, weights {weights} and the table {table} "
                "do not fit: the file is damaged"
            )
        outer = (-1,) * (rank - 1) if shape.value is None else tuple(sizes_in(shape.value))[:-1]
        return TensorType(table.dtype, (*outer, *table.shape[1:]))

    def forward(self, ids: Array, places: Array, shape: Array, weights: Array, table: Array) -> Array:
        indices_below(self.name, ids, table.shape[0])
        sizes = [int(n) for n in shape[:-1]]
        where = self.where(places, shape)
        rows = (weights * self.factors(where, weights, shape)[where]).reshape(-1, 1) * self.rows(ids, table)
        result: Array = added(rows, (self.count(shape), rows.shape[1]), where)
        return result.reshape(*sizes, *table.shape[1:])

    @staticmethod
    def count(shape: Array) -> int:
        return int(np.prod(shape[:-1], dtype=np.int64))

    @staticmethod
    def rows(ids: Array, table: Array) -> Array:
        found: Array = table[ids].reshape(len(ids), -1)
        return found

    def where(self, places: Array, shape: Array) -> Array:
        """The number of the sum to which each entry belongs."""
        outer, sizes = places[:, :-1].astype(np.int64), shape[:-1]
        if (outer < 0).any() or (outer >= sizes).any():
            raise ModelError(f"{self.name}: an entry lies outside of {sizes.tolist()}; check the data")
        steps = np.append(np.cumprod(sizes[:0:-1])[::-1], 1)[: len(sizes)]
        result: Array = outer @ steps.astype(np.int64) if len(sizes) else np.zeros(len(places), np.int64)
        return result

    def factors(self, where: Array, weights: Array, shape: Array) -> Array:
        """What each sum is multiplied by."""
        if self.combiner is CombinerType.SUM:
            return np.ones(self.count(shape), weights.dtype)
        is_mean = self.combiner is CombinerType.MEAN
        totals = added(weights if is_mean else weights * weights, (self.count(shape),), where)
        totals = totals if is_mean else np.sqrt(totals)
        result: Array = np.divide(1, totals, out=np.zeros_like(totals), where=totals != 0)
        return result

    def grad_table(
        self, dy: Array, ids: Array, places: Array, shape: Array, weights: Array, table_shape: tuple[int, ...]
    ) -> Array:
        where = self.where(places, shape)
        scales = weights * self.factors(where, weights, shape)[where]
        slopes = dy.reshape(self.count(shape), -1)[where] * scales.reshape(-1, 1)
        return added(slopes.reshape(len(ids), *table_shape[1:]), table_shape, ids)

    def grad_weights(
        self, dy: Array, ids: Array, places: Array, shape: Array, weights: Array, table: Array
    ) -> Array:
        where = self.where(places, shape)
        factors = self.factors(where, weights, shape)[where]
        slopes, rows = dy.reshape(self.count(shape), -1)[where], self.rows(ids, table)
        result: Array = (slopes * rows).sum(1) * factors
        if self.combiner is not CombinerType.SUM:
            sums = self.forward(ids, places, shape, weights, table).reshape(self.count(shape), -1)[where]
            share = factors if self.combiner is CombinerType.MEAN else factors * factors * weights
            result = result - (slopes * sums).sum(1) * share
        return result

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        return 2 * sum(t.shape[0] for t in inputs[:1] if t is not None) * outputs[0].shape[-1]

    @classmethod
    def examples(cls) -> Iterable[Example]:
        ids = np.array([1, 3, 0, 2], np.int32)
        weights = random(4, low=0.5, high=2.0)
        for combiner in CombinerType:
            flat = np.array([[0, 0], [0, 1], [2, 0], [2, 2]], np.int32), np.array([3, 4], np.int32)
            yield Example(cls(combiner), (ids, *flat, weights, random(4, 3)))
        deep = np.array([[0, 0, 0], [0, 1, 1], [1, 1, 0], [1, 1, 2]], np.int32), np.array([2, 2, 3], np.int32)
        yield Example(cls(), (ids, *deep, weights, random(4, 2, 3)))


@register("HASHTABLE_LOOKUP")
class HashtableLookup(Movement):
    """The rows whose keys, which rise, are asked for, zeros where there is none; and which were found."""

    axes = Mixes("rows are chosen by their keys")
    invents = True

    def infer(self, asked: TensorType, keys: TensorType, values: TensorType) -> Sequence[TensorType]:
        for name, operand in (("asked", asked), ("keys", keys)):
            integers(self.name, name, operand)
            has_rank(self.name, name, operand, 1)
        if values.rank < 1 or not same_size(keys.shape[0], values.shape[0]):
            raise ModelError(f"{self.name}: {keys} are no keys of the rows of {values}: the file is damaged")
        return [
            TensorType(values.dtype, (*asked.shape, *values.shape[1:])),
            TensorType(DType.UINT8, asked.shape),
        ]

    def where(self, asked: Array, keys: Array) -> tuple[Array, Array]:
        """Which were found, and in which row."""
        rows = np.searchsorted(keys, asked).clip(0, max(len(keys) - 1, 0))
        found: Array = keys[rows] == asked if len(keys) else np.zeros(len(asked), bool)
        return found, rows

    def forward(self, asked: Array, keys: Array, values: Array) -> tuple[Array, Array]:
        found, rows = self.where(asked, keys)
        result = np.zeros((len(asked), *values.shape[1:]), values.dtype)
        result[found] = values[rows[found]]
        return result, found.astype(np.uint8)

    def grad_values(
        self, dys: Sequence[Array], asked: Array, keys: Array, values_shape: tuple[int, ...]
    ) -> Array:
        found, rows = self.where(asked, keys)
        return added(dys[0][found], values_shape, rows[found])

    @classmethod
    def examples(cls) -> Iterable[Example]:
        keys = np.array([-3, 5, 9], np.int32)
        yield Example(cls(), (np.array([9, 4, -3, 9], np.int32), keys, random(3, 2)))
        yield Example(cls(), (np.array([5, 12], np.int32), keys, random(3, 2, 2)))
