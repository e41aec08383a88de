"""Transposed convolutions of images: the gradient of a convolution, run forwards."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from math import prod
from typing import ClassVar

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import DType, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import Activation, Padding
from circle_train.ops.axes import Image
from circle_train.ops.base import Example, Op, random, register
from circle_train.ops.checks import sizes_in
from circle_train.ops.integers import InIntegers
from circle_train.ops.versions import Versions, option, when
from circle_train.ops.window import (
    Window,
    check_rank,
    check_weights,
    correlate,
    correlate_kernel,
    placements,
    scatter,
)
from circle_train.record import record

TO_KERNEL = (3, 1, 2, 0)
"""From w, outputs × height × width × inputs, to the kernel of the convolution that is undone."""


def output_spatial(op: str, output_shape: TensorType, x: TensorType, channels: int) -> tuple[int, ...]:
    """Spatial sizes read from the value of output_shape; -1 where it is not known before running."""
    if output_shape.value is None:
        return (-1,) * (x.rank - 2)
    wanted = tuple(sizes_in(output_shape.value))
    if len(wanted) != x.rank or min(wanted, default=0) < 1 or wanted[-1] != channels:
        raise ModelError(
            f"{op}: output_shape is {list(wanted)}, expected {x.rank} positive sizes of which the last is "
            f"{channels}, the weights' output channels"
        )
    return wanted[1:-1]


@record
class Undoing(Op):
    """The gradient of a convolution, run forwards; `window` says of which one."""

    to_kernel: ClassVar[tuple[int, ...]] = TO_KERNEL
    parameters = ("w", "b")

    def window(self, x_shape: tuple[int, ...], w_shape: tuple[int, ...], spatial: tuple[int, ...]) -> Window:
        raise NotImplementedError(f"{self.name} has no geometry")

    def undo(self, x: Array, w: Array, b: Array | None, spatial: tuple[int, ...]) -> Array:
        y = scatter(x, w.transpose(self.to_kernel), self.window(x.shape, w.shape, spatial))
        return y if b is None else y + b

    def grad_x(self, dy: Array, w: Array, x_shape: tuple[int, ...]) -> Array:
        return correlate(dy, w.transpose(self.to_kernel), self.window(x_shape, w.shape, dy.shape[1:-1]))

    def grad_w(self, dy: Array, x: Array, w_shape: tuple[int, ...]) -> Array:
        window = self.window(x.shape, w_shape, dy.shape[1:-1])
        dw: Array = correlate_kernel(dy, x, window).transpose(np.argsort(self.to_kernel))
        return dw

    def grad_b(self, dy: Array) -> Array:
        return dy


@record
class TransposedConvolution(Undoing):
    """Of images: weights are outputs × height × width × inputs."""

    axes = Image()

    def check(self, x: TensorType, w: TensorType, b: TensorType | None) -> None:
        check_rank(self.name, 4, weights=w)
        check_weights(self.name, x, w, b, taken=3, outputs=0)


@register("TRANSPOSE_CONV", "TransposeConvOptions")
@record
class TransposeConv(TransposedConvolution):
    padding: Padding = Padding.SAME
    stride_w: int = 1
    stride_h: int = 1
    fused_activation_function: Activation = Activation.NONE
    quantized_bias_type: DType = DType.FLOAT32

    axes = Image(sizes="output_shape")
    in_integers = InIntegers(weights={"w": 0}, bias="b")
    versions = Versions(
        {DType.INT8: 2},
        (when(3, lambda node, inputs: len(inputs) == 4), option(4, "fused_activation_function")),
        subject=2,
    )

    @property
    def strides(self) -> tuple[int, int]:
        return self.stride_h, self.stride_w

    def window(self, x_shape: tuple[int, ...], w_shape: tuple[int, ...], spatial: tuple[int, ...]) -> Window:
        return Window.undone(spatial, w_shape[1:3], self.strides, self.padding, (1, 1), x_shape[1:3])

    def infer(
        self, output_shape: TensorType, w: TensorType, x: TensorType, b: TensorType | None = None
    ) -> TensorType:
        self.check(x, w, b)
        spatial = output_spatial(self.name, output_shape, x, w.shape[0])
        placements(self.name, (-1, -1), w.shape[1:3], self.strides, self.padding, (1, 1))
        return TensorType(x.dtype, (x.shape[0], *spatial, w.shape[0]))

    def forward(self, output_shape: Array, w: Array, x: Array, b: Array | None = None) -> Array:
        return self.undo(x, w, b, tuple(output_shape[1:-1].tolist()))

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        w, x = inputs[1], inputs[2]
        return 2 * x.size * prod(w.shape[:3]) if w and x else 0

    @classmethod
    def examples(cls) -> Iterable[Example]:
        def example(op: TransposeConv, height: int, width: int, bias: bool = True) -> Example:
            rows = op.padding.output_size(height, 3, op.stride_h)
            columns = op.padding.output_size(width, 2, op.stride_w)
            shape, x = np.array([2, height, width, 4], np.int32), random(2, rows, columns, 3)
            return Example(op, (shape, random(4, 3, 2, 3), x, *([random(4)] if bias else [])))

        for padding in Padding:
            for height, width in ((1, 1), (2, 2), (1, 2), (3, 2), (4, 3)):
                yield example(cls(padding, width, height), 7, 6)
                yield example(cls(padding, width, height), 8, 5, bias=False)
        for activation in (Activation.RELU, Activation.RELU6, Activation.RELU_N1_TO_1):
            yield example(cls(stride_h=2, fused_activation_function=activation), 5, 4)


@register("CUSTOM:Convolution2DTransposeBias")
@record
class Convolution2DTransposeBias(TransposedConvolution):
    """MediaPipe's operator; its options are three int32: padding (1 SAME, 2 VALID), stride_w, stride_h."""

    custom_options: bytes = struct.pack("<3i", 1, 1, 1)

    @property
    def fields(self) -> tuple[int, int, int]:
        if len(self.custom_options) < 12:
            raise ModelError(
                f"{self.name}: custom options have {len(self.custom_options)} bytes, expected at least 12 "
                "(padding, stride_w, stride_h): the file is damaged"
            )
        padding, stride_w, stride_h = struct.unpack_from("<3i", self.custom_options)
        if padding not in (1, 2) or min(stride_w, stride_h) < 1:
            raise ModelError(
                f"{self.name}: padding {padding} and strides {stride_h}×{stride_w}, expected padding 1 or 2 "
                "and strides of at least 1: the file is damaged"
            )
        return padding, stride_w, stride_h

    def extents(self, x: tuple[int, ...], w: tuple[int, ...]) -> list[tuple[int, int]]:
        """Output size and zeros in front, along height and width; -1 where x is not known."""
        padding, stride_w, stride_h = self.fields
        result = []
        for length, cells, stride in zip(x[1:3], w[1:3], (stride_h, stride_w), strict=True):
            cut = max(0, cells - (length - 1) % stride - 1) if padding == 1 else 0
            result.append((stride * (length - 1) + cells - cut if length >= 0 else -1, cut // 2))
        return result

    def window(self, x_shape: tuple[int, ...], w_shape: tuple[int, ...], spatial: tuple[int, ...]) -> Window:
        _, stride_w, stride_h = self.fields
        before = tuple(front for _, front in self.extents(x_shape, w_shape))
        return Window(spatial, w_shape[1:3], (stride_h, stride_w), (1, 1), before, x_shape[1:3])

    def infer(self, x: TensorType, w: TensorType, b: TensorType) -> TensorType:
        self.check(x, w, b)
        return TensorType(
            x.dtype, (x.shape[0], *(size for size, _ in self.extents(x.shape, w.shape)), w.shape[0])
        )

    def forward(self, x: Array, w: Array, b: Array) -> Array:
        spatial = tuple(size for size, _ in self.extents(x.shape, w.shape))
        return self.undo(x, w, b, spatial)

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        x, w = inputs[0], inputs[1]
        return 2 * x.size * prod(w.shape[:3]) if w and x else 0

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for options in ((1, 2, 2), (2, 2, 2), (1, 1, 3), (2, 3, 1), (1, 3, 4)):
            op = cls(struct.pack("<3i", *options))
            yield Example(op, (random(2, 4, 3, 5), random(2, 2, 3, 5), random(2)))
