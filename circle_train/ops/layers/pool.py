"""Pools: the largest, the mean, or the root of the mean square of a window; padding cells never count."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from circle_train.ir import TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import Activation, Padding
from circle_train.ops.axes import Image
from circle_train.ops.base import Example, Op, random, register
from circle_train.ops.integers import KEPT
from circle_train.ops.versions import INT8_INT16, Versions
from circle_train.ops.window import Window, check_floats, check_rank, placements
from circle_train.record import record


@record
class Pool(Op):
    """Options, type rule and examples of all three."""

    padding: Padding = Padding.SAME
    stride_w: int = 1
    stride_h: int = 1
    filter_width: int = 1
    filter_height: int = 1
    fused_activation_function: Activation = Activation.NONE

    axes = Image()

    @property
    def strides(self) -> tuple[int, int]:
        return self.stride_h, self.stride_w

    @property
    def size(self) -> tuple[int, int]:
        return self.filter_height, self.filter_width

    def window(self, x_shape: tuple[int, ...]) -> Window:
        return Window.over(x_shape[1:3], self.size, self.strides, self.padding)

    def infer(self, x: TensorType) -> TensorType:
        check_rank(self.name, 4, input=x)
        spatial = placements(self.name, x.shape[1:3], self.size, self.strides, self.padding, (1, 1))
        return TensorType(x.dtype, (x.shape[0], *spatial, x.shape[3]))

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        return outputs[0].size * self.filter_height * self.filter_width

    @classmethod
    def examples(cls) -> Iterable[Example]:
        x = np.sign(random(2, 6, 7, 3, seed=1)) * random(2, 6, 7, 3, low=0.1)
        for padding in Padding:
            for stride_h, stride_w, height, width in (
                (1, 1, 2, 2), (2, 2, 2, 2), (2, 2, 3, 3), (1, 2, 3, 2), (2, 1, 1, 4), (3, 4, 2, 2),
                (1, 1, 6, 7), (3, 3, 5, 5),
            ):  # fmt: skip
                yield Example(cls(padding, stride_w, stride_h, width, height), (x,))
        for activation in (Activation.RELU, Activation.RELU6, Activation.RELU_N1_TO_1):
            yield Example(cls(Padding.VALID, 2, 2, 2, 2, activation), (x * 7,))


def collapse(padded: Array, window: Window, combine: Callable[..., Any]) -> Array:
    """Combine the cells of every window, first down the columns, then along the rows."""
    for axis in (1, 2):
        stride, count = window.strides[axis - 1], window.positions[axis - 1]
        turned = np.swapaxes(padded, 0, axis)
        cells = [turned[i : i + (count - 1) * stride + 1 : stride] for i in range(window.size[axis - 1])]
        result = cells[0].copy()
        for cell in cells[1:]:
            combine(result, cell, out=result)
        padded = np.swapaxes(result, 0, axis)
    return padded


def spread(values: Array, window: Window) -> Array:
    """The transpose of summing: every cell of big receives the values of the windows that hold it."""
    for axis in (2, 1):
        stride, count = window.strides[axis - 1], window.positions[axis - 1]
        shape = list(values.shape)
        shape[axis] = window.padded[axis - 1]
        wider = np.zeros(shape, values.dtype)
        turned, added = np.swapaxes(wider, 0, axis), np.swapaxes(values, 0, axis)
        for i in range(window.size[axis - 1]):
            turned[i : i + (count - 1) * stride + 1 : stride] += added
        values = wider
    return values[window.inner]


def valid_cells(window: Window, dtype: Any) -> Array:
    """How many cells of each window are not padding: 1 × height × width × 1."""
    ones = np.ones((1, *window.spatial, 1), dtype)
    return collapse(window.pad(ones), window, np.add)


@register("MAX_POOL_2D", "Pool2DOptions")
@record
class MaxPool2D(Pool):
    """Among equal cells the first in h-then-w order is the one that counts."""

    in_integers = KEPT
    versions = Versions(INT8_INT16)

    def forward(self, x: Array) -> Array:
        window = self.window(x.shape)
        return collapse(window.pad(x, _lowest(x)), window, np.maximum)

    def grad_x(self, dy: Array, x: Array) -> Array:
        window = self.window(x.shape)
        padded = window.pad(x, _lowest(x))
        largest = collapse(padded, window, np.maximum)
        result = np.zeros(padded.shape, dy.dtype)
        open_ = np.ones(largest.shape, np.bool_)
        for _, region in window.taps():
            hit = open_ & (padded[region] == largest)
            result[region] += np.where(hit, dy, dy.dtype.type(0))
            open_ &= ~hit
        return result[window.inner]

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield from super().examples()
        yield Example(cls(Padding.SAME, 1, 1, 3, 3), (np.ones((1, 4, 4, 2)),), differentiable=False)


@register("AVERAGE_POOL_2D", "Pool2DOptions")
@record
class AveragePool2D(Pool):
    in_integers = KEPT
    versions = Versions(INT8_INT16)

    def infer(self, x: TensorType) -> TensorType:
        check_floats(self.name, x)
        return super().infer(x)

    def forward(self, x: Array) -> Array:
        window = self.window(x.shape)
        total = collapse(window.pad(x), window, np.add)
        return total / valid_cells(window, x.dtype)

    def grad_x(self, dy: Array, x_shape: tuple[int, ...]) -> Array:
        window = self.window(x_shape)
        return spread(dy / valid_cells(window, dy.dtype), window)


@register("L2_POOL_2D", "Pool2DOptions")
@record
class L2Pool2D(Pool):
    """y = √(mean of x²)"""

    def infer(self, x: TensorType) -> TensorType:
        check_floats(self.name, x)
        return super().infer(x)

    def forward(self, x: Array) -> Array:
        window = self.window(x.shape)
        return np.sqrt(collapse(window.pad(x * x), window, np.add) / valid_cells(window, x.dtype))

    def grad_x(self, dy: Array, x: Array) -> Array:
        window = self.window(x.shape)
        root = self.forward(x)
        share = np.divide(dy, root * valid_cells(window, x.dtype), out=np.zeros_like(dy), where=root > 0)
        return spread(share, window) * x


def _lowest(x: Array) -> float:
    """What padding must hold so that it never is the largest."""
    return -np.inf if x.dtype.kind == "f" else int(np.iinfo(x.dtype).min)
