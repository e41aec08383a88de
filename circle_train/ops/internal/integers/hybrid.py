"""Products of floats with weights in integers, as LiteRT computes them: samples are rounded to bytes while it runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

import numpy as np

from circle_train.ir import DType, Quantization, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Image
from circle_train.ops.base import Example, Op, random, register
from circle_train.ops.layers.conv import Conv2D
from circle_train.ops.layers.linear import FullyConnected
from circle_train.ops.numeric.quantize import dequantize
from circle_train.record import record


@register("HYBRID", internal=True)
@record
class Hybrid(Op):
    """of(x rounded, what w stands for, b), rounded as XNNPACK does: products row by row, CONV_2D image by image.

    A convolution of single cells is a product, whose rows are cells.
    """

    of: Op
    weights: Quantization

    static_inputs = ("w", "b")
    axes = Image()

    def infer(self, x: TensorType, w: TensorType, b: TensorType | None = None) -> Sequence[TensorType]:
        types = self.of.infer_types([x, TensorType(DType.FLOAT32, w.shape), b])
        return list(types)

    def forward(self, x: Array, w: Array, b: Array | None = None) -> Array:
        rows = x.reshape(self.samples(x.shape, w.shape), -1)
        made: Array = self.of.compute([rounded(rows).reshape(x.shape), dequantize(w, self.weights), b])[0]
        return made

    def samples(self, x: Sequence[int], w: Sequence[int]) -> int:
        """How many parts of the input have a scale of their own."""
        strides = (self.of.stride_h, self.of.stride_w) if isinstance(self.of, Conv2D) else (1, 1)
        is_product = prod(w[1:-1]) == 1 and strides == (1, 1)
        return prod(x) // w[-1] if is_product else x[0]

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        return self.of.flops(inputs, outputs)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        def stored(*shape: int) -> Array:
            return np.rint(random(*shape, low=-127, high=127)).astype(np.int8)

        each = Quantization((0.01, 0.02, 0.015, 0.01), (0,) * 4)
        inputs = (random(3, 6), stored(4, 6), random(4))
        yield Example(cls(FullyConnected(), each), inputs, constant=(1, 2), differentiable=False)
        inputs = (random(2, 5, 5, 3), stored(4, 3, 3, 3), random(4))
        yield Example(cls(Conv2D(), each), inputs, constant=(1, 2), differentiable=False)


@register("ROUND_SAMPLES", internal=True)
@record
class RoundSamples(Op):
    """Each sample to the 256 steps between its least and largest number, and 0, as LiteRT's own kernels round."""

    axes = Image()

    def infer(self, x: TensorType) -> TensorType:
        return TensorType(x.dtype, x.shape)

    def forward(self, x: Array) -> Array:
        rows = x.reshape(len(x), -1)
        least = rows.min(1, keepdims=True, initial=0).astype(np.float64)
        most = rows.max(1, keepdims=True, initial=0).astype(np.float64)
        with np.errstate(all="ignore"):
            is_flat = least == most
            scale = np.where(is_flat, 1, (most - least) / 255)
            low, high = least / scale, most / scale
            zero = np.where(-low < high, -128 - low, 127 - high)
            zero = np.rint(np.clip(np.where(is_flat, 0, zero), -128, 127)).astype(np.float32)
            step = scale.astype(np.float32)
            stored = np.clip(np.rint(zero + rows * (1 / step)), -128, 127)
            real: Array = np.where(np.isfinite(scale), (stored - zero) * step, np.nan).astype(np.float32)
        return real.reshape(x.shape)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield Example(cls(), (random(3, 4, 5, 2, low=-2, high=3),), differentiable=False)
        yield Example(cls(), (np.zeros((2, 3), np.float32),), differentiable=False)


def rounded(rows: Array) -> Array:
    """To 255 steps between each row's least and largest number, and 0; NaN where one is not finite."""
    least = rows.min(1, keepdims=True, initial=0).astype(np.float32)
    most = rows.max(1, keepdims=True, initial=0).astype(np.float32)
    with np.errstate(all="ignore"):
        span = most - least
        is_flat = ~(span > 255 * np.finfo(np.float32).tiny)
        steps = np.where(is_flat, np.float32(1), np.float32(255) / span)
        low, high = least * steps, most * steps
        zero = np.where(low + high - 1 > 0, -128 - low, 127 - high)
        zero = np.where(is_flat, 0, np.rint(np.clip(zero, -128, 127)))
        scale = 1 / steps
        stored = np.clip(np.rint(rows * (1 / scale)), -128 - zero, 127 - zero)
        real: Array = np.where(np.isfinite(span), stored * scale, np.nan).astype(np.float32)
    return real
