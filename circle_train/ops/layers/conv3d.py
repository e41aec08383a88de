"""Convolutions of volumes: batch × depth × height × width × channels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

import numpy as np

from circle_train.ir import TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import Activation, Padding
from circle_train.ops.axes import Image
from circle_train.ops.base import Example, Op, random, register
from circle_train.ops.layers.conv_transpose import Undoing, output_spatial
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

LAST_FIRST = (4, 0, 1, 2, 3)
FIRST_LAST = (1, 2, 3, 4, 0)


@record
class VolumeConvolution(Op):
    """Options of both; the schema's Conv3DOptions."""

    padding: Padding = Padding.SAME
    stride_d: int = 1
    stride_w: int = 1
    stride_h: int = 1
    fused_activation_function: Activation = Activation.NONE
    dilation_d_factor: int = 1
    dilation_w_factor: int = 1
    dilation_h_factor: int = 1

    parameters = ("w", "b")
    axes = Image()

    @property
    def strides(self) -> tuple[int, int, int]:
        return self.stride_d, self.stride_h, self.stride_w

    @property
    def dilations(self) -> tuple[int, int, int]:
        return self.dilation_d_factor, self.dilation_h_factor, self.dilation_w_factor

    @classmethod
    def settings(cls) -> Iterable[VolumeConvolution]:
        """Options for the examples: paddings, strides and dilations."""
        for padding in Padding:
            yield cls(padding)
            yield cls(padding, stride_d=2, stride_w=3, stride_h=1)
            yield cls(padding, stride_d=1, stride_w=2, stride_h=3)
            yield cls(padding, dilation_d_factor=2, dilation_w_factor=3, dilation_h_factor=2)
        yield cls(fused_activation_function=Activation.RELU)
        yield cls(fused_activation_function=Activation.RELU6)


@register("CONV_3D", "Conv3DOptions")
@record
class Conv3D(VolumeConvolution):
    """w: depth × height × width × inputs × outputs."""

    def window(self, x_shape: tuple[int, ...], w_shape: tuple[int, ...]) -> Window:
        return Window.over(x_shape[1:4], w_shape[:3], self.strides, self.padding, self.dilations)

    def infer(self, x: TensorType, w: TensorType, b: TensorType | None = None) -> TensorType:
        check_rank(self.name, 5, weights=w)
        check_weights(self.name, x, w, b, taken=3, outputs=4)
        spatial = placements(self.name, x.shape[1:4], w.shape[:3], self.strides, self.padding, self.dilations)
        return TensorType(x.dtype, (x.shape[0], *spatial, w.shape[4]))

    def forward(self, x: Array, w: Array, b: Array | None = None) -> Array:
        y = correlate(x, w.transpose(LAST_FIRST), self.window(x.shape, w.shape))
        return y if b is None else y + b

    def grad_x(self, dy: Array, w: Array, x_shape: tuple[int, ...]) -> Array:
        return scatter(dy, w.transpose(LAST_FIRST), self.window(x_shape, w.shape))

    def grad_w(self, dy: Array, x: Array, w_shape: tuple[int, ...]) -> Array:
        dw: Array = correlate_kernel(x, dy, self.window(x.shape, w_shape)).transpose(FIRST_LAST)
        return dw

    def grad_b(self, dy: Array) -> Array:
        return dy

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        w = inputs[1]
        return 2 * outputs[0].size * (prod(w.shape[:4]) if w else 1)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        x, w, b = random(2, 4, 5, 6, 2), random(2, 3, 2, 2, 3), random(3)
        for op in cls.settings():
            yield Example(op, (x, w, b))
        yield Example(cls(), (x, w))
        yield Example(cls(), (x, random(1, 1, 1, 2, 4), None))


@register("CONV_3D_TRANSPOSE", "Conv3DOptions")
@record
class Conv3DTranspose(Undoing, VolumeConvolution):
    """w: depth × height × width × outputs × inputs."""

    to_kernel = LAST_FIRST
    axes = Image(sizes="output_shape")

    def window(self, x_shape: tuple[int, ...], w_shape: tuple[int, ...], spatial: tuple[int, ...]) -> Window:
        return Window.undone(spatial, w_shape[:3], self.strides, self.padding, self.dilations, x_shape[1:4])

    def infer(
        self, output_shape: TensorType, w: TensorType, x: TensorType, b: TensorType | None = None
    ) -> TensorType:
        check_rank(self.name, 5, weights=w)
        check_weights(self.name, x, w, b, taken=4, outputs=3)
        placements(self.name, (-1, -1, -1), w.shape[:3], self.strides, self.padding, self.dilations)
        spatial = output_spatial(self.name, output_shape, x, w.shape[3])
        return TensorType(x.dtype, (x.shape[0], *spatial, w.shape[3]))

    def forward(self, output_shape: Array, w: Array, x: Array, b: Array | None = None) -> Array:
        return self.undo(x, w, b, tuple(output_shape[1:-1].tolist()))

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        w, x = inputs[1], inputs[2]
        return 2 * x.size * prod(w.shape[:4]) if w and x else 0

    @classmethod
    def examples(cls) -> Iterable[Example]:
        shape = np.array([2, 4, 7, 6, 3], np.int32)
        w, b = random(2, 3, 2, 3, 2), random(3)
        for op in cls.settings():
            sizes = zip(shape[1:4].tolist(), (2, 3, 2), op.dilations, op.strides, strict=True)
            spatial = [op.padding.output_size(n, (k - 1) * d + 1, s) for n, k, d, s in sizes]
            yield Example(op, (shape, w, random(2, *spatial, 2), b))
        yield Example(cls(), (shape, w, random(2, 4, 7, 6, 2)))
