"""Rows gathered into segments, each reduced to one row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from circle_train.errors import DataError, ModelError
from circle_train.ir import TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Along
from circle_train.ops.base import Example, Op, random, register
from circle_train.ops.checks import has_rank, integers, same_size, scalar
from circle_train.ops.movement import added


@register("SEGMENT_SUM", "SegmentSumOptions")
class SegmentSum(Op):
    """Sums of runs of rows; ids ascend, the last one decides how many segments there are."""

    axes = Along((0,))

    def infer(self, x: TensorType, ids: TensorType) -> TensorType:
        _check_ids(self.name, x, ids)
        count = -1 if ids.value is None else self.count(ids.value)
        return TensorType(x.dtype, (count, *x.shape[1:]))

    def count(self, ids: Array) -> int:
        if ids.size and (ids[0] < 0 or (np.diff(ids) < 0).any()):
            raise DataError(
                f"{self.name}: segment ids are {ids.tolist()}, expected ascending numbers of at least 0"
            )
        return int(ids[-1]) + 1 if ids.size else 0

    def forward(self, x: Array, ids: Array) -> Array:
        return added(x, (self.count(ids), *x.shape[1:]), ids)

    def grad_x(self, dy: Array, ids: Array) -> Array:
        return dy[ids]

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for shape in ((5,), (5, 3), (5, 2, 2)):
            yield Example(cls(), (random(*shape), np.array([0, 0, 1, 2, 2], np.int32)))
        yield Example(cls(), (random(4, 2), np.array([0, 0, 3, 3], np.int32)))


def _check_ids(op: str, x: TensorType, ids: TensorType) -> None:
    integers(op, "segment ids", ids)
    has_rank(op, "segment ids", ids, 1)
    if x.rank == 0 or not same_size(x.shape[0], ids.shape[0]):
        raise ModelError(f"{op}: segment ids are {ids}, expected one per row of the input {x}")


class UnsortedSegment(Op):
    """Reduces the rows of one id to one row, ids in any order; negative ones belong to no segment."""

    axes = Along((0,))

    def infer(self, x: TensorType, ids: TensorType, count: TensorType) -> TensorType:
        _check_ids(self.name, x, ids)
        number = scalar(self.name, "number of segments", count)
        return TensorType(x.dtype, (-1 if number is None else number, *x.shape[1:]))

    def reduce(self, ufunc: Any, empty: Any, x: Array, ids: Array, count: Array) -> Array:
        """Combine rows into rows that start as `empty`."""
        number = int(count.reshape(()))
        if ids.size and ids.max() >= number:
            raise DataError(
                f"{self.name}: segment id {int(ids.max())} is too large, expected less than {number}"
            )
        result = np.full((number, *x.shape[1:]), empty, x.dtype)
        ufunc.at(result, ids[ids >= 0], x[ids >= 0])
        return result

    @staticmethod
    def spread(rows: Array, ids: Array) -> Array:
        """For each input row the row of its segment; zeros for those of none."""
        return rows[np.maximum(ids, 0)] * (ids >= 0).reshape(-1, *[1] * (rows.ndim - 1))

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for shape in ((6,), (6, 3), (6, 2, 2)):
            ids = np.array([2, 0, 2, -1, 0, 1], np.int32)
            yield Example(cls(), (random(*shape), ids, np.array(3, np.int32)))
        yield Example(
            cls(), (np.array([4, -2, 7], np.int32), np.array([1, 0, 1], np.int32), np.array([4], np.int32))
        )


def _bounds(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """The least and greatest finite number."""
    limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    return limits.min, limits.max


@register("UNSORTED_SEGMENT_SUM", "UnsortedSegmentSumOptions")
class UnsortedSegmentSum(UnsortedSegment):
    def forward(self, x: Array, ids: Array, count: Array) -> Array:
        return self.reduce(np.add, 0, x, ids, count)

    def grad_x(self, dy: Array, ids: Array) -> Array:
        return self.spread(dy, ids)


class UnsortedSegmentExtremum(UnsortedSegment):
    """Ties share the gradient equally; a segment without rows is the least or greatest number there is."""

    def grad_x(self, dy: Array, x: Array, ids: Array, y: Array) -> Array:
        chosen = (x == self.spread(y, ids)) & (ids >= 0).reshape(-1, *[1] * (x.ndim - 1))
        ties = self.reduce(np.add, 0, chosen.astype(x.dtype), ids, np.array(len(y)))
        return chosen * self.spread(dy / np.maximum(ties, 1), ids)


@register("UNSORTED_SEGMENT_MAX", "UnsortedSegmentMaxOptions")
class UnsortedSegmentMax(UnsortedSegmentExtremum):
    def forward(self, x: Array, ids: Array, count: Array) -> Array:
        return self.reduce(np.maximum, _bounds(x.dtype)[0], x, ids, count)


@register("UNSORTED_SEGMENT_MIN", "UnsortedSegmentMinOptions")
class UnsortedSegmentMin(UnsortedSegmentExtremum):
    def forward(self, x: Array, ids: Array, count: Array) -> Array:
        return self.reduce(np.minimum, _bounds(x.dtype)[1], x, ids, count)


@register("UNSORTED_SEGMENT_PROD", "UnsortedSegmentProdOptions")
class UnsortedSegmentProd(UnsortedSegment):
    def forward(self, x: Array, ids: Array, count: Array) -> Array:
        return self.reduce(np.multiply, 1, x, ids, count)

    def grad_x(self, dy: Array, x: Array, ids: Array) -> Array:
        """dy times the product of the segment's other rows, which exists where factors are 0."""
        number = np.array(len(dy))
        zero = x == 0
        zeros = self.spread(self.reduce(np.add, 0, zero.astype(x.dtype), ids, number), ids) - zero
        rest = self.spread(self.reduce(np.multiply, 1, np.where(zero, x.dtype.type(1), x), ids, number), ids)
        others = np.where(zero, rest, rest / np.where(zero, x.dtype.type(1), x))
        return np.where(zeros > 0, dy.dtype.type(0), others) * self.spread(dy, ids)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield from super().examples()
        x = random(5, 3, low=0.5, high=2)
        x[0, 0] = x[1, 1] = x[3, 1] = 0
        yield Example(cls(), (x, np.array([0, 1, 0, 1, 1], np.int32), np.array(2, np.int32)))
