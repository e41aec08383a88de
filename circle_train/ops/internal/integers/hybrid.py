"""Products of floats with weights in integers, as LiteRT computes them: samples are rounded to bytes while it runs."""

from __future__ import annotations

import enum
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


class Rounding(enum.IntEnum):
    """Whose bytes samples are rounded to: the kernels' numbers for them."""

    XNNPACK = 0
    OWN = 1
    """Of LiteRT's own kernels, for what XNNPACK leaves them."""
    SYMMETRIC = 2
    """Theirs too: as many on either side of 0."""


@register("HYBRID", internal=True)
@record
class Hybrid(Op):
    """of(x rounded, what w stands for, b): products row by row, CONV_2D image by image.

    A convolution of single cells is a product, whose rows are cells, unless it is taken `whole`.
    """

    of: Op
    weights: Quantization
    rounding: Rounding = Rounding.XNNPACK
    whole: bool = False

    static_inputs = ("w", "b")
    axes = Image()

    def infer(self, x: TensorType, w: TensorType, b: TensorType | None = None) -> Sequence[TensorType]:
        types = self.of.infer_types([x, TensorType(DType.FLOAT32, w.shape), b])
        return list(types)

    def forward(self, x: Array, w: Array, b: Array | None = None) -> Array:
        rows = x.reshape(self.samples(x.shape, w.shape), -1)
        made: Array = self.of.compute(
            [rounded(rows, self.rounding).reshape(x.shape), dequantize(w, self.weights), b]
        )[0]
        return made

    def samples(self, x: Sequence[int], w: Sequence[int]) -> int:
        """How many parts of the input have a scale of their own."""
        strides = (self.of.stride_h, self.of.stride_w) if isinstance(self.of, Conv2D) else (1, 1)
        is_product = prod(w[1:-1]) == 1 and strides == (1, 1) and not self.whole
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
        for rounding in Rounding:
            yield Example(cls(Conv2D(), each, rounding), inputs, constant=(1, 2), differentiable=False)
        inputs = (random(2, 5, 5, 3), stored(4, 1, 1, 3), random(4))
        yield Example(cls(Conv2D(), each, whole=True), inputs, constant=(1, 2), differentiable=False)


@register("ROUND_SAMPLES", internal=True)
@record
class RoundSamples(Op):
    """Each sample as the bytes of its own that LiteRT's kernel of an operator with weights in bytes makes of it."""

    axes = Image()

    def infer(self, x: TensorType) -> TensorType:
        return TensorType(x.dtype, x.shape)

    def forward(self, x: Array) -> Array:
        return rounded(x.reshape(len(x), -1), Rounding.OWN).reshape(x.shape)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield Example(cls(), (random(3, 4, 5, 2, low=-2, high=3),), differentiable=False)
        yield Example(cls(), (np.zeros((2, 3), np.float32),), differentiable=False)


def rounded(rows: Array, rounding: Rounding = Rounding.XNNPACK) -> Array:
    """To steps of each row's own; NaN where one is not finite."""
    least = rows.min(1, keepdims=True, initial=0).astype(np.float32)
    most = rows.max(1, keepdims=True, initial=0).astype(np.float32)
    grid = {Rounding.XNNPACK: _grid, Rounding.OWN: _own_grid, Rounding.SYMMETRIC: _symmetric_grid}[rounding]
    with np.errstate(all="ignore"):
        scale, zero = grid(least, most)
        low = -127 if rounding is Rounding.SYMMETRIC else -128
        kept = np.clip(rows * (1 / scale), low - zero, 127 - zero)
        is_even = rounding is Rounding.XNNPACK
        stored = np.rint(kept) if is_even else np.trunc(kept + np.copysign(np.float32(0.5), kept))
        real: Array = np.where(np.isfinite(most - least), stored * scale, np.nan).astype(np.float32)
    return real


def _grid(least: Array, most: Array) -> tuple[Array, Array]:
    """255 steps from the least to the largest, counted in float32."""
    span = most - least
    is_flat = ~(span > 255 * np.finfo(np.float32).tiny)
    steps = np.where(is_flat, np.float32(1), np.float32(255) / span)
    low, high = least * steps, most * steps
    zero = np.where(low + high - 1 > 0, -128 - low, 127 - high)
    return 1 / steps, np.where(is_flat, 0, np.rint(np.clip(zero, -128, 127)))


def _own_grid(least: Array, most: Array) -> tuple[Array, Array]:
    """Whose zero is found in double precision, and by another rule."""
    is_flat = least == most
    scale = np.where(is_flat, np.float32(1), (most - least) / np.float32(255))
    step = np.where(is_flat, 1, (most.astype(np.float64) - least) / 255)
    low, high = least / step, most / step
    zero = np.where(is_flat, 0, np.where(-low < high, -128 - low, 127 - high))
    return scale, np.rint(np.clip(zero, -128, 127)).astype(np.float32)


def _symmetric_grid(least: Array, most: Array) -> tuple[Array, Array]:
    reach = np.maximum(most, -least)
    scale = np.where(reach > 127 * np.finfo(np.float32).tiny, reach / np.float32(127), np.float32(1))
    return scale, np.zeros_like(scale)
