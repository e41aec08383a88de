"""Two-dimensional convolutions: images are batch × height × width × channels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import DType, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import Activation, Padding
from circle_train.ops.axes import Image
from circle_train.ops.base import Example, Op, random, register
from circle_train.ops.integers import InIntegers
from circle_train.ops.versions import Versions, is_hybrid, when
from circle_train.ops.window import (
    Window,
    check_bias,
    check_floats,
    check_rank,
    correlate,
    correlate_kernel,
    placements,
    scatter,
)
from circle_train.record import record

BLOCK_ELEMENTS = 1 << 16
"""Output elements that a depthwise convolution keeps in the cache while it adds up the kernel's cells."""


@record
class Convolution(Op):
    """What CONV_2D and DEPTHWISE_CONV_2D share: options and geometry."""

    padding: Padding = Padding.SAME
    stride_w: int = 1
    stride_h: int = 1
    fused_activation_function: Activation = Activation.NONE
    dilation_w_factor: int = 1
    dilation_h_factor: int = 1

    parameters = ("w", "b")
    axes = Image()

    @property
    def strides(self) -> tuple[int, int]:
        return self.stride_h, self.stride_w

    @property
    def dilations(self) -> tuple[int, int]:
        return self.dilation_h_factor, self.dilation_w_factor

    def window(self, x_shape: tuple[int, ...], w_shape: tuple[int, ...]) -> Window:
        return Window.over(x_shape[1:3], w_shape[1:3], self.strides, self.padding, self.dilations)

    def output(self, x: TensorType, w: TensorType, channels: int) -> TensorType:
        spatial = placements(
            self.name, x.shape[1:3], w.shape[1:3], self.strides, self.padding, self.dilations
        )
        return TensorType(x.dtype, (x.shape[0], *spatial, channels))

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        """Two for each weight that an output element meets."""
        w = inputs[1]
        return 2 * outputs[0].size * (prod(self.taps(w)) if w else 1)

    def taps(self, w: TensorType) -> tuple[int, ...]:
        """The weights' axes over which one output element sums."""
        return w.shape[1:]


