"""Formulas over graph tensors: arithmetic on symbols appends nodes. Losses are written so, users' own too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from circle_train.errors import ConfigError
from circle_train.ir import DType, Graph, Tensor
from circle_train.ir.graph import constant
from circle_train.ir.tensor_type import Array
from circle_train.ops import REGISTRY
from circle_train.ops.base import Op

Axes = int | Sequence[int] | None


@dataclass(frozen=True, eq=False)
class Symbol:
    """A tensor of a graph under construction, with the operators of numpy; comparisons give 1.0 and 0.0."""

    graph: Graph
    tensor: Tensor
    __array_ufunc__ = None
    """numpy's numbers leave `number * symbol` to the symbol."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    def apply(self, op: Op | str, *others: Symbol | Tensor | float | Array, **options: Any) -> Symbol:
        """The op with this symbol as its first input; numbers become constants of this symbol's type."""
        made = REGISTRY[op](**options) if isinstance(op, str) else op
        return Symbol(self.graph, self.graph.emit(made, self.tensor, *map(self.operand, others)))

    def operand(self, value: Symbol | Tensor | float | Array) -> Tensor:
        if isinstance(value, Symbol):
            return value.tensor
        if isinstance(value, Tensor):
            return value
        array = np.asarray(value)
        is_alike = isinstance(value, (int, float)) or (array.dtype.kind == "f" and self.tensor.dtype.is_float)
        return constant(array.astype(self.tensor.dtype.numpy) if is_alike else array)

    def __add__(self, other: Symbol | float | Array) -> Symbol:
        return self._with("ADD", other)

    def __sub__(self, other: Symbol | float | Array) -> Symbol:
        return self._with("SUB", other)

    def __mul__(self, other: Symbol | float | Array) -> Symbol:
        return self._with("MUL", other)

    def __truediv__(self, other: Symbol | float | Array) -> Symbol:
        return self._with("DIV", other)

    def __pow__(self, other: Symbol | float | Array) -> Symbol:
        return self.square() if isinstance(other, (int, float)) and other == 2 else self._with("POW", other)

    def __radd__(self, other: float | Array) -> Symbol:
        return self + other

    def __rmul__(self, other: float | Array) -> Symbol:
        return self * other

    def __rsub__(self, other: float | Array) -> Symbol:
        return self._like(other)._with("SUB", self)

    def __rtruediv__(self, other: float | Array) -> Symbol:
        return self._like(other)._with("DIV", self)

    def __neg__(self) -> Symbol:
        return self.apply("NEG")

    def __abs__(self) -> Symbol:
        return self.apply("ABS")

    def __matmul__(self, other: Symbol) -> Symbol:
        return self.apply("BATCH_MATMUL", other)

    def __lt__(self, other: Any) -> Symbol:
        return self._with("LESS", other).as_float()

    def __gt__(self, other: Any) -> Symbol:
        return self._with("GREATER", other).as_float()

    def __le__(self, other: Any) -> Symbol:
        return self._with("LESS_EQUAL", other).as_float()

    def __ge__(self, other: Any) -> Symbol:
        return self._with("GREATER_EQUAL", other).as_float()

    def __bool__(self) -> bool:
        raise ConfigError(
            "a symbol has no value yet, so it cannot decide an if; multiply by a comparison instead"
        )

    def __getitem__(self, key: Any) -> Symbol:
        """Integers and slices, one for each of the first axes."""
        keys = key if isinstance(key, tuple) else (key,)
        spans = [
            range(size)[k] if isinstance(k, slice) else k for k, size in zip(keys, self.shape, strict=False)
        ]
        if len(keys) > len(self.shape) or not all(isinstance(span, (int, range)) for span in spans):
            raise ConfigError(
                f"{key!r} cannot index a symbol of shape {self.shape}; use integers and slices with steps"
            )
        shrunk = sum(1 << i for i, span in enumerate(spans) if isinstance(span, int))
        entries = [
            (s, s + 1 or self.shape[i], 1) if isinstance(s, int) else (s.start, s.stop, s.step)
            for i, s in enumerate(spans)
        ]
        open_ends = sum(1 << i for i, (_, stop, _) in enumerate(entries) if stop < 0)
        columns = [np.array(column, np.int32) for column in zip(*entries, strict=True)]
        return self.apply("STRIDED_SLICE", *columns, shrink_axis_mask=shrunk, end_mask=open_ends)

    def square(self) -> Symbol:
        return self.apply("SQUARE")

    def sqrt(self) -> Symbol:
        return self.apply("SQRT")

    def exp(self) -> Symbol:
        return self.apply("EXP")

    def log(self) -> Symbol:
        return self.apply("LOG")

    def relu(self) -> Symbol:
        return self.apply("RELU")

    def tanh(self) -> Symbol:
        return self.apply("TANH")

    def sigmoid(self) -> Symbol:
        return self.apply("LOGISTIC")

    def softmax(self) -> Symbol:
        return self.apply("SOFTMAX", beta=1.0)

    def log_softmax(self) -> Symbol:
        return self.apply("LOG_SOFTMAX")

    def maximum(self, other: Symbol | float | Array) -> Symbol:
        return self._with("MAXIMUM", other)

    def minimum(self, other: Symbol | float | Array) -> Symbol:
        return self._with("MINIMUM", other)

    def clip(self, low: float, high: float) -> Symbol:
        return self.maximum(low).minimum(high)

    def mean(self, axis: Axes = None, keep_dims: bool = False) -> Symbol:
        return self._reduce("MEAN", axis, keep_dims)

    def sum(self, axis: Axes = None, keep_dims: bool = False) -> Symbol:
        return self._reduce("SUM", axis, keep_dims)

    def max(self, axis: Axes = None, keep_dims: bool = False) -> Symbol:
        return self._reduce("REDUCE_MAX", axis, keep_dims)

    def min(self, axis: Axes = None, keep_dims: bool = False) -> Symbol:
        return self._reduce("REDUCE_MIN", axis, keep_dims)

    def reshape(self, *shape: int) -> Symbol:
        return self.apply("RESHAPE", np.array(shape, np.int32))

    def transpose(self, *axes: int) -> Symbol:
        return self.apply("TRANSPOSE", np.array(axes, np.int32))

    def gather(self, indices: Symbol, axis: int = 0) -> Symbol:
        """Elements along an axis, by number."""
        return self.apply("GATHER", indices, axis=axis)

    def as_float(self) -> Symbol:
        """Numbers and truth values as float32."""
        if self.tensor.dtype is DType.FLOAT32:
            return self
        return self.apply("CAST", in_data_type=self.tensor.dtype, out_data_type=DType.FLOAT32)

    def _with(self, op: str, other: Symbol | float | Array) -> Symbol:
        """An op of two operands; a number or array becomes one of this symbol's element type."""
        return self.apply(op, other if isinstance(other, Symbol) else self._like(other))

    def _like(self, value: float | Array) -> Symbol:
        return Symbol(self.graph, constant(np.asarray(value).astype(self.tensor.dtype.numpy)))

    def _reduce(self, op: str, axis: Axes, keep_dims: bool) -> Symbol:
        axes = range(len(self.shape)) if axis is None else [axis] if isinstance(axis, int) else axis
        if not len(axes):
            return self
        return self.apply(op, constant(np.array(axes, np.int32), "axes"), keep_dims=keep_dims)
