"""GATHER whose negative indices count from the end, as ONNX has it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from circle_train.ir import TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.base import Example, random, register
from circle_train.ops.movement import Movement
from circle_train.ops.rearranging import Picks
from circle_train.ops.shapes.index import Gather
from circle_train.record import record


@register("GATHER_FROM_END", internal=True)
@record
class GatherFromEnd(Movement):
    """Parts of the table along an axis."""

    axis: int = 0

    parameters = ("table",)
    axes = Picks()

    @property
    def plain(self) -> Gather:
        return Gather(self.axis)

    def infer(self, table: TensorType, indices: TensorType) -> TensorType:
        (result,) = self.plain.infer_types((table, indices))
        return result

    def forward(self, table: Array, indices: Array) -> Array:
        return self.plain.forward(table, self.wrapped(indices, table.shape))

    def grad_table(self, dy: Array, indices: Array, table_shape: tuple[int, ...]) -> Array:
        return self.plain.grad_table(dy, self.wrapped(indices, table_shape), table_shape)

    def wrapped(self, indices: Array, shape: tuple[int, ...]) -> Array:
        """Indices from 0."""
        return np.where(indices < 0, indices + shape[self.axis], indices)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        rows = np.array([[2, 0, -1], [-3, 1, 0]], np.int64)
        for axis in (0, 1, 2):
            yield Example(cls(axis), (random(3, 4, 5), rows))
