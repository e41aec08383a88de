"""Kernels of integers that are no products, as calls of given extents."""

from __future__ import annotations

import numpy as np

from circle_train.backends.native.engine import abi
from sized.call import Arrays, Call, args
from sized.integers import Windows, in_range, numbers, stored

RANGE = {"y_zero": 3, "low": -120, "high": 100}

TYPES = {np.int8: abi.IntType.INT8, np.uint8: abi.IntType.UINT8, np.int16: abi.IntType.INT16}


def pooled(image: Windows, kernel: int, stride: int, how: int) -> Call:
    pads = ((0, 0), (image.pad, kernel), (image.pad, kernel), (0, 0))
    ones = np.pad(np.ones(image.x.shape, np.int64), pads)
    valid = [
        ones[:, i : i + image.out[0] * stride : stride, j : j + image.out[1] * stride : stride]
        for i in range(kernel)
        for j in range(kernel)
    ]
    count = np.maximum(sum(valid), 1).astype(np.float32)
    if how == abi.Reduce.SUM:
        real = sum(image.cells).astype(np.float32) * (np.float32(0.5) / count)
    else:
        low = [np.where(v > 0, c, -1000) for v, c in zip(valid, image.cells, strict=True)]
        real = np.max(low, axis=0)
    zero = RANGE["y_zero"] if how == abi.Reduce.SUM else image.zero  # the largest means what its cell meant
    make = args(
        "ct_int_pool_args", x=image.x, shape=image.shape, x_flip=128, x_zero=image.zero + 128, op=how, scale=0.5, **RANGE
    )  # fmt: skip
    stands = np.clip(real, RANGE["low"] - zero, RANGE["high"] - zero) + zero
    return stored(make, np.trunc(stands + np.copysign(0.5, stands)).astype(np.int8))


def int_mean(batch: int, h: int, w: int, ins: int, kernel: int, stride: int) -> Call:
    return pooled(Windows(batch, h, w, ins, ins, kernel, stride), kernel, stride, abi.Reduce.SUM)


def int_largest(batch: int, h: int, w: int, ins: int, stride: int) -> Call:
    return pooled(Windows(batch, h, w, ins, ins, 2, stride), 2, stride, abi.Reduce.MAX)


def int_binary(rows: int, cols: int, inner: int) -> Call:
    """One operand for all rows, the other turned."""
    a, b = numbers(rows, 1, inner), numbers(cols, rows, inner, seed=1)
    shape = (rows, cols, inner)
    strides = [np.broadcast_to(v, shape).strides for v in (a, b.transpose(1, 0, 2))]
    ua, ub = (v.astype(np.int64) + 128 for v in (a, b.transpose(1, 0, 2)))
    factors = {"scale_a": 0.5, "scale_b": -0.25, "scale_ab": 0.015625, "offset": -3.0}
    make = args(
        "ct_int_binary_args", a=a, b=b, shape=shape, a_strides=strides[0], b_strides=strides[1], rank=3, a_flip=128,
        b_flip=128, **factors, **RANGE,
    )  # fmt: skip
    return stored(make, in_range(np.broadcast_to(0.5 * ua - 0.25 * ub + ua * ub / 64 - 3, shape)))


def int_softmax(rows: int, cols: int) -> Call:
    x = numbers(rows, cols)
    power = (256 - np.arange(256)).astype(np.float32)
    of = (
        power[x.max(1, keepdims=True, initial=-128).astype(int) - x]
        if cols
        else np.zeros(x.shape, np.float32)
    )
    scale = np.float32(256) / of.sum(1, keepdims=True, dtype=np.float32)
    make = args(
        "ct_int_softmax_args", x=x, power=power, rows=rows, cols=cols, x_flip=128, scale=256.0, **RANGE
    )
    return stored(make, in_range(of * scale))


def int_softmax_short(rows: int, cols: int) -> Call:
    """Halves each time; the points are those of a line through 1 and 1/2."""
    x = np.random.default_rng(0).integers(-20, 20, (rows, cols)).astype(np.int16)
    power = np.zeros(1 << 16, np.int16)
    power[:15] = [1 << (14 - i) for i in range(15)]
    inverse = (32767 - 32 * np.arange(513)).astype(np.int16)
    want = np.zeros((rows, cols), np.int64)
    for row, values in zip(want, x.astype(np.int64), strict=True):
        if cols:
            e = power[values.max() - values].astype(np.int64)
            shift = int(e.sum()).bit_length() - 1
            at = ((int(e.sum()) << (30 - shift)) + (1 << 13) >> 14) - (1 << 16)
            at = min(at, 65535)
            line = int(inverse[at >> 7]) + ((-32 * (at & 127) + 64) >> 7)
            row[:] = np.minimum((e * line + (1 << (shift - 1))) >> shift, 32767)
    make = args("ct_int_softmax_args", x=x, power=power, inverse=inverse, rows=rows, cols=cols)
    return stored(make, want.astype(np.int16))


def mapped(rows: int, width: int, kind: type, taken: type = np.int8) -> Call:
    """All but the last two of wider rows."""
    every = 1 << 8 * np.dtype(taken).itemsize
    x = np.random.default_rng(1).integers(0, every, (rows, width + 2)).astype(f"u{every.bit_length() // 8}")
    table = np.random.default_rng(0).integers(-128, 128, every).astype(kind)
    fields: Arrays = {"x": x, "table": table}
    make = args(
        "ct_int_table_args", **fields, rows=rows, width=width, x_row=width + 2, y_row=width,
        element_size=table.itemsize,
    )  # fmt: skip
    return stored(make, table[x[:, :width]])


def int_table(rows: int, width: int) -> Call:
    return mapped(rows, width, np.int8)


def int_table_of_floats(rows: int, width: int) -> Call:
    return mapped(rows, width, np.float32)


def int_table_of_shorts(rows: int, width: int) -> Call:
    return mapped(rows, width, np.int16, np.int16)


def rounded(size: int, kind: type) -> Call:
    x = np.random.default_rng(size).uniform(-40, 40, size).astype(np.float32)
    x[::5] = np.round(x[::5] * 4) / 4 + 0.125  # ties
    make = args("ct_int_round_args", x=x, size=size, scale=4.0, type=TYPES[kind], **RANGE)
    return stored(make, in_range(x * np.float32(4)).astype(kind))


def int_round(size: int) -> Call:
    return rounded(size, np.int8)


def int_round_to_short(size: int) -> Call:
    return rounded(size, np.int16)


def widened(outer: int, channels: int, inner: int, kind: type) -> Call:
    limits = np.iinfo(kind)
    x = np.random.default_rng(0).integers(limits.min, limits.max + 1, (outer, channels, inner)).astype(kind)
    scale = 2.0 ** -np.arange(channels).astype(np.float32) * np.float32(1.5)
    zero = np.arange(channels).astype(np.float32) * 3 - 5
    make = args(
        "ct_int_widen_args",
        x=x,
        scale=scale,
        zero=zero,
        outer=outer,
        channels=channels,
        inner=inner,
        type=TYPES[kind],
    )
    want = scale[:, None] * (x.astype(np.float32) - zero[:, None])
    return Call(make, {"y": np.zeros_like(want)}, {"y": want})


def int_widen(outer: int, channels: int, inner: int) -> Call:
    return widened(outer, channels, inner, np.int8)


def int_widen_unsigned(channels: int) -> Call:
    return widened(2, channels, 1, np.uint8)


def int_widen_of_short(outer: int, inner: int) -> Call:
    return widened(outer, 1, inner, np.int16)
