"""Several tensors into one, and one into several."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import DType, TensorType
from circle_train.ir.size import Size
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import Activation
from circle_train.ops.base import Example, random, register
from circle_train.ops.checks import axis_in, scalar, vector
from circle_train.ops.elementwise import same_dtype
from circle_train.ops.integers import KEPT, TOGETHER
from circle_train.ops.movement import Movement
from circle_train.ops.rearranging import Joins, Splits
from circle_train.ops.versions import INT8, INT8_INT16, Versions
from circle_train.record import record


def _common(op: str, xs: tuple[TensorType, ...], free: int | None = None) -> list[int]:
    """The sizes that all operands share, -1 replaced where one of them knows; `free` is not compared."""
    if not xs:
        raise ModelError(f"{op} has no inputs, expected at least 1: the file is damaged")
    same_dtype(op, *xs)
    sizes = []
    for axis in range(xs[0].rank):
        known = [x.shape[axis] for x in xs if x.rank == xs[0].rank and x.shape[axis] != -1]
        if axis != free and any(size != known[0] for size in known[1:]):
            break
        sizes.append(next((n for n in known if not isinstance(n, Size)), known[0] if known else -1))
    if len(sizes) < xs[0].rank or any(x.rank != xs[0].rank for x in xs):
        but = "" if free is None else f" except along axis {free}"
        raise ModelError(f"{op}: operands are {', '.join(map(str, xs))}; expected one shape{but}")
    return sizes


@register("CONCATENATION", "ConcatenationOptions")
@record
class Concatenation(Movement):
    axis: int = 0
    fused_activation_function: Activation = Activation.NONE

    parameters = ("xs",)
    scalar_parameters = False
    axes = Joins()
    in_integers = TOGETHER
    versions = Versions({DType.INT8: 2, DType.INT16: 3, DType.UINT32: 4})

    def infer(self, *xs: TensorType) -> TensorType:
        axis = axis_in(self.name, self.axis, xs[0].rank) if xs else 0
        sizes = _common(self.name, xs, free=axis)
        along = [x.shape[axis] for x in xs]
        sizes[axis] = -1 if -1 in along else sum(along)
        return TensorType(xs[0].dtype, tuple(sizes))

    def forward(self, *xs: Array) -> Array:
        return np.concatenate(xs, axis=self.axis)

    def grad_xs(self, dy: Array, xs_shape: list[tuple[int, ...]], index: int) -> Array:
        start = sum(shape[self.axis] for shape in xs_shape[:index])
        where = [slice(None)] * dy.ndim
        where[self.axis] = slice(start, start + xs_shape[index][self.axis])
        return dy[tuple(where)]

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for axis in (0, 1, -1):
            shapes = [[2, 2, 2] for _ in range(3)]
            for extra, shape in enumerate(shapes):
                shape[axis] += extra
            yield Example(cls(axis), tuple(random(*shape, seed=i) for i, shape in enumerate(shapes)))
        yield Example(cls(0), (random(4),))
        for activation in (Activation.RELU, Activation.RELU6):
            yield Example(cls(1, activation), (random(2, 3, low=-8, high=8), random(2, 1, seed=1)))
        yield Example(cls(0), (np.array([1, 2], np.int32), np.array([3], np.int32)))


@register("SPLIT", "SplitOptions")
@record
class Split(Movement):
    """Equal parts."""

    num_splits: int = 1

    axes = Splits("axis")
    in_integers = KEPT
    versions = Versions({DType.INT8: 2, DType.INT32: 3, DType.INT16: 4}, subject=1)

    def infer(self, axis: TensorType, x: TensorType) -> list[TensorType]:
        number = scalar(self.name, "axis", axis)
        if self.num_splits < 1:
            raise ModelError(f"{self.name}: num_splits is {self.num_splits}, expected at least 1")
        if number is None:
            return [TensorType(x.dtype, (-1,) * x.rank)] * self.num_splits
        number = axis_in(self.name, number, x.rank)
        size = x.shape[number]
        if size % self.num_splits and size >= 0:
            raise ModelError(
                f"{self.name}: axis {number} of {x} does not divide into {self.num_splits} equal parts"
            )
        part = size // self.num_splits if size >= 0 else -1
        return [TensorType(x.dtype, (*x.shape[:number], part, *x.shape[number + 1 :]))] * self.num_splits

    def forward(self, axis: Array, x: Array) -> list[Array]:
        return np.split(x, self.num_splits, axis=int(axis.reshape(())))

    def grad_x(self, dys: list[Array], axis: Array) -> Array:
        return np.concatenate(dys, axis=int(axis.reshape(())))

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for axis, parts in ((0, 2), (1, 3), (-1, 4), (2, 1)):
            yield Example(cls(parts), (np.array(axis, np.int32), random(2, 3, 4)))


@register("SPLIT_V", "SplitVOptions")
@record
class SplitV(Movement):
    """Parts of given sizes, one of which may be -1: the rest."""

    num_splits: int = 1

    axes = Splits("axis", ("sizes",))
    in_integers = KEPT
    versions = Versions(INT8)

    def infer(self, x: TensorType, sizes: TensorType, axis: TensorType) -> list[TensorType]:
        parts = vector(self.name, "sizes", sizes, self.num_splits)
        number = scalar(self.name, "axis", axis)
        if number is None:
            return [TensorType(x.dtype, (-1,) * x.rank)] * self.num_splits
        number = axis_in(self.name, number, x.rank)
        whole = x.shape[number]
        parts = [-1] * self.num_splits if parts is None else self.resolve(parts, whole, str(x))
        return [TensorType(x.dtype, (*x.shape[:number], part, *x.shape[number + 1 :])) for part in parts]

    def resolve(self, parts: list[int], whole: int, x: str) -> list[int]:
        """The sizes with -1 replaced where the whole is known."""
        rest = whole - sum(part for part in parts if part != -1)
        if (
            parts.count(-1) > 1
            or min(parts) < -1
            or (whole >= 0 and (rest < 0 or (rest and -1 not in parts)))
        ):
            raise ModelError(
                f"{self.name}: sizes {parts} do not add up to the {whole} of the input {x} along its axis"
            )
        return [rest if part == -1 and whole >= 0 else part for part in parts]

    def forward(self, x: Array, sizes: Array, axis: Array) -> list[Array]:
        number = int(axis.reshape(()))
        parts = self.resolve([int(n) for n in sizes], x.shape[number], "×".join(map(str, x.shape)))
        return np.split(x, np.cumsum(parts)[:-1], axis=number)

    def grad_x(self, dys: list[Array], axis: Array) -> Array:
        return np.concatenate(dys, axis=int(axis.reshape(())))

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for axis, sizes in ((0, (2, 4)), (1, (1, -1, 2)), (-1, (3, 1)), (-2, (5,))):
            yield Example(
                cls(len(sizes)), (random(6, 5, 4), np.array(sizes, np.int32), np.array(axis, np.int32))
            )


@register("PACK", "PackOptions")
@record
class Pack(Movement):
    """Operands of one shape side by side along a new axis."""

    values_count: int = 1
    axis: int = 0

    axes = Joins(is_new=True)
    in_integers = TOGETHER
    versions = Versions(INT8_INT16)
    litert_lacks = frozenset({DType.BOOL})

    def infer(self, *xs: TensorType) -> TensorType:
        if len(xs) != self.values_count:
            raise ModelError(
                f"{self.name} has {len(xs)} inputs, expected {self.values_count} as values_count says"
            )
        sizes = _common(self.name, xs)
        sizes.insert(axis_in(self.name, self.axis, len(sizes) + 1), len(xs))
        return TensorType(xs[0].dtype, tuple(sizes))

    def forward(self, *xs: Array) -> Array:
        return np.stack(xs, axis=self.axis)

    def grad_xs(self, dy: Array, index: int) -> Array:
        return np.take(dy, index, axis=self.axis)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for axis in (0, 1, 2, -1, -2):
            yield Example(cls(3, axis), tuple(random(2, 4, seed=i) for i in range(3)))
        yield Example(cls(2), (np.array(4, np.int32), np.array(5, np.int32)))


@register("UNPACK", "UnpackOptions")
@record
class Unpack(Movement):
    """One output for each element of an axis, which disappears."""

    num: int = 1
    axis: int = 0

    axes = Splits()
    in_integers = KEPT
    versions = Versions({DType.INT8: 2, DType.UINT8: 2, DType.BOOL: 3, DType.INT16: 4})

    def infer(self, x: TensorType) -> list[TensorType]:
        axis = axis_in(self.name, self.axis, x.rank)
        if x.shape[axis] not in (-1, self.num):
            raise ModelError(
                f"{self.name}: axis {axis} of {x} has size {x.shape[axis]}, expected num = {self.num}"
            )
        return [TensorType(x.dtype, (*x.shape[:axis], *x.shape[axis + 1 :]))] * self.num

    def forward(self, x: Array) -> list[Array]:
        return list(np.moveaxis(x, self.axis, 0))

    def grad_x(self, dys: list[Array]) -> Array:
        return np.stack(dys, axis=self.axis)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for axis, num in ((0, 2), (1, 3), (-1, 4), (-3, 2)):
            yield Example(cls(num, axis), (random(2, 3, 4),))
        yield Example(cls(3), (random(3),))
