"""Resizing of images; where an output pixel looks is TFLite's arithmetic, in float32 as there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import DType, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Image
from circle_train.ops.base import Example, Op, random, register
from circle_train.ops.checks import sizes_in
from circle_train.ops.integers import KEPT
from circle_train.ops.versions import Versions, option
from circle_train.ops.window import check_floats, check_rank
from circle_train.record import record


@record
class Resize(Op):
    """y = R_h x R_wᵀ for every channel; the rows of R hold one or two weights."""

    align_corners: bool = False
    half_pixel_centers: bool = False

    axes = Image()
    static_inputs = ("size",)

    def infer(self, x: TensorType, size: TensorType) -> TensorType:
        check_rank(self.name, 4, input=x)
        if self.align_corners and self.half_pixel_centers:
            raise ModelError(
                f"{self.name}: align_corners and half_pixel_centers are both set, expected at most one"
            )
        if size.value is None:
            return TensorType(x.dtype, (x.shape[0], -1, -1, x.shape[3]))
        wanted = tuple(sizes_in(size.value))
        if len(wanted) != 2 or min(wanted) < 1:
            raise ModelError(
                f"{self.name}: size is {list(wanted)}, expected two positive numbers, height and width"
            )
        return TensorType(x.dtype, (x.shape[0], *wanted, x.shape[3]))

    def sources(self, inputs: int, outputs: int) -> tuple[Array, Array, Array]:
        """For every output row: two input rows, and the weight of the second."""
        raise NotImplementedError(f"{self.name} has no sources")

    def forward(self, x: Array, size: Array) -> Array:
        for axis, outputs in zip((1, 2), size.tolist(), strict=True):
            low, high, fraction = self.sources(x.shape[axis], outputs)
            first = np.take(x, low, axis)
            if fraction.any():
                second = np.take(x, high, axis)
                first += (second - first) * fraction.astype(x.dtype).reshape(-1, *(1,) * (3 - axis))
            x = first
        return x

    def grad_x(self, dy: Array, x_shape: tuple[int, ...]) -> Array:
        rows = self.matrix(x_shape[1], dy.shape[1], dy.dtype)
        columns = self.matrix(x_shape[2], dy.shape[2], dy.dtype)
        wide = (rows.T @ dy.reshape(dy.shape[0], dy.shape[1], -1)).reshape(-1, *dy.shape[2:])
        dx: Array = (columns.T @ wide).reshape(x_shape)
        return dx

    def matrix(self, inputs: int, outputs: int, dtype: Any) -> Array:
        """R: outputs × inputs."""
        low, high, fraction = self.sources(inputs, outputs)
        result = np.zeros((outputs, inputs), dtype)
        positions = np.arange(outputs)
        result[positions, low] += 1 - fraction.astype(dtype)
        result[positions, high] += fraction.astype(dtype)
        return result

    def scale(self, inputs: int, outputs: int) -> np.float32:
        if self.align_corners and outputs > 1:
            inputs, outputs = inputs - 1, outputs - 1
        scale: np.float32 = np.float32(inputs) / np.float32(outputs)
        return scale

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        return 6 * outputs[0].size

    @classmethod
    def examples(cls) -> Iterable[Example]:
        x = random(2, 3, 4, 2)
        for op in (cls(), cls(align_corners=True), cls(half_pixel_centers=True)):
            for size in ((6, 8), (5, 7), (3, 4), (2, 3), (1, 1), (7, 2)):
                yield Example(op, (x, np.array(size, np.int32)))


@register("RESIZE_BILINEAR", "ResizeBilinearOptions")
@record
class ResizeBilinear(Resize):
    in_integers = KEPT
    versions = Versions({DType.INT8: 2, DType.INT16: 4}, (option(3, "half_pixel_centers"),))

    def infer(self, x: TensorType, size: TensorType) -> TensorType:
        check_floats(self.name, x)
        return super().infer(x, size)

    def sources(self, inputs: int, outputs: int) -> tuple[Array, Array, Array]:
        half = np.float32(0.5 if self.half_pixel_centers else 0)
        place = (np.arange(outputs, dtype=np.float32) + half) * self.scale(inputs, outputs) - half
        low = np.maximum(np.floor(place), 0).astype(np.intp)
        high = np.minimum(np.ceil(place), inputs - 1).astype(np.intp)
        return low, high, place - low.astype(np.float32)


@register("RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighborOptions")
@record
class ResizeNearestNeighbor(Resize):
    in_integers = KEPT
    versions = Versions({DType.INT8: 2, DType.INT16: 4}, (option(3, "half_pixel_centers", "align_corners"),))

    def sources(self, inputs: int, outputs: int) -> tuple[Array, Array, Array]:
        half = np.float32(0.5 if self.half_pixel_centers else 0)
        place = (np.arange(outputs, dtype=np.float32) + half) * self.scale(inputs, outputs)
        nearest = np.floor(place + np.float32(0.5)) if self.align_corners else np.floor(place)
        index = np.clip(nearest, 0, inputs - 1).astype(np.intp)
        return index, index, np.zeros(outputs, np.float32)
