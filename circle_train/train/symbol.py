"""Formulas over graph tensors: arithmetic on symbols appends nodes. Losses are written with it, users' own too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from circle_train.ir import Graph, Tensor
from circle_train.ir.graph import constant
from circle_train.ops import REGISTRY
from circle_train.ops.base import Op


@dataclass(frozen=True)
class Symbol:
    """A tensor of a graph under construction, with the operators of numpy."""

    graph: Graph
    tensor: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    def apply(self, op: Op | str, *others: Symbol | Tensor | float | np.ndarray[Any, Any], **options: Any) -> Symbol:
        """The op with this symbol as its first input; numbers become constants of this symbol's type."""
        made = REGISTRY[op](**options) if isinstance(op, str) else op
        return Symbol(self.graph, self.graph.emit(made, self.tensor, *(self.operand(other) for other in others)))

    def operand(self, value: Symbol | Tensor | float | np.ndarray[Any, Any]) -> Tensor:
        if isinstance(value, Symbol):
            return value.tensor
        if isinstance(value, Tensor):
            return value
        array = np.asarray(value)
        is_number = isinstance(value, (int, float)) or array.dtype.kind == "f"
        return constant(array.astype(self.tensor.dtype.numpy) if is_number else array)

    def __add__(self, other: Symbol | float) -> Symbol:
        return self.apply("ADD", other)

    def __sub__(self, other: Symbol | float) -> Symbol:
        return self.apply("SUB", other)

    def __mul__(self, other: Symbol | float) -> Symbol:
        return self.apply("MUL", other)

    def __truediv__(self, other: Symbol | float) -> Symbol:
        return self.apply("DIV", other)

    def __pow__(self, other: Symbol | float) -> Symbol:
        return self.apply("POW", other)

    def __radd__(self, other: float) -> Symbol:
        return self + other

    def __rmul__(self, other: float) -> Symbol:
        return self * other

    def __rsub__(self, other: float) -> Symbol:
        return Symbol(self.graph, self.operand(other)).apply("SUB", self)

    def __rtruediv__(self, other: float) -> Symbol:
        return Symbol(self.graph, self.operand(other)).apply("DIV", self)

    def __neg__(self) -> Symbol:
        return self.apply("NEG")

    def __abs__(self) -> Symbol:
        return self.apply("ABS")

    def square(self) -> Symbol:
        return self.apply("SQUARE")

    def sqrt(self) -> Symbol:
        return self.apply("SQRT")

    def exp(self) -> Symbol:
        return self.apply("EXP")

    def log(self) -> Symbol:
        return self.apply("LOG")

    def sigmoid(self) -> Symbol:
        return self.apply("LOGISTIC")

    def softmax(self) -> Symbol:
        return self.apply("SOFTMAX", beta=1.0)

    def maximum(self, other: Symbol | float) -> Symbol:
        return self.apply("MAXIMUM", other)

    def minimum(self, other: Symbol | float) -> Symbol:
        return self.apply("MINIMUM", other)

    def mean(self, axis: int | tuple[int, ...] | None = None) -> Symbol:
        return self._reduce("MEAN", axis)

    def sum(self, axis: int | tuple[int, ...] | None = None) -> Symbol:
        return self._reduce("SUM", axis)

    def _reduce(self, op: str, axis: int | tuple[int, ...] | None) -> Symbol:
        axes = tuple(range(len(self.shape))) if axis is None else (axis,) if isinstance(axis, int) else axis
        if not axes:
            return self
        return self.apply(op, constant(np.array(axes, np.int32), "axes"), keep_dims=False)
