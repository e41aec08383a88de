"""Formulas over graph tensors: arithmetic on symbols appends nodes. Losses are written so, users' own too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from circle_train.ops.layers.linear import BatchMatMul
from circle_train.ops.numeric.activation import Logistic, LogSoftmax, Relu, Softmax, Tanh
from circle_train.ops.numeric.arithmetic import Add, Div, Maximum, Minimum, Mul, Pow, Sub
from circle_train.ops.numeric.fill import Cast
from circle_train.ops.numeric.logic import Equal, Greater, GreaterEqual, Less, LessEqual, NotEqual
from circle_train.ops.numeric.reduce import Mean, ReduceMax, ReduceMin, Sum
from circle_train.ops.numeric.select import SelectV2
from circle_train.ops.numeric.unary import Abs, Cos, Exp, Log, Neg, Sin, Sqrt, Square
from circle_train.ops.shapes.index import Gather
from circle_train.ops.shapes.join import Concatenation
from circle_train.ops.shapes.shape import Reshape, Transpose
from circle_train.ops.shapes.slice import StridedSlice
from circle_train.record import record

Axes = int | Sequence[int] | None


@record
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
        return self._with(Add(), other)

    def __sub__(self, other: Symbol | float | Array) -> Symbol:
        return self._with(Sub(), other)

    def __mul__(self, other: Symbol | float | Array) -> Symbol:
        return self._with(Mul(), other)

    def __truediv__(self, other: Symbol | float | Array) -> Symbol:
        return self._with(Div(), other)

    def __pow__(self, other: Symbol | float | Array) -> Symbol:
        return self.square() if isinstance(other, (int, float)) and other == 2 else self._with(Pow(), other)

    def __radd__(self, other: float | Array) -> Symbol:
        return self + other

    def __rmul__(self, other: float | Array) -> Symbol:
        return self * other

    def __rsub__(self, other: float | Array) -> Symbol:
        return self._like(other)._with(Sub(), self)

    def __rtruediv__(self, other: float | Array) -> Symbol:
        return self._like(other)._with(Div(), self)

    def __neg__(self) -> Symbol:
        return self.apply(Neg())

    def __abs__(self) -> Symbol:
        return self.apply(Abs())

    def __matmul__(self, other: Symbol) -> Symbol:
        return self.apply(BatchMatMul(), other)

    def __lt__(self, other: Any) -> Symbol:
        return self._with(Less(), other).as_float()

    def __gt__(self, other: Any) -> Symbol:
        return self._with(Greater(), other).as_float()

    def __le__(self, other: Any) -> Symbol:
        return self._with(LessEqual(), other).as_float()

    def __ge__(self, other: Any) -> Symbol:
        return self._with(GreaterEqual(), other).as_float()

    def __eq__(self, other: Any) -> Symbol:  # type: ignore[override]
        return self._with(Equal(), other).as_float()

    def __ne__(self, other: Any) -> Symbol:  # type: ignore[override]
        return self._with(NotEqual(), other).as_float()

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
        picked = self.apply(StridedSlice(**masks), *columns)
        if len(picks) == len(keys):
            return picked
        sizes = iter(picked.shape)
        return picked.reshape(*[1 if k is None else next(sizes) for k in keys if not isinstance(k, int)])

    def square(self) -> Symbol:
        return self.apply(Square())

    def abs(self) -> Symbol:
        return self.apply(Abs())

    def pow(self, exponent: Symbol | float | Array) -> Symbol:
        return self**exponent

    def sqrt(self) -> Symbol:
        return self.apply(Sqrt())

    def exp(self) -> Symbol:
        return self.apply(Exp())

    def log(self) -> Symbol:
        return self.apply(Log())

    def sin(self) -> Symbol:
        return self.apply(Sin())

    def cos(self) -> Symbol:
        return self.apply(Cos())

    def relu(self) -> Symbol:
        return self.apply(Relu())

    def tanh(self) -> Symbol:
        return self.apply(Tanh())

    def sigmoid(self) -> Symbol:
        return self.apply(Logistic())

    def softmax(self) -> Symbol:
        return self.apply(Softmax(beta=1.0))

    def log_softmax(self) -> Symbol:
        return self.apply(LogSoftmax())

    def maximum(self, other: Symbol | float | Array) -> Symbol:
        return self._with(Maximum(), other)

    def minimum(self, other: Symbol | float | Array) -> Symbol:
        return self._with(Minimum(), other)

    def clip(self, low: float, high: float) -> Symbol:
        return self.maximum(low).minimum(high)

    def mean(self, axis: Axes = None, keepdims: bool = False) -> Symbol:
        return self._reduce(Mean(keep_dims=keepdims), axis)

    def sum(self, axis: Axes = None, keepdims: bool = False) -> Symbol:
        return self._reduce(Sum(keep_dims=keepdims), axis)

    def max(self, axis: Axes = None, keepdims: bool = False) -> Symbol:
        return self._reduce(ReduceMax(keep_dims=keepdims), axis)

    def min(self, axis: Axes = None, keepdims: bool = False) -> Symbol:
        return self._reduce(ReduceMin(keep_dims=keepdims), axis)

    def var(self, axis: Axes = None, keepdims: bool = False) -> Symbol:
        return (self - self.mean(axis, keepdims=True)).square().mean(axis, keepdims)

    def std(self, axis: Axes = None, keepdims: bool = False) -> Symbol:
        return self.var(axis, keepdims).sqrt()

    def reshape(self, *shape: int | Sequence[int]) -> Symbol:
        """To a shape given in one piece or in several; -1 is what remains."""
        return self.apply(Reshape(), np.array(_in_one(shape), np.int32))

    def transpose(self, *axes: int | Sequence[int]) -> Symbol:
        """With its axes in this order; reversed if none is given."""
        order = _in_one(axes) or tuple(reversed(range(len(self.shape))))
        return self.apply(Transpose(), np.array(order, np.int32))

    def gather(self, indices: Symbol, axis: int = 0) -> Symbol:
        """Elements along an axis, by number."""
        return self.apply(Gather(axis=axis), indices)

    def as_float(self) -> Symbol:
        """Numbers and truth values as float32."""
        if self.tensor.dtype is DType.FLOAT32:
            return self
        return self.apply(Cast(self.tensor.dtype, DType.FLOAT32))

    def _with(self, op: Op, other: Symbol | float | Array) -> Symbol:
        """An op of two operands; a number or array becomes one of this symbol's element type."""
        return self.apply(op, other if isinstance(other, Symbol) else self._like(other))

    def _like(self, value: float | Array) -> Symbol:
        return Symbol(self.graph, constant(np.asarray(value).astype(self.tensor.dtype.numpy)))

    def _lifted(self, value: Any) -> Symbol:
        """A symbol itself, or a number or array as a constant beside this one."""
        return value if isinstance(value, Symbol) else self._like(value)

    def _where(self, condition: Any, chosen: Any, other: Any) -> Symbol:
        truth = self._lifted(condition)._with(NotEqual(), 0.0)
        return truth.apply(SelectV2(), self._lifted(chosen), self._lifted(other))

    def _concatenate(self, parts: Sequence[Any], axis: int = 0) -> Symbol:
        first, *rest = [self._lifted(part) for part in parts]
        return first.apply(Concatenation(axis=axis), *rest)

    def _reduce(self, op: Op, axis: Axes) -> Symbol:
        axes = range(len(self.shape)) if axis is None else [axis] if isinstance(axis, int) else axis
        if not len(axes):
            return self
        return self.apply(op, constant(np.array(axes, np.int32), "axes"))


def _in_one(sizes: Sequence[int | Sequence[int]]) -> tuple[int, ...]:
    """(2, 3) from (2, 3) and from ((2, 3),)."""
    return tuple(n for size in sizes for n in ([size] if isinstance(size, int) else size))


def _unknown(function: Callable[..., Any]) -> ConfigError:
    return ConfigError(
        f"np.{function.__name__} of a symbol has no operator; use one of {numpy_names.known()}, "
        "or the symbol's own methods"
    )
