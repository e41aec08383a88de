"""The same elements in another shape or order, or repeated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import DType, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.base import Example, random, register
from circle_train.ops.checks import axes_in, axis_in, integers, length, scalar, sizes_in, vector
from circle_train.ops.integers import KEPT
from circle_train.ops.movement import Movement
from circle_train.ops.rearranging import Permutes, Views
from circle_train.ops.shapes.per_axis import PerAxis
from circle_train.ops.versions import Versions, rank_above, when
from circle_train.record import record


class View(Movement):
    """The output is the input's memory under another shape."""

    view_of = "x"
    identity_gradient = ("x",)
    axes = Views()

    def grad_x(self, dy: Array, x_shape: tuple[int, ...]) -> Array:
        return dy.reshape(x_shape)


@register("RESHAPE", "ReshapeOptions")
@record
class Reshape(View):
    """The shape comes from the second input, or from the option where there is none; one size may be -1."""

    new_shape: tuple[int, ...] = ()

    in_integers = KEPT
    axes = Views("shape")

    def infer(self, x: TensorType, shape: TensorType | None) -> TensorType:
        if shape is not None and shape.value is None:
            return TensorType(x.dtype, (-1,) * length(self.name, "shape", shape))
        target = self.target(None if shape is None else shape.value, x.size if x.is_static else None)
        if x.is_static:
            return TensorType(x.dtype, self.resolve(x, target))
        return TensorType(x.dtype, target)

    def forward(self, x: Array, shape: Array | None = None) -> Array:
        return x.reshape(self.target(shape, x.size))

    def target(self, shape: Array | None, size: int | None) -> tuple[int, ...]:
        """The sizes asked for; the option (0,) is how old files spell a scalar."""
        if shape is not None:
            return tuple(sizes_in(shape))
        return () if self.new_shape == (0,) and size != 0 else tuple(self.new_shape)

    def resolve(self, x: TensorType, target: tuple[int, ...]) -> tuple[int, ...]:
        """The target with its -1 replaced, refused where the elements do not fit."""
        free = [i for i, n in enumerate(target) if n == -1]
        rest = prod(n for n in target if n != -1)
        fits = (not free and rest == x.size) or (len(free) == 1 and rest > 0 and x.size % rest == 0)
        if not fits or min(target, default=0) < -1:
            wanted = "×".join(map(str, target)) or "a scalar"
            raise ModelError(f"{self.name}: {x} has {x.size} elements, which do not fill the shape {wanted}")
        return tuple(x.size // rest if n == -1 else n for n in target)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for target in ((6, 4), (2, -1), (24,), (-1, 3, 1, 2)):
            yield Example(cls(), (random(2, 3, 4), np.array(target, np.int32)))
        yield Example(cls(new_shape=(4, 6)), (random(2, 3, 4),))
        yield Example(cls(new_shape=(3, -1)), (random(2, 3, 4), np.array([3, -1], np.int32)))
        yield Example(cls(new_shape=(0,)), (random(1, 1),))
        yield Example(cls(), (random(1, 1), np.array([], np.int32)))
        yield Example(cls(), (np.arange(6, dtype=np.int32), np.array([2, 3], np.int32)))


@register("SQUEEZE", "SqueezeOptions")
@record
class Squeeze(View):
    """Drops axes of size 1: those named, or all."""

    squeeze_dims: tuple[int, ...] = ()

    in_integers = KEPT
    versions = Versions({DType.STRING: 2})

    def infer(self, x: TensorType) -> TensorType:
        axes = self.dropped(x.shape)
        if wrong := [i for i in axes if x.shape[i] not in (1, -1)]:
            raise ModelError(
                f"{self.name}: axis {wrong[0]} of the input {x} has size {x.shape[wrong[0]]}, expected 1"
            )
        return TensorType(x.dtype, tuple(size for i, size in enumerate(x.shape) if i not in axes))

    def dropped(self, shape: Sequence[int]) -> tuple[int, ...]:
        if not self.squeeze_dims:
            return tuple(i for i, size in enumerate(shape) if size == 1)
        return axes_in(self.name, self.squeeze_dims, len(shape))

    def forward(self, x: Array) -> Array:
        return x.squeeze(self.dropped(x.shape))

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for axes in ((), (1,), (-1, 1), (3, -3)):
            yield Example(cls(axes), (random(2, 1, 3, 1),))
        yield Example(cls(), (random(1, 1),))


@register("EXPAND_DIMS", "ExpandDimsOptions")
class ExpandDims(View):
    """A new axis of size 1; -1 puts it last."""

    in_integers = KEPT
    axes = Views(others=("axis",))

    def infer(self, x: TensorType, axis: TensorType) -> TensorType:
        number = scalar(self.name, "axis", axis)
        if number is None:
            return TensorType(x.dtype, (-1,) * (x.rank + 1))
        number = axis_in(self.name, number, x.rank + 1)
        return TensorType(x.dtype, (*x.shape[:number], 1, *x.shape[number:]))

    def forward(self, x: Array, axis: Array) -> Array:
        return np.expand_dims(x, int(axis.reshape(())))

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for axis in (0, 1, 2, -1, -3):
            yield Example(cls(), (random(2, 3), np.array(axis, np.int32)))
        yield Example(cls(), (random(), np.array([0], np.int32)))


@register("TRANSPOSE", "TransposeOptions")
class Transpose(Movement):
    axes = Permutes()
    in_integers = KEPT
    versions = Versions({DType.INT8: 2, DType.BOOL: 3, DType.INT16: 5}, (rank_above(4, 4), rank_above(5, 6)))

    def infer(self, x: TensorType, perm: TensorType) -> TensorType:
        order = vector(self.name, "perm", perm, x.rank)
        if order is None:
            return TensorType(x.dtype, (-1,) * x.rank)
        if sorted(axis_in(self.name, axis, x.rank) for axis in order) != list(range(x.rank)):
            raise ModelError(f"{self.name}: perm is {order}, expected every axis of the input {x} once")
        return TensorType(x.dtype, tuple(x.shape[axis] for axis in order))

    def forward(self, x: Array, perm: Array) -> Array:
        return x.transpose(perm)

    def grad_x(self, dy: Array, perm: Array) -> Array:
        return dy.transpose(np.argsort(perm % max(perm.size, 1)))

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for perm in ((1, 0), (0, 2, 1), (2, 0, 1), (0, 3, 1, 2), (-1, 0, 1), (1, 4, 0, 2, 3)):
            yield Example(cls(), (random(*range(2, 2 + len(perm))), np.array(perm, np.int32)))


@register("TILE", "TileOptions")
class Tile(Movement):
    """Each axis repeated as a whole."""

    axes = PerAxis(("multiples",))
    in_integers = KEPT
    versions = Versions({DType.STRING: 2, DType.INT8: 3})

    def infer(self, x: TensorType, multiples: TensorType) -> TensorType:
        times = vector(self.name, "multiples", multiples, x.rank)
        if times is None:
            return TensorType(x.dtype, (-1,) * x.rank)
        if min(times, default=0) < 0:
            raise ModelError(f"{self.name}: multiples are {times}, expected numbers of at least 0")
        return TensorType(x.dtype, tuple(-1 if n < 0 else n * m for n, m in zip(x.shape, times, strict=True)))

    def forward(self, x: Array, multiples: Array) -> Array:
        return np.tile(x, [int(m) for m in multiples])

    def grad_x(self, dy: Array, multiples: Array, x_shape: tuple[int, ...]) -> Array:
        pairs = [n for pair in zip(multiples, x_shape, strict=True) for n in pair]
        return dy.reshape([int(n) for n in pairs]).sum(axis=tuple(range(0, len(pairs), 2)))

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for shape, times in (((3,), (2,)), ((2, 3), (1, 3)), ((2, 3), (2, 1)), ((1, 2, 3), (4, 2, 3))):
            yield Example(cls(), (random(*shape), np.array(times, np.int32)))


@register("BROADCAST_TO", "BroadcastToOptions")
class BroadcastTo(Movement):
    parameters = ("x",)
    scalar_parameters = False
    axes = PerAxis(("shape",), "shape")
    in_integers = KEPT
    versions = Versions({DType.INT8: 3, DType.INT16: 3}, (when(2, lambda node, inputs: True),))

    def infer(self, x: TensorType, shape: TensorType) -> TensorType:
        integers(self.name, "shape", shape)
        if shape.value is None:
            return TensorType(x.dtype, (-1,) * length(self.name, "shape", shape))
        target = tuple(sizes_in(shape.value))
        tail = target[len(target) - x.rank :] if x.rank <= len(target) else None
        if tail is None or any(a not in (1, -1, b) for a, b in zip(x.shape, tail, strict=True)):
            wanted = "×".join(map(str, target)) or "a scalar"
            raise ModelError(
                f"{self.name}: {x} does not broadcast to {wanted}; sizes must be equal or 1 in the input"
            )
        return TensorType(x.dtype, target)

    def forward(self, x: Array, shape: Array) -> Array:
        return np.broadcast_to(x, [int(n) for n in shape])

    def grad_x(self, dy: Array) -> Array:
        return dy

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for shape, target in (
            ((3,), (2, 3)),
            ((2, 1, 3), (2, 4, 3)),
            ((1,), (5,)),
            ((), (2, 2)),
            ((2, 3), (2, 3)),
        ):
            yield Example(cls(), (random(*shape), np.array(target, np.int32)))
        yield Example(cls(), (np.array([[1], [2]], np.int32), np.array([2, 3], np.int64)))
