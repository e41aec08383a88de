"""Axes read backwards."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from circle_train.errors import DataError, ModelError
from circle_train.ir import DType, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Along, Mixes
from circle_train.ops.base import Example, random, register
from circle_train.ops.checks import axes_in, axis_in, has_rank, integers, same_size
from circle_train.ops.integers import KEPT
from circle_train.ops.movement import Movement
from circle_train.ops.versions import Versions
from circle_train.record import record


@register("REVERSE_V2", "ReverseV2Options")
class ReverseV2(Movement):
    axes = Along()
    in_integers = KEPT
    versions = Versions({DType.BOOL: 2, DType.INT8: 3})

    def infer(self, x: TensorType, axis: TensorType) -> TensorType:
        integers(self.name, "axis", axis)
        if axis.value is not None:
            axes_in(self.name, axis.value.reshape(-1), x.rank)
        return TensorType(x.dtype, x.shape)

    def forward(self, x: Array, axis: Array) -> Array:
        return np.flip(x, axes_in(self.name, axis.reshape(-1), x.ndim))

    def grad_x(self, dy: Array, axis: Array) -> Array:
        return self.forward(dy, axis)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for axes in ((0,), (-1,), (0, 1), (2, 1), (0, 1, 2)):
            yield Example(cls(), (random(2, 3, 4), np.array(axes, np.int32)))
        yield Example(cls(), (np.array([1, 2, 3], np.int32), np.array([0], np.int32)))


@register("REVERSE_SEQUENCE", "ReverseSequenceOptions")
@record
class ReverseSequence(Movement):
    """The first elements of each sequence backwards, as many as its length says; the rest stays."""

    seq_dim: int = 1
    batch_dim: int = 0

    axes = Mixes("an operand says how much of each sequence is turned")
    litert_lacks = frozenset({DType.BOOL, DType.INT8})

    def infer(self, x: TensorType, lengths: TensorType) -> TensorType:
        integers(self.name, "lengths", lengths)
        has_rank(self.name, "lengths", lengths, 1)
        seq, batch = (axis_in(self.name, axis, x.rank) for axis in (self.seq_dim, self.batch_dim))
        if seq == batch:
            raise ModelError(f"{self.name}: seq_dim and batch_dim are both axis {seq}, expected two axes")
        if not same_size(x.shape[batch], lengths.shape[0]):
            raise ModelError(
                f"{self.name}: lengths are {lengths}, expected one for each of axis {batch} of the input {x}"
            )
        return TensorType(x.dtype, x.shape)

    def forward(self, x: Array, lengths: Array) -> Array:
        size = x.shape[self.seq_dim]
        if lengths.size and (lengths.min() < 0 or lengths.max() > size):
            raise DataError(
                f"{self.name}: lengths are {lengths.tolist()}, expected 0 to {size}, the sequences' size"
            )
        steps = np.arange(size)
        ends = lengths.reshape(-1, 1)
        order = np.where(steps < ends, ends - 1 - steps, steps)
        rows = np.moveaxis(x, (self.batch_dim, self.seq_dim), (0, 1))
        turned = rows[np.arange(len(lengths)).reshape(-1, 1), order]
        return np.moveaxis(turned, (0, 1), (self.batch_dim, self.seq_dim))

    def grad_x(self, dy: Array, lengths: Array) -> Array:
        return self.forward(dy, lengths)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for seq, batch, lengths in (
            (1, 0, (2, 4, 1)),
            (0, 1, (3, 2, 1, 0)),
            (2, 0, (5, 3, 2)),
            (0, 2, (1, 2, 3, 2, 3)),
        ):
            yield Example(cls(seq, batch), (random(3, 4, 5), np.array(lengths, np.int32)))