@register("CONV_2D", "Conv2DOptions")
@record
class Conv2D(Convolution):
    """w: outputs × height × width × inputs / groups; the shapes tell the number of groups."""

    quantized_bias_type: DType = DType.FLOAT32

    by_channel = "w"
    in_integers = InIntegers(weights={"w": 0}, takes=3, bias="b", dynamic=True)
    versions = Versions(
        {DType.INT8: 3, DType.INT16: 4},
        (when(6, lambda node, inputs: inputs[0].shape[-1:] != inputs[1].shape[-1:]), when(5, is_hybrid)),
    )

    def infer(self, x: TensorType, w: TensorType, b: TensorType | None = None) -> TensorType:
        check_rank(self.name, 4, input=x, weights=w)
        check_floats(self.name, x, w, b)
        channels, taken, outputs = x.shape[3], w.shape[3], w.shape[0]
        if taken < 1 or (channels >= 0 and (channels % taken or channels == 0)):
            raise ModelError(
                f"{self.name}: input has {channels} channels, weights take {taken} (input {x}, weights {w}); "
                "the weights' last dimension must be the input's channels, or with groups a divisor of them"
            )
        if channels > 0 and outputs % (channels // taken):
            raise ModelError(
                f"{self.name}: {channels // taken} groups do not divide {outputs} output channels "
                f"(input {x}, weights {w}); the weights' first dimension must be a multiple of the groups"
            )
        check_bias(self.name, b, outputs)
        return self.output(x, w, outputs)

    def forward(self, x: Array, w: Array, b: Array | None = None) -> Array:
        y = correlate(x, w, self.window(x.shape, w.shape), x.shape[3] // w.shape[3])
        return y if b is None else np.add(y, b, out=y)

    def grad_x(self, dy: Array, w: Array, x_shape: tuple[int, ...]) -> Array:
        return scatter(dy, w, self.window(x_shape, w.shape), x_shape[3] // w.shape[3])

    def grad_w(self, dy: Array, x: Array, w_shape: tuple[int, ...]) -> Array:
        return correlate_kernel(x, dy, self.window(x.shape, w_shape), x.shape[3] // w_shape[3])

    def grad_b(self, dy: Array) -> Array:
        return dy

    @classmethod
    def examples(cls) -> Iterable[Example]:
        x, w, b = random(2, 5, 6, 3), random(4, 3, 2, 3), random(4)
        for op in _options(cls()):
            yield Example(op, (x, w, b))
        yield Example(cls(), (x, w, None))
        yield Example(cls(), (x, w))
        yield Example(cls(), (random(2, 3, 4, 5), random(6, 1, 1, 5), random(6)))
        yield Example(cls(stride_w=2, stride_h=3), (random(1, 7, 5, 2), random(3, 1, 1, 2), random(3)))
        for taken, outputs in ((2, 4), (1, 8), (1, 4)):
            yield Example(
                cls(Padding.SAME, 2), (random(2, 4, 5, 4), random(outputs, 3, 3, taken), random(outputs))
            )
        for activation in (Activation.RELU, Activation.RELU6, Activation.RELU_N1_TO_1, Activation.TANH):
            yield Example(cls(fused_activation_function=activation), (x * 3, w, b))


@register("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions")
@record
class DepthwiseConv2D(Convolution):
    """w: 1 × height × width × outputs; output c reads input c // multiplier, which the shapes tell."""

    depth_multiplier: int = 1

    in_integers = InIntegers(weights={"w": 3}, takes=3, bias="b", dynamic=True)
    versions = Versions(
        {DType.INT8: 3, DType.INT16: 5},
        (when(2, lambda node, inputs: node.op.dilations != (1, 1)), when(6, is_hybrid)),
    )

    def taps(self, w: TensorType) -> tuple[int, ...]:
        return w.shape[1:3]

    def infer(self, x: TensorType, w: TensorType, b: TensorType | None = None) -> TensorType:
        check_rank(self.name, 4, input=x, weights=w)
        check_floats(self.name, x, w, b)
        channels, outputs = x.shape[3], w.shape[3]
        if w.shape[0] != 1 or (channels >= 0 and (channels == 0 or outputs % channels)):
            raise ModelError(
                f"{self.name}: input has {channels} channels, weights make {outputs} "
                f"(input {x}, weights {w}); the weights' first dimension must be 1, their last a multiple "
                "of the input's channels"
            )
        check_bias(self.name, b, outputs)
        return self.output(x, w, outputs)

    def forward(self, x: Array, w: Array, b: Array | None = None) -> Array:
        window = self.window(x.shape, w.shape)
        multiplier = w.shape[3] // x.shape[3]
        padded = window.pad(x if multiplier == 1 else np.repeat(x, multiplier, axis=3))
        y = np.empty((x.shape[0], *window.positions, w.shape[3]), np.result_type(x, w))
        for target, source, block in _blocks(y, padded, window):
            target[...] = 0 if b is None else b
            product = np.empty_like(target)
            for cell, region in block.taps():
                np.multiply(source[region], w[0][cell], out=product)
                np.add(target, product, out=target)
        return y

    def grad_x(self, dy: Array, w: Array, x_shape: tuple[int, ...]) -> Array:
        window = self.window(x_shape, w.shape)
        padded = np.zeros((x_shape[0], *window.padded, x_shape[3]), np.result_type(dy, w))
        grouped = (*dy.shape[:-1], x_shape[3], -1)
        for cell, region in window.taps():
            product = dy * w[0][cell]
            padded[region] += product if w.shape[3] == x_shape[3] else product.reshape(grouped).sum(-1)
        return padded[window.inner]

    def grad_w(self, dy: Array, x: Array, w_shape: tuple[int, ...]) -> Array:
        window = self.window(x.shape, w_shape)
        padded = window.pad(x)
        grouped = dy.reshape(*dy.shape[:-1], x.shape[3], -1)
        result = np.empty(w_shape, np.result_type(dy, x))
        for cell, region in window.taps():
            result[0][cell] = np.einsum("nhwcm,nhwc->cm", grouped, padded[region]).reshape(-1)
        return result

    def grad_b(self, dy: Array) -> Array:
        return dy

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for multiplier in (1, 2, 3):
            x, w, b = random(2, 5, 6, 3), random(1, 3, 2, 3 * multiplier), random(3 * multiplier)
            for op in _options(cls(depth_multiplier=multiplier)):
                yield Example(op, (x, w, b))
            yield Example(cls(depth_multiplier=multiplier), (x, w, None))
        yield Example(cls(depth_multiplier=4), (random(1, 4, 4, 1), random(1, 3, 3, 4), random(4)))
        for activation in (Activation.RELU, Activation.RELU6, Activation.RELU_N1_TO_1):
            op = cls(fused_activation_function=activation)
            yield Example(op, (random(2, 5, 6, 3) * 3, random(1, 3, 3, 3), random(3)))


def _options(op: Convolution) -> Iterable[Convolution]:
    """Paddings, strides (also beyond the kernel) and dilations, equal and unequal."""
    for padding in Padding:
        for height, width in ((1, 1), (2, 2), (1, 2), (2, 1), (4, 3)):
            yield replace(op, padding=padding, stride_h=height, stride_w=width)
        for height, width in ((2, 2), (2, 3), (1, 2)):
            yield replace(op, padding=padding, dilation_h_factor=height, dilation_w_factor=width)
    yield replace(op, stride_h=2, dilation_h_factor=2)


def _blocks(y: Array, padded: Array, window: Window) -> Iterable[tuple[Array, Array, Window]]:
    """Rows of y that fit the cache, the part of padded that they read, and the window that makes them."""
    rows = max(1, BLOCK_ELEMENTS // max(y.shape[0] * prod(y.shape[2:]), 1))
    for start in range(0, y.shape[1], rows):
        target = y[:, start : start + rows]
        block = replace(window, positions=(target.shape[1], window.positions[1]))
        yield target, padded[:, start * window.strides[0] :], block
