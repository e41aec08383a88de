"""Running sums, and where the largest elements are."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import DType, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Along, LastAxis
from circle_train.ops.base import Example, Op, random, register
from circle_train.ops.checks import axis_in, scalar
from circle_train.ops.integers import ONLY_8, InIntegers
from circle_train.ops.versions import INT8, SHORT, Versions
from circle_train.record import record


@register("CUMSUM", "CumsumOptions")
@record
class Cumsum(Op):
    """Running sum along one axis; `exclusive` leaves out the element itself, `reverse` starts at the end."""

    exclusive: bool = False
    reverse: bool = False

    axes = Along()
    litert_lacks = SHORT

    def infer(self, x: TensorType, axis: TensorType) -> TensorType:
        number = scalar(self.name, "axis", axis)
        if number is not None:
            axis_in(self.name, number, x.rank)
        return TensorType(x.dtype, x.shape)

    def forward(self, x: Array, axis: Array) -> Array:
        return self.run(x, int(axis.reshape(())), self.reverse)

    def run(self, x: Array, axis: int, reverse: bool) -> Array:
        if reverse:
            return np.flip(self.run(np.flip(x, axis), axis, False), axis)
        rows = np.moveaxis(x, axis, 0)
        if self.exclusive and len(rows):
            rows = np.concatenate([np.zeros_like(rows[:1]), rows[:-1]])
        return np.moveaxis(np.cumsum(rows, axis=0, dtype=x.dtype), 0, axis)

    def grad_x(self, dy: Array, axis: Array) -> Array:
        return self.run(dy, int(axis.reshape(())), not self.reverse)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for exclusive in (False, True):
            for reverse in (False, True):
                yield Example(cls(exclusive, reverse), (random(2, 3, 4), np.array(1, np.int32)))
                yield Example(cls(exclusive, reverse), (random(5, 2), np.array(-2, np.int32)))
                yield Example(
                    cls(exclusive, reverse), (np.array([[3, 1, 4]], np.int32), np.array(-1, np.int32))
                )


@record
class ArgExtremum(Op):
    """Where along an axis the extreme element is, the first of equals."""

    output_type: DType = DType.INT64

    stops_gradient = True
    axes = Along(is_reduced=True)
    in_integers = InIntegers(types=ONLY_8, makes_integers=True)
    versions = Versions({DType.INT8: 2, DType.BOOL: 3})
    litert_lacks = frozenset({DType.INT64, DType.INT16})

    def infer(self, x: TensorType, axis: TensorType) -> TensorType:
        if self.output_type not in (DType.INT32, DType.INT64):
            raise ModelError(f"{self.name}: output_type is {self.output_type.name}, expected INT32 or INT64")
        number = scalar(self.name, "axis", axis)
        if number is None:
            return TensorType(self.output_type, (-1,) * (x.rank - 1))
        number = axis_in(self.name, number, x.rank)
        return TensorType(self.output_type, (*x.shape[:number], *x.shape[number + 1 :]))

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for output_type in (DType.INT32, DType.INT64):
            for axis in (0, 1, -1):
                yield Example(cls(output_type), (random(3, 4, 5), np.array(axis, np.int32)))
        ties = np.array([[1.0, 7.0, 7.0, 0.0, 0.0], [2.0, 2.0, 2.0, 2.0, 2.0]])
        yield Example(cls(DType.INT32), (ties, np.array([-1], np.int32)))
        yield Example(cls(DType.INT32), (np.array([4, 9, 2], np.int32), np.array(0, np.int32)))


@register("ARG_MAX", "ArgMaxOptions")
class ArgMax(ArgExtremum):
    def forward(self, x: Array, axis: Array) -> Array:
        return np.asarray(x.argmax(int(axis.reshape(())))).astype(self.output_type.numpy)


@register("ARG_MIN", "ArgMinOptions")
class ArgMin(ArgExtremum):
    def forward(self, x: Array, axis: Array) -> Array:
        return np.asarray(x.argmin(int(axis.reshape(())))).astype(self.output_type.numpy)


@register("TOPK_V2", "TopKV2Options")
class TopK(Op):
    """The k largest elements of each row, falling, and their places; the first of equals comes first."""

    axes = LastAxis()
    versions = Versions(INT8)

    def infer(self, x: TensorType, k: TensorType) -> tuple[TensorType, TensorType]:
        if x.rank == 0:
            raise ModelError(f"{self.name}: input is a scalar, expected at least one axis to choose from")
        count = scalar(self.name, "k", k)
        if count is not None and (count < 0 or 0 <= x.shape[-1] < count):
            raise ModelError(
                f"{self.name}: k is {count}, expected 0 to {x.shape[-1]}, the last size of the input {x}"
            )
        shape = (*x.shape[:-1], -1 if count is None else count)
        return TensorType(x.dtype, shape), TensorType(DType.INT32, shape)

    def forward(self, x: Array, k: Array) -> tuple[Array, Array]:
        places = self.places(x, int(k.reshape(())))
        return np.take_along_axis(x, places, axis=-1), places.astype(np.int32)

    @staticmethod
    def places(x: Array, k: int) -> Array:
        """Indices of the k largest, by a stable sort of the reversed rows."""
        ascending = np.argsort(x[..., ::-1], axis=-1, kind="stable")
        return (x.shape[-1] - 1 - ascending[..., ::-1])[..., :k]

    def grad_x(self, dys: list[Array], x: Array) -> Array:
        result = np.zeros_like(x)
        np.put_along_axis(result, self.places(x, dys[0].shape[-1]), dys[0], axis=-1)
        return result

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for shape, k in (((6,), 2), ((3, 5), 3), ((2, 2, 4), 4), ((2, 3), 1)):
            yield Example(cls(), (random(*shape), np.array(k, np.int32)))
        yield Example(
            cls(), (np.array([[1.0, 3.0, 3.0, 2.0, 3.0, 1.0]]), np.array([5], np.int32)), differentiable=False
        )
        yield Example(cls(), (np.array([4, 9, 2], np.int32), np.array(2, np.int32)))
