"""Tensors told element by element, the sizes that broadcasting gives, boundaries, and bits read as another type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field, replace

import numpy as np

from circle_train.errors import DataError, ModelError
from circle_train.ir import DType, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Elementwise, Mixes
from circle_train.ops.base import Example, Op, random, register
from circle_train.ops.checks import has_rank, integers, length, sizes_in
from circle_train.ops.movement import Movement
from circle_train.record import record


@register("SPARSE_TO_DENSE", "SparseToDenseOptions")
@record
class SparseToDense(Movement):
    """A tensor full of one value, with others at the places that the indices name."""

    validate_indices: bool = False

    invents = True
    axes = Mixes("indices say where values go")
    static_inputs = ("output_shape",)

    def infer(
        self, indices: TensorType, output_shape: TensorType, values: TensorType, default: TensorType
    ) -> TensorType:
        integers(self.name, "indices", indices)
        has_rank(self.name, "indices", indices, 0, 1, 2)
        rank = length(self.name, "output_shape", output_shape)
        if values.rank > 1 or (default.is_static and default.size != 1) or default.dtype is not values.dtype:
            raise ModelError(
                f"{self.name}: values are {values}, the default {default}; expected a vector and one number of its type"
            )
        sizes = (-1,) * rank if output_shape.value is None else tuple(sizes_in(output_shape.value))
        return TensorType(values.dtype, sizes)

    def places(self, indices: Array, shape: Sequence[int]) -> tuple[Array, ...]:
        rows = indices.reshape(-1, len(shape) if indices.ndim == 2 else 1)
        if rows.shape[1] != len(shape) or (rows < 0).any() or (rows >= np.array(shape)).any():
            raise DataError(f"{self.name}: indices are {rows.tolist()}, expected places in {list(shape)}")
        return tuple(rows.T)

    def forward(self, indices: Array, output_shape: Array, values: Array, default: Array) -> Array:
        shape = sizes_in(output_shape)
        y = np.full(shape, default.reshape(()), values.dtype)
        y[self.places(indices, shape)] = values
        return y

    def grad_values(self, dy: Array, indices: Array, values_shape: tuple[int, ...]) -> Array:
        taken = dy[self.places(indices, dy.shape)]
        return taken if values_shape else taken.sum().reshape(())

    def grad_default(self, dy: Array, indices: Array, default_shape: tuple[int, ...]) -> Array:
        rest = dy.copy()
        rest[self.places(indices, dy.shape)] = 0
        return rest.sum().reshape(default_shape)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        three, zero = np.array([[0, 1], [2, 3], [1, 1]], np.int32), random(seed=2)
        yield Example(cls(), (three, np.array([3, 4], np.int32), random(3), zero))
        yield Example(cls(), (np.array([4, 0], np.int32), np.array([6], np.int32), random(2), zero))
        yield Example(cls(), (np.array([4, 0], np.int32), np.array([6], np.int32), random(), zero))
        numbers = np.array([7, 8, 9], np.int64), np.array(-1, np.int64)
        yield Example(cls(), (three.astype(np.int64), np.array([3, 4], np.int64), *numbers))


@register("BROADCAST_ARGS")
class BroadcastArgs(Movement):
    """The sizes of what two tensors of these sizes broadcast to."""

    invents = True
    stops_gradient = True
    axes = Mixes("its operands are sizes")

    def infer(self, s0: TensorType, s1: TensorType) -> TensorType:
        rank = max(length(self.name, "s0", s0), length(self.name, "s1", s1))
        return TensorType(s0.dtype, (rank,))

    def forward(self, s0: Array, s1: Array) -> Array:
        try:
            return np.array(np.broadcast_shapes(tuple(s0.tolist()), tuple(s1.tolist())), s0.dtype)
        except ValueError:
            raise DataError(f"{self.name}: {s0.tolist()} and {s1.tolist()} do not broadcast") from None

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for dtype in (np.int32, np.int64):
            yield Example(cls(), (np.array([3, 1, 5], dtype), np.array([4, 1], dtype)))
            yield Example(cls(), (np.array([2], dtype), np.array([6, 1], dtype)))


@register("BUCKETIZE", "BucketizeOptions")
@record
class Bucketize(Op):
    """How many of the ascending boundaries a number has reached."""

    boundaries: tuple[float, ...] = ()

    stops_gradient = True
    axes = Elementwise()

    def infer(self, x: TensorType) -> TensorType:
        if list(self.boundaries) != sorted(self.boundaries):
            raise ModelError(f"{self.name}: boundaries are {self.boundaries}, expected ascending ones")
        return TensorType(DType.INT32, x.shape)

    def forward(self, x: Array) -> Array:
        return np.searchsorted(np.array(self.boundaries, np.float32), x, side="right").astype(np.int32)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield Example(cls((-0.5, 0.0, 0.75)), (random(4, 5).astype(np.float32),), differentiable=False)
        yield Example(cls((0.0, 10.0)), (np.array([-5, 0, 7, 10, 11], np.int32),))


@register("BITCAST", "BitcastOptions")
@record
class Bitcast(Movement):
    """The same bytes as another type; a last axis comes or goes where elements are wider or narrower."""

    into: DType | None = field(default=None, compare=False)
    """What the file's tensor is: no option says it."""

    stops_gradient = True
    axes = Mixes("elements may become others")

    def with_types(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Bitcast:
        return replace(self, into=outputs[0].dtype) if len(outputs) == 1 else self

    def infer(self, x: TensorType) -> TensorType:
        into = self.into or x.dtype
        if x.dtype.numpy is None or into.numpy is None:
            raise ModelError(
                f"{self.name}: from {x.dtype.name} to {into.name}, expected types that numpy has"
            )
        before, after = x.dtype.numpy.itemsize, into.numpy.itemsize
        if after > before:
            if not x.rank or not same_ratio(x.shape[-1], after, before):
                raise ModelError(
                    f"{self.name}: x is {x}, expected a last axis that makes one {into.name} each"
                )
            return TensorType(into, x.shape[:-1])
        return TensorType(into, x.shape if after == before else (*x.shape, before // after))

    def forward(self, x: Array) -> Array:
        type_ = self.infer(TensorType.of(x))
        flat: Array = np.ascontiguousarray(x).reshape(-1).view(np.dtype(type_.dtype.numpy))
        return flat.reshape(type_.shape)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield Example(cls(DType.INT32), (random(2, 3).astype(np.float32),), differentiable=False)
        yield Example(cls(DType.UINT8), (np.array([[1, 300], [-5, 70000]], np.int32),))
        yield Example(cls(DType.FLOAT32), (np.array([[1, 2, 3, 64], [0, 0, 1, 65]], np.uint8),))


def same_ratio(size: int, after: int, before: int) -> bool:
    """Whether so many elements are one of the wider type, as far as is known."""
    return size in (-1, after // before)
