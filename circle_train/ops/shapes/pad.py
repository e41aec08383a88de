"""More elements around a tensor: zeros, a value, or its own reflection."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import MirrorPadMode
from circle_train.ops.base import Example, random, register
from circle_train.ops.checks import integers, same_size, sizes_in
from circle_train.ops.integers import KEPT, InIntegers, Scales
from circle_train.ops.movement import Movement, added
from circle_train.ops.shapes.per_axis import PerAxis
from circle_train.ops.versions import INT8_INT16, Versions, rank_above
from circle_train.record import record

PADDINGS = (((1, 2),), ((0, 0), (3, 1)), ((1, 0), (0, 2), (1, 1)), ((0, 0), (1, 1), (2, 0), (0, 1)))


class Padded(Movement):
    """Paddings are a matrix: one row per axis, elements before and after."""

    invents = True
    axes = PerAxis(("paddings",))

    def infer(self, x: TensorType, paddings: TensorType) -> TensorType:
        integers(self.name, "paddings", paddings)
        rows, columns = paddings.shape if paddings.rank == 2 else (0, 0)
        if not same_size(rows, x.rank) or not same_size(columns, 2):
            raise ModelError(
                f"{self.name}: paddings are {paddings}, expected {x.rank}×2: before and after each axis"
            )
        if paddings.value is None:
            return TensorType(x.dtype, (-1,) * x.rank)
        if paddings.size and paddings.value.min() < 0:
            raise ModelError(
                f"{self.name}: paddings hold {paddings.value.min()}, expected numbers of at least 0"
            )
        totals = sizes_in(paddings.value.sum(axis=1))
        return TensorType(
            x.dtype, tuple(-1 if n < 0 else n + t for n, t in zip(x.shape, totals, strict=True))
        )

    @staticmethod
    def inside(paddings: Array, shape: tuple[int, ...]) -> tuple[slice, ...]:
        """Where the input lies in the output."""
        starts = (int(before) for before in paddings[:, 0])
        return tuple(slice(start, start + size) for start, size in zip(starts, shape, strict=True))

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for paddings in PADDINGS:
            yield Example(cls(), (random(*range(4, 4 + len(paddings))), np.array(paddings, np.int32)))
        yield Example(cls(), (np.array([[5, 6, 7]], np.int32), np.array([[0, 0], [1, 1]], np.int64)))


@register("PAD", "PadOptions")
class Pad(Padded):
    in_integers = KEPT
    versions = Versions(INT8_INT16, (rank_above(4, 4),))

    def forward(self, x: Array, paddings: Array) -> Array:
        return np.pad(x, paddings)

    def grad_x(self, dy: Array, paddings: Array, x_shape: tuple[int, ...]) -> Array:
        return dy[self.inside(paddings, x_shape)]


@register("PADV2", "PadV2Options")
class PadV2(Padded):
    """PAD with a value of one's own."""

    in_integers = InIntegers(Scales.ONE, data=("x", "value"), filler="value")
    versions = Versions(INT8_INT16, (rank_above(4, 4),))

    def infer(self, x: TensorType, paddings: TensorType, value: TensorType | None = None) -> TensorType:
        if value is None or value.dtype != x.dtype or not same_size(value.size, 1):
            raise ModelError(f"{self.name}: value is {value}, expected one element of type {x.dtype.name}")
        return super().infer(x, paddings)

    def forward(self, x: Array, paddings: Array, value: Array) -> Array:
        return np.pad(x, paddings, constant_values=value.reshape(()))

    def grad_x(self, dy: Array, paddings: Array, x_shape: tuple[int, ...]) -> Array:
        return dy[self.inside(paddings, x_shape)]

    def grad_value(
        self, dy: Array, paddings: Array, x_shape: tuple[int, ...], value_shape: tuple[int, ...]
    ) -> Array:
        border = dy.copy()
        border[self.inside(paddings, x_shape)] = 0
        return border.sum().reshape(value_shape)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for example in super().examples():
            x = example.inputs[0]
            assert x is not None
            yield Example(cls(), (*example.inputs, np.array(-3, x.dtype)))
        yield Example(cls(), (random(2), np.array([[1, 1]], np.int32), np.array([0.5])))


@register("MIRROR_PAD", "MirrorPadOptions")
@record
class MirrorPad(Padded):
    """Reflection at the border: REFLECT leaves the border element out, SYMMETRIC repeats it."""

    mode: MirrorPadMode = MirrorPadMode.REFLECT

    in_integers = KEPT
    versions = Versions(INT8_INT16)

    def infer(self, x: TensorType, paddings: TensorType) -> TensorType:
        output = super().infer(x, paddings)
        if paddings.value is not None:
            short = 1 if self.mode is MirrorPadMode.REFLECT else 0
            for axis, (size, amounts) in enumerate(zip(x.shape, paddings.value, strict=True)):
                if size >= 0 and amounts.max() > max(size - short, 0):
                    raise ModelError(
                        f"{self.name}: padding {int(amounts.max())} of axis {axis} is too much for {x}, "
                        f"expected at most {max(size - short, 0)}"
                    )
        return output

    def places(self, paddings: Array, shape: tuple[int, ...]) -> tuple[Array, ...]:
        """For each axis of the output the index into the input, ready to broadcast."""
        pairs = list(zip(shape, paddings, strict=True))
        if self.mode is MirrorPadMode.REFLECT:
            rows = [np.pad(np.arange(size), amounts, mode="reflect") for size, amounts in pairs]
        else:
            rows = [np.pad(np.arange(size), amounts, mode="symmetric") for size, amounts in pairs]
        return tuple(np.ix_(*rows))

    def forward(self, x: Array, paddings: Array) -> Array:
        return x[self.places(paddings, x.shape)]

    def grad_x(self, dy: Array, paddings: Array, x_shape: tuple[int, ...]) -> Array:
        return added(dy, x_shape, self.places(paddings, x_shape))

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for mode in MirrorPadMode:
            for paddings in PADDINGS:
                yield Example(cls(mode), (random(*range(4, 4 + len(paddings))), np.array(paddings, np.int32)))
        yield Example(cls(MirrorPadMode.SYMMETRIC), (random(3), np.array([[3, 3]], np.int32)))
