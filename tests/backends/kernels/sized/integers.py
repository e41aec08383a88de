"""Kernels of bytes as calls of given extents; scales are such that every result is exact."""

from __future__ import annotations

import numpy as np
from native import struct

from circle_train.backends.native.engine import abi
from circle_train.ops.internal.integers.hybrid import rounded as rounded_samples
from sized.call import Call, Make, args

RANGE = {"y_zero": 3, "low": -120, "high": 100}


def stored(make: Make, want: np.ndarray) -> Call:
    """Bytes are written, whatever they held."""
    return Call(make, {"y": np.full(want.shape, 7, want.dtype)}, {"y": want})


def in_range(real: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(real) + RANGE["y_zero"], RANGE["low"], RANGE["high"]).astype(np.int8)


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).integers(-128, 128, shape).astype(np.int8)


class Windows:
    """A convolution of int8 with a zero of its own, by loops over the kernel's cells."""

    zero = 5

    def drawn(self, *shape: int) -> np.ndarray:
        return numbers(*shape)

    def __init__(self, batch: int, h: int, w: int, ins: int, outs: int, kernel: int, stride: int) -> None:
        self.x, self.pad = self.drawn(batch, h, w, ins), kernel // 2
        self.out = [max(0, (n + 2 * self.pad - kernel) // stride + 1) if n else 0 for n in (h, w)]
        self.shape = struct(
            "ct_conv_shape", batch=batch, in_h=h, in_w=w, in_c=ins, out_h=self.out[0], out_w=self.out[1], out_c=outs,
            kernel_h=kernel, kernel_w=kernel, stride_h=stride, stride_w=stride, dilation_h=1, dilation_w=1,
            pad_top=self.pad, pad_left=self.pad, groups=1,
        )  # fmt: skip
        real = self.x.astype(np.int64) - self.zero
        padded = np.pad(real, ((0, 0), (self.pad, kernel), (self.pad, kernel), (0, 0)))
        self.cells = [
            padded[:, i : i + self.out[0] * stride : stride, j : j + self.out[1] * stride : stride]
            for i in range(kernel)
            for j in range(kernel)
        ]
        self.kernel, self.stride = kernel, stride

    def call(self, packed: np.ndarray, sums: np.ndarray, weights: np.ndarray, w_zero: int) -> Call:
        outs = sums.shape[-1]
        bias, scale = np.zeros(outs + 80, np.int32), np.zeros(outs + 80, np.float32)
        own = np.random.default_rng(0).integers(-500, 500, outs)
        bias[:outs] = own - (self.zero + 128) * (weights.astype(np.int64) - w_zero).sum(0)
        scale[:outs] = 2.0 ** -np.random.default_rng(1).integers(6, 12, outs)
        make = args(
            "ct_int_conv_args", x=self.x, w=packed, bias=bias, scale=scale, shape=self.shape, x_flip=128,
            x_zero=self.zero + 128, w_zero=w_zero, **RANGE,
        )  # fmt: skip
        return stored(make, in_range((sums + own) * scale[:outs].astype(np.float64)))


class Shorts(Windows):
    """Of int16 as large as they may be, so that sums leave 32 bits where there are enough of them."""

    zero = 0

    def drawn(self, *shape: int) -> np.ndarray:
        return np.random.default_rng([*shape]).integers(20000, 32768, shape).astype(np.int16)

    def call(self, packed: np.ndarray, sums: np.ndarray, weights: np.ndarray, w_zero: int) -> Call:
        outs, rng = sums.shape[-1], np.random.default_rng(0)
        bias, (factor, shift) = np.zeros(outs + 80, np.int64), np.zeros((2, outs + 80), np.int32)
        bias[:outs], factor[:outs] = (
            rng.integers(-(1 << 35), 1 << 35, outs),
            rng.integers(1 << 14, 1 << 15, outs),
        )
        shift[:outs] = rng.integers(25, 40, outs)
        edges = {"low": -30000, "high": 31000}
        make = args(
            "ct_int_conv_args", x=self.x, w=packed, bias=bias, scale=factor, shift=shift, shape=self.shape, **edges
        )  # fmt: skip
        wide = (sums + bias[:outs]) * factor[:outs] + (1 << (shift[:outs].astype(np.int64) - 1))
        return stored(make, np.clip(wide >> shift[:outs], *edges.values()).astype(np.int16))


def convolved(image: Windows, ins: int, outs: int, kernel: int, zero: int) -> Call:
    weights = numbers(kernel * kernel, ins, outs, seed=1)
    sums = np.zeros((len(image.x), *image.out, outs), np.int64)
    for cell, values in zip(image.cells, weights.astype(np.int64) - zero, strict=True):
        sums += cell @ values
    return image.call(panels_of(weights, kernel), sums, weights.reshape(kernel * kernel * ins, outs), zero)


def panels_of(weights: np.ndarray, kernel: int) -> np.ndarray:
    """Of cells × ins × outs: [panel][run][fours][16][4]."""
    _, ins, outs = weights.shape
    runs = weights.reshape(kernel, kernel * ins, outs)
    panels, fours = -(-outs // abi.INT_PANEL), -(-kernel * ins // 4)
    whole = np.zeros((kernel, fours * 4, panels * abi.INT_PANEL), np.int8)
    whole[:, : runs.shape[1], :outs] = runs
    split = whole.reshape(kernel, fours, 4, panels, abi.INT_PANEL).transpose(3, 0, 1, 4, 2)
    return np.ascontiguousarray(split)


def int_conv(batch: int, h: int, w: int, ins: int, outs: int, kernel: int, stride: int) -> Call:
    return convolved(Windows(batch, h, w, ins, outs, kernel, stride), ins, outs, kernel, 0)


def int_conv_of_unsigned_weights(batch: int, h: int, w: int, ins: int, outs: int) -> Call:
    return convolved(Windows(batch, h, w, ins, outs, 3, 2), ins, outs, 3, -9)


def channel_by_channel(image: Windows, ins: int, kernel: int, zero: int) -> Call:
    weights = numbers(kernel * kernel, ins, seed=1)
    sums = np.zeros((len(image.x), *image.out, ins), np.int64)
    for cell, values in zip(image.cells, weights.astype(np.int64) - zero, strict=True):
        sums += cell * values
    return image.call(weights, sums, weights, zero)


def int_depthwise(batch: int, h: int, w: int, ins: int, kernel: int, stride: int) -> Call:
    return channel_by_channel(Windows(batch, h, w, ins, ins, kernel, stride), ins, kernel, 0)


def int_depthwise_of_unsigned_weights(batch: int, h: int, w: int, ins: int) -> Call:
    return channel_by_channel(Windows(batch, h, w, ins, ins, 3, 1), ins, 3, 11)


def int_conv_short(batch: int, h: int, w: int, ins: int, outs: int, kernel: int, stride: int) -> Call:
    return convolved(Shorts(batch, h, w, ins, outs, kernel, stride), ins, outs, kernel, 0)


def int_conv_short_of_long_runs(ins: int, outs: int) -> Call:
    """Of which 32 bits hold but a part."""
    return convolved(Shorts(1, 3, 3, ins * 64, outs, 3, 1), ins * 64, outs, 3, 0)


def int_depthwise_short(batch: int, h: int, w: int, ins: int, kernel: int, stride: int) -> Call:
    return channel_by_channel(Shorts(batch, h, w, ins, ins, kernel, stride), ins, kernel, 0)


def hybrid(batch: int, h: int, w: int, ins: int, outs: int, kernel: int) -> Call:
    """A convolution of floats and bytes, each image rounded to bytes of its own."""
    x = np.random.default_rng(0).normal(size=(batch, h, w, ins)).astype(np.float32) * 2 + 1
    weights = numbers(kernel * kernel, ins, outs, seed=1)
    pad, scale = kernel // 2, 2.0 ** -np.random.default_rng(1).integers(6, 12, outs + 80).astype(np.float32)
    out = [max(0, n + 2 * pad - kernel + 1) if n else 0 for n in (h, w)]
    on_grid = rounded_samples(x.reshape(batch, -1)).reshape(x.shape) if x.size else x
    padded = np.pad(on_grid.astype(np.float64), ((0, 0), (pad, kernel), (pad, kernel), (0, 0)))
    want = np.zeros((batch, *out, outs))
    for cell, values in enumerate(weights.astype(np.float64)):
        i, j = divmod(cell, kernel)
        want += padded[:, i : i + out[0], j : j + out[1]] @ values
    counted, bias = np.zeros(outs + 80, np.int32), np.ones(outs + 80, np.float32)
    counted[:outs] = weights.astype(np.int32).sum((0, 1))
    shape = struct(
        "ct_conv_shape", batch=batch, in_h=h, in_w=w, in_c=ins, out_h=out[0], out_w=out[1], out_c=outs, kernel_h=kernel,
        kernel_w=kernel, stride_h=1, stride_w=1, dilation_h=1, dilation_w=1, pad_top=pad, pad_left=pad, groups=1,
    )  # fmt: skip
    make = args(
        "ct_int_hybrid_args", x=x, w=panels_of(weights, kernel), w_sums=counted, w_scale=scale, bias=bias, shape=shape,
        samples=batch, low=-50.0, high=np.inf,
    )  # fmt: skip
    return stored(make, np.maximum(want * scale[:outs] + 1, -50).astype(np.float32))


def int_samples(batch: int, size: int) -> Call:
    """The same rounding, back in floats."""
    x = np.random.default_rng(size).normal(size=(batch, size)).astype(np.float32) * 2 + 1
    make = args("ct_int_samples_args", x=x, samples=batch, each=size)
    return stored(make, rounded_samples(x).astype(np.float32) if x.size else x)


def int_settle(size: int) -> Call:
    x = np.random.default_rng(size).uniform(-40, 40, size).astype(np.float32)
    x[::5] = np.round(x[::5] * 4) / 4 + 0.125  # ties
    make = args(
        "ct_int_settle_args", x=x, size=size, inverse=4.0, scale=0.25, zero=3.0, low=-120.0, high=100.0,
        pass_low=-30.0, pass_high=20.0,
    )  # fmt: skip
    lies = np.clip(np.rint(x * np.float32(4)) + 3, -120, 100)
    want = {
        "y": np.float32(0.25) * (lies - 3),
        "bytes": lies.astype(np.int8),
        "bits": np.packbits((x > -30) & (x < 20), bitorder="little"),
    }
    return Call(make, {name: np.full_like(array, 7) for name, array in want.items()}, want)
