"""Formulas over graph tensors: arithmetic on symbols appends nodes. Losses are written so, users' own too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from circle_train.errors import ConfigError
from circle_train.ir import DType, Graph, Tensor
from circle_train.ir.graph import constant
from circle_train.ir.tensor_type import Array
from circle_train.losses import numpy_names
from circle_train.losses.indexing import strided, whole_key
from circle_train.ops import REGISTRY
from circle_train.ops.base import Op

Axes = int | Sequence[int] | None


@dataclass(frozen=True, eq=False)
class Symbol:
    """A tensor of a graph under construction, with operators, methods and functions as numpy has them.

    Comparisons give 1.0 and 0.0.
    """

    graph: Graph
    tensor: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    @property
    def T(self) -> Symbol:
        return self.transpose(*reversed(range(len(self.shape))))

    def __array_ufunc__(
        self, function: Callable[..., Any], method: str, first: Any, *rest: Any, **options: Any
    ) -> Symbol:
        """np.exp(symbol), and array * symbol, which numpy would otherwise try by itself."""
        if method != "__call__" or function not in numpy_names.UFUNCS or options:
            raise _unknown(function)
        made: Symbol = getattr(self._lifted(first), numpy_names.UFUNCS[function])(*rest)
        return made

    def __array_function__(
        self, function: Callable[..., Any], types: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Symbol:
        """np.mean(symbol, axis=1), np.where(symbol > 0, a, b), np.concatenate([symbol, …], axis=1)."""
        made: Symbol
        if function is np.where:
            made = self._where(*args)
        elif function is np.concatenate:
            made = self._concatenate(*args, **kwargs)
        elif function in numpy_names.FUNCTIONS:
            made = getattr(self._lifted(args[0]), numpy_names.FUNCTIONS[function])(*args[1:], **kwargs)
        else:
            raise _unknown(function)
        return made

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

    def __eq__(self, other: Any) -> Symbol:  # type: ignore[override]
        return self._with("EQUAL", other).as_float()

    def __ne__(self, other: Any) -> Symbol:  # type: ignore[override]
        return self._with("NOT_EQUAL", other).as_float()

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise ConfigError(
            "a symbol has no value yet, so it cannot decide an if; multiply by a comparison instead"
        )

    def __getitem__(self, key: Any) -> Symbol:
        """Integers, slices, an ellipsis, and None for a new axis."""
        keys = whole_key(key, self.shape)
        picks = [k for k in keys if k is not None]
        columns, masks = strided(picks, self.shape)
        picked = self.apply("STRIDED_SLICE", *columns, **masks)
        if len(picks) == len(keys):
            return picked
        sizes = iter(picked.shape)
        return picked.reshape(*[1 if k is None else next(sizes) for k in keys if not isinstance(k, int)])

    def square(self) -> Symbol:
        return self.apply("SQUARE")

    def abs(self) -> Symbol:
        return self.apply("ABS")

    def pow(self, exponent: Symbol | float | Array) -> Symbol:
        return self**exponent

    def sqrt(self) -> Symbol:
        return self.apply("SQRT")

    def exp(self) -> Symbol:
        return self.apply("EXP")

    def log(self) -> Symbol:
        return self.apply("LOG")

    def sin(self) -> Symbol:
        return self.apply("SIN")

    def cos(self) -> Symbol:
        return self.apply("COS")

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

    def mean(self, axis: Axes = None, keepdims: bool = False) -> Symbol:
        return self._reduce("MEAN", axis, keepdims)

    def sum(self, axis: Axes = None, keepdims: bool = False) -> Symbol:
        return self._reduce("SUM", axis, keepdims)

    def max(self, axis: Axes = None, keepdims: bool = False) -> Symbol:
        return self._reduce("REDUCE_MAX", axis, keepdims)

    def min(self, axis: Axes = None, keepdims: bool = False) -> Symbol:
        return self._reduce("REDUCE_MIN", axis, keepdims)

    def var(self, axis: Axes = None, keepdims: bool = False) -> Symbol:
        return (self - self.mean(axis, keepdims=True)).square().mean(axis, keepdims)

    def std(self, axis: Axes = None, keepdims: bool = False) -> Symbol:
        return self.var(axis, keepdims).sqrt()

    def reshape(self, *shape: int | Sequence[int]) -> Symbol:
        """To a shape given in one piece or in several; -1 is what remains."""
        return self.apply("RESHAPE", np.array(_in_one(shape), np.int32))

    def transpose(self, *axes: int | Sequence[int]) -> Symbol:
        """With its axes in this order; reversed if none is given."""
        order = _in_one(axes) or tuple(reversed(range(len(self.shape))))
        return self.apply("TRANSPOSE", np.array(order, np.int32))

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

    def _lifted(self, value: Any) -> Symbol:
        """A symbol itself, or a number or array as a constant beside this one."""
        return value if isinstance(value, Symbol) else self._like(value)

    def _where(self, condition: Any, chosen: Any, other: Any) -> Symbol:
        truth = self._lifted(condition)._with("NOT_EQUAL", 0.0)
        return truth.apply("SELECT_V2", self._lifted(chosen), self._lifted(other))

    def _concatenate(self, parts: Sequence[Any], axis: int = 0) -> Symbol:
        first, *rest = [self._lifted(part) for part in parts]
        return first.apply("CONCATENATION", *rest, axis=axis)

    def _reduce(self, op: str, axis: Axes, keepdims: bool) -> Symbol:
        axes = range(len(self.shape)) if axis is None else [axis] if isinstance(axis, int) else axis
        if not len(axes):
            return self
        return self.apply(op, constant(np.array(axes, np.int32), "axes"), keep_dims=keepdims)


def _in_one(sizes: Sequence[int | Sequence[int]]) -> tuple[int, ...]:
    """(2, 3) from (2, 3) and from ((2, 3),)."""
    first = sizes[0] if sizes else ()
    return tuple(sizes if isinstance(first, int) else first)  # type: ignore[arg-type]


def _unknown(function: Callable[..., Any]) -> ConfigError:
    return ConfigError(
        f"np.{function.__name__} of a symbol has no operator; use one of {numpy_names.known()}, "
        "or the symbol's own methods"
    )
