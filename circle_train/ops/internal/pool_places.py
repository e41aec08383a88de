"""A largest-of-window pool that remembers where each value came from, in one byte, so that its input need not be kept."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

import numpy as np

from circle_train.ir import DType, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import Activation, Padding
from circle_train.ops.axes import Image, Mixes
from circle_train.ops.base import Example, Op, random, register
from circle_train.ops.layers.pool import MaxPool2D
from circle_train.record import record

LARGEST_WINDOW = 256
"""Cells that a byte can number."""


@register("MAX_POOL_AND_PLACES", internal=True)
@record
class MaxPoolAndPlaces(Op):
    """The pool's output, and for each element the number of the first cell of its window that holds the maximum."""

    of: MaxPool2D = field(default_factory=MaxPool2D)

    axes = Image()

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        (y,) = self.of.infer_types((x,))
        return y, TensorType(DType.UINT8, y.shape)

    def forward(self, x: Array) -> tuple[Array, Array]:
        window = self.of.window(x.shape)
        padded = window.pad(x, -np.inf)
        y = self.of.forward(x)
        places = np.full(y.shape, LARGEST_WINDOW, np.int32)
        for number, (_, region) in enumerate(window.taps()):
            places = np.where((padded[region] == y) & (places == LARGEST_WINDOW), number, places)
        return self.of.activation.apply(y), places.astype(np.uint8)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for of in _pools():
            yield Example(cls(of), (random(2, 6, 7, 3),), differentiable=False)


@register("MAX_POOL_SCATTER", internal=True)
@record
class MaxPoolScatter(Op):
    """dy, times the derivative of the activation that made y (if there was one), added where the maxima came from."""

    of: MaxPool2D = field(default_factory=MaxPool2D)
    shape: tuple[int, ...] = (1, 1, 1, 1)
    kind: Activation = Activation.NONE

    axes = Mixes("its option holds the shape of the whole batch")

    def infer(self, dy: TensorType, places: TensorType, y: TensorType | None = None) -> TensorType:
        return TensorType(dy.dtype, self.shape)

    def forward(self, dy: Array, places: Array, y: Array | None = None) -> Array:
        window = self.of.window(self.shape)
        dy = dy if y is None else self.kind.gradient(dy, y)
        padded = np.zeros((self.shape[0], *window.padded, self.shape[3]), dy.dtype)
        for number, (_, region) in enumerate(window.taps()):
            padded[region] += np.where(places == number, dy, dy.dtype.type(0))
        return padded[window.inner]

    @classmethod
    def examples(cls) -> Iterable[Example]:
        x = random(2, 6, 7, 3, low=-4, high=9)
        for of in _pools():
            for kind in (Activation.NONE, Activation.RELU, Activation.RELU6):
                y, places = MaxPoolAndPlaces(of).forward(x)
                mask = y if kind else None
                yield Example(cls(of, x.shape, kind), (random(*y.shape), places, mask), differentiable=False)


def _pools() -> Iterable[MaxPool2D]:
    for padding in Padding:
        yield MaxPool2D(padding, 2, 2, 2, 2)
        yield MaxPool2D(padding, 2, 1, 3, 2)
