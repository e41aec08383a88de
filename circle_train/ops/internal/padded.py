"""Convolutions of images with zeros around them as one op each: files spell out paddings that are neither SAME nor VALID."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from circle_train.ir import TensorType
from circle_train.ops.attributes import Padding
from circle_train.ops.base import Example, Op, random, register
from circle_train.ops.internal.bfloat16 import RoundedConv2D
from circle_train.ops.layers.conv import Conv2D, Convolution, DepthwiseConv2D
from circle_train.ops.window import Window
from circle_train.record import record


@record
class PaddedConvolution(Convolution):
    """The base's convolution, VALID, after `around` (top, bottom, left, right) zeros were put around the image."""

    around: tuple[int, int, int, int] = (0, 0, 0, 0)

    def window(self, x_shape: tuple[int, ...], w_shape: tuple[int, ...]) -> Window:
        top, _, left, _ = self.around
        inner = Window.over(
            self.enlarged(x_shape)[1:3], w_shape[1:3], self.strides, Padding.VALID, self.dilations
        )
        return replace(inner, spatial=tuple(x_shape[1:3]), before=(top, left))

    def output(self, x: TensorType, w: TensorType, channels: int) -> TensorType:
        return super().output(x.with_shape(self.enlarged(x.shape)), w, channels)

    def enlarged(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        top, bottom, left, right = self.around
        batch, height, width, channels = shape
        return batch, height + top + bottom, width + left + right, channels

    @classmethod
    def examples(cls) -> Iterable[Example]:
        depthwise = issubclass(cls, DepthwiseConv2D)
        w = random(1, 3, 2, 3) if depthwise else random(4, 3, 2, 3)
        for around, stride in (((1, 1, 1, 1), 1), ((0, 1, 0, 1), 2), ((2, 0, 1, 3), 2), ((0, 0, 2, 1), 3)):
            op = cls(Padding.VALID, stride, stride, around=around)
            yield Example(op, (random(2, 5, 6, 3), w, random(w.shape[3] if depthwise else 4)))


@register("PADDED_CONV_2D", internal=True)
@record
class PaddedConv2D(PaddedConvolution, Conv2D):
    """CONV_2D with its own padding."""


@register("PADDED_DEPTHWISE_CONV_2D", internal=True)
@record
class PaddedDepthwiseConv2D(PaddedConvolution, DepthwiseConv2D):
    """DEPTHWISE_CONV_2D with its own padding."""


@register("PADDED_ROUNDED_CONV_2D", internal=True)
@record
class PaddedRoundedConv2D(PaddedConvolution, RoundedConv2D):
    """A convolution of bfloat16s with its own padding."""


PADDED: dict[type[Op], type[PaddedConvolution]] = {
    Conv2D: PaddedConv2D,
    DepthwiseConv2D: PaddedDepthwiseConv2D,
    RoundedConv2D: PaddedRoundedConv2D,
}
