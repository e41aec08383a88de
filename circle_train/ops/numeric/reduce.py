"""Reductions over given axes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import DType, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Along
from circle_train.ops.base import Example, Op, random, register
from circle_train.ops.checks import axes_in, booleans, integers
from circle_train.ops.integers import KEPT, OWN
from circle_train.ops.versions import BOTH_2, INT8, INT8_INT16, SHORT, Versions
from circle_train.record import record

AXES = ((-1,), (0, 2), (1, -1), (2, 1, 1), (0, 1, 2, 3), ())
"""Axis lists of the examples: any sign, order and repetition; none at all leaves the tensor as it is."""


@record
class Reducer(Op):
    """Reduces the axes named by the second input; negative ones count from the end, repeated ones once."""

    keep_dims: bool = False

    low: ClassVar[float] = -1.0
    axes = Along(is_reduced=True)

    def infer(self, x: TensorType, axis: TensorType) -> TensorType:
        integers(self.name, "axis", axis)
        if axis.rank > 1:
            raise ModelError(f"{self.name}: axis is {axis}, expected a scalar or a vector of axes")
        if axis.value is not None:
            axes = axes_in(self.name, axis.value.reshape(-1), x.rank)
            sizes = [
                1 if i in axes else size for i, size in enumerate(x.shape) if self.keep_dims or i not in axes
            ]
            return TensorType(x.dtype, tuple(sizes))
        if self.keep_dims:
            return TensorType(x.dtype, (-1,) * x.rank)
        if axis.size != 1 or not x.rank:
            raise ModelError(
                f"{self.name}: the result's rank depends on axes computed at run time, expected a constant"
            )
        return TensorType(x.dtype, (-1,) * (x.rank - 1))

    def along(self, axis: Array, rank: int) -> tuple[int, ...]:
        return axes_in(self.name, axis.reshape(-1), rank)

    def kept(self, array: Array, axis: Array, x_shape: tuple[int, ...]) -> Array:
        """The reduced array with its axes of size 1 back in place."""
        axes = self.along(axis, len(x_shape))
        return array.reshape([1 if i in axes else size for i, size in enumerate(x_shape)])

    @classmethod
    def examples(cls) -> Iterable[Example]:
        x = random(2, 3, 4, 2, low=cls.low)
        for axes in AXES:
            for keep_dims in (False, True):
                yield Example(cls(keep_dims), (x, np.array(axes, np.int32)))
        yield Example(cls(), (random(5, low=cls.low), np.array(0, np.int32)))
        yield Example(cls(), (np.array([[3, -2, 5], [-4, 1, -3]], np.int32), np.array([1], np.int32)))

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        return inputs[0].size if inputs[0] else 0


@register("SUM", "ReducerOptions")
class Sum(Reducer):
    in_integers = OWN
    versions = Versions(INT8)
    litert_lacks = SHORT

    def forward(self, x: Array, axis: Array) -> Array:
        return x.sum(axis=self.along(axis, x.ndim), keepdims=self.keep_dims, dtype=x.dtype)

    def grad_x(self, dy: Array, axis: Array, x_shape: tuple[int, ...]) -> Array:
        return np.broadcast_to(self.kept(dy, axis, x_shape), x_shape)


@register("MEAN", "ReducerOptions")
class Mean(Reducer):
    """The mean; of integers, rounded towards zero."""

    in_integers = OWN
    versions = Versions(INT8_INT16)
    litert_lacks = SHORT

    def forward(self, x: Array, axis: Array) -> Array:
        axes = self.along(axis, x.ndim)
        if x.dtype.kind == "f":
            return x.mean(axis=axes, keepdims=self.keep_dims, dtype=x.dtype)
        count = self.count(axes, x.shape)
        return np.trunc(x.sum(axis=axes, keepdims=self.keep_dims, dtype=np.int64) / count).astype(x.dtype)

    def grad_x(self, dy: Array, axis: Array, x_shape: tuple[int, ...]) -> Array:
        share = dy / self.count(self.along(axis, len(x_shape)), x_shape)
        return np.broadcast_to(self.kept(share, axis, x_shape), x_shape)

    @staticmethod
    def count(axes: tuple[int, ...], shape: tuple[int, ...]) -> int:
        """How many elements become one."""
        return int(np.prod([shape[i] for i in axes], dtype=np.int64))


class Extremum(Reducer):
    """The largest or smallest element; ties share the gradient equally."""

    in_integers = KEPT
    versions = Versions(INT8_INT16)
    litert_lacks = frozenset({DType.BOOL})

    def grad_x(self, dy: Array, x: Array, axis: Array, y: Array) -> Array:
        chosen = x == self.kept(y, axis, x.shape)
        share = self.kept(dy, axis, x.shape) / chosen.sum(axis=self.along(axis, x.ndim), keepdims=True)
        return chosen * share.astype(dy.dtype)


def furthest(dtype: np.dtype[Any], is_high: bool) -> Any:
    """What nothing is beyond: the least, or the largest, of no numbers, as ONNX has it."""
    if dtype.kind in "iu":
        return np.iinfo(dtype).max if is_high else np.iinfo(dtype).min
    return is_high if dtype.kind == "b" else np.inf if is_high else -np.inf


@register("REDUCE_MAX", "ReducerOptions")
class ReduceMax(Extremum):
    def forward(self, x: Array, axis: Array) -> Array:
        low = furthest(x.dtype, False)
        return np.max(x, axis=self.along(axis, x.ndim), keepdims=self.keep_dims, initial=low)


@register("REDUCE_MIN", "ReducerOptions")
class ReduceMin(Extremum):
    def forward(self, x: Array, axis: Array) -> Array:
        high = furthest(x.dtype, True)
        return np.min(x, axis=self.along(axis, x.ndim), keepdims=self.keep_dims, initial=high)


@register("REDUCE_PROD", "ReducerOptions")
class ReduceProd(Reducer):
    low = 0.5
    versions = Versions(BOTH_2)
    litert_lacks = frozenset({DType.BOOL})

    def forward(self, x: Array, axis: Array) -> Array:
        return x.prod(axis=self.along(axis, x.ndim), keepdims=self.keep_dims, dtype=x.dtype)

    def grad_x(self, dy: Array, x: Array, axis: Array) -> Array:
        """dy times the product of all the others, which exists where factors are 0."""
        axes = self.along(axis, x.ndim)
        order = [i for i in range(x.ndim) if i not in axes] + list(axes)
        rows = x.transpose(order).reshape(*(x.shape[i] for i in order if i not in axes), -1)
        ones = np.ones_like(rows[..., :1])
        before = np.cumprod(np.concatenate([ones, rows[..., :-1]], axis=-1), axis=-1)
        after = np.cumprod(np.concatenate([ones, rows[..., :0:-1]], axis=-1), axis=-1)[..., ::-1]
        others = (before * after).reshape([x.shape[i] for i in order]).transpose(np.argsort(order))
        return others * self.kept(dy, axis, x.shape)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield from super().examples()
        x = random(3, 4, low=0.5, high=1.5)
        x[0, 1] = x[1, 2] = x[1, 3] = 0
        yield Example(cls(), (x, np.array([1], np.int32)))


class BooleanReducer(Reducer):
    """Over truth values."""

    stops_gradient = True

    def infer(self, x: TensorType, axis: TensorType) -> TensorType:
        booleans(self.name, "input", x)
        return super().infer(x, axis)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        x = random(2, 3, 4, 2) > (0.6 if cls.name == "REDUCE_ANY" else -0.6)
        for axes in AXES:
            for keep_dims in (False, True):
                yield Example(cls(keep_dims), (x, np.array(axes, np.int32)))


@register("REDUCE_ANY", "ReducerOptions")
class ReduceAny(BooleanReducer):
    def forward(self, x: Array, axis: Array) -> Array:
        return np.asarray(x.any(axis=self.along(axis, x.ndim), keepdims=self.keep_dims))


@register("REDUCE_ALL", "ReducerOptions")
class ReduceAll(BooleanReducer):
    def forward(self, x: Array, axis: Array) -> Array:
        return np.asarray(x.all(axis=self.along(axis, x.ndim), keepdims=self.keep_dims))
