"""Matrices made of diagonals, and diagonals put into matrices."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import Node, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import LastAxis
from circle_train.ops.base import Example, random, register
from circle_train.ops.checks import same_size
from circle_train.ops.movement import Movement
from circle_train.record import record


@record
class Matrices(LastAxis):
    """Matrix by matrix, a matrix being the result's last two axes."""

    def kept(self, node: Node, index: int, axis: int) -> int | None:
        return super().kept(node, index, axis) if axis < node.outputs[0].type.rank - 2 else None


def diagonal_of(x: Array) -> Array:
    """The main diagonals of the last two axes."""
    return np.diagonal(x, axis1=-2, axis2=-1)


@register("MATRIX_DIAG", "MatrixDiagOptions")
class MatrixDiag(Movement):
    """Square matrices with these diagonals."""

    invents = True
    axes = Matrices()

    def infer(self, x: TensorType) -> TensorType:
        if not x.rank:
            raise ModelError(f"{self.name}: x is {x}, expected a diagonal at least")
        return TensorType(x.dtype, (*x.shape, x.shape[-1]))

    def forward(self, x: Array) -> Array:
        return x[..., None] * np.eye(x.shape[-1], dtype=x.dtype)

    def grad_x(self, dy: Array) -> Array:
        return diagonal_of(dy).copy()

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for shape in ((3,), (2, 3), (2, 1, 4)):
            yield Example(cls(), (random(*shape),))
        yield Example(cls(), (np.array([[1, 2], [3, 4]], np.int32),))


@register("MATRIX_SET_DIAG", "MatrixSetDiagOptions")
class MatrixSetDiag(Movement):
    """Matrices with other diagonals."""

    axes = Matrices(("diagonal",))

    def infer(self, x: TensorType, diagonal: TensorType) -> TensorType:
        if x.rank < 2 or diagonal.rank != x.rank - 1:
            raise ModelError(f"{self.name}: diagonals are {diagonal}, expected those of the matrices {x}")
        least = min(x.shape[-2:]) if min(x.shape[-2:]) >= 0 else -1
        sizes = zip(diagonal.shape, (*x.shape[:-2], least), strict=True)
        if not all(same_size(a, b) for a, b in sizes):
            raise ModelError(f"{self.name}: diagonals are {diagonal}, expected those of the matrices {x}")
        return TensorType(x.dtype, x.shape)

    def forward(self, x: Array, diagonal: Array) -> Array:
        y = x.copy()
        places = np.arange(diagonal.shape[-1])
        y[..., places, places] = diagonal
        return y

    def grad_x(self, dy: Array) -> Array:
        return self.forward(dy, np.zeros((*dy.shape[:-2], min(dy.shape[-2:])), dy.dtype))

    def grad_diagonal(self, dy: Array) -> Array:
        return diagonal_of(dy).copy()

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for shape in ((3, 3), (2, 3, 4), (2, 4, 3)):
            yield Example(cls(), (random(*shape), random(*shape[:-2], 3, seed=1)))
        yield Example(cls(), (np.ones((2, 2), np.int32), np.array([5, 7], np.int32)))
