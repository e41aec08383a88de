"""Chains, sums, scans and updates as calls of given extents."""

from __future__ import annotations

import numpy as np
from native import struct
from test_elementwise import chain

from circle_train.backends.native.engine import abi
from sized.call import Call, Make, args, rand, stored, zeros


def chained(outer: int, inner: int) -> Call:
    return _chain(rand(outer, inner), rand(1, inner))


def chained_within(outer: int, inner: int) -> Call:
    """Parts of larger arrays, which have strides where nothing lies too."""
    return _chain(rand(outer, inner + 3)[:, :inner], rand(1, inner + 3)[:, :inner])


def _chain(x: np.ndarray, row: np.ndarray) -> Call:
    outer, inner = x.shape
    ops = [("ADD", 2, 0, 1, 0, 0.0), ("GREATER", 3, 2, 0, 0, 0.0), ("MUL_IMM", 2, 2, 0, 0, 2.0)]
    outputs = {"y": zeros(outer, inner), "more": np.full((outer, inner), 7, np.uint8)}
    wants = {"y": 2.0 * (x + row), "more": x + row > x}
    return Call(lambda out: chain([x, row], [(out["y"], 2), (out["more"], 3)], ops), outputs, wants)


def _reduce(x: np.ndarray, op: str, axes: tuple[int, ...]) -> Make:
    flags = [int(d in axes) for d in range(8)]
    shape = [*x.shape] + [0] * (8 - x.ndim)
    return args("ct_reduce_args", x=x, shape=shape, rank=x.ndim, scale=1.0, reduce=flags, op=abi.Reduce[op])


def summed_outside(outer: int, middle: int, inner: int) -> Call:
    x = rand(outer, middle, inner)
    return stored(_reduce(x, "SUM", (0, 2)), y=x.sum((0, 2), dtype=np.float64))


def summed_inside(outer: int, middle: int, inner: int) -> Call:
    x = rand(outer, middle, inner)
    return stored(_reduce(x, "SUM", (1,)), y=x.sum(1, dtype=np.float64))


def largest(outer: int, inner: int) -> Call:
    x = rand(outer, inner)
    return stored(_reduce(x, "MAX", (1,)), y=x.max(1, initial=-np.inf))


def updated(size: int) -> Call:
    g, w, scalars = rand(size), rand(size, seed=1), np.array([0.1, *[0] * 15], np.float32)
    sgd = args("ct_update", kind=abi.UpdateKind.SGD, scalars=scalars)
    make = lambda out: struct("ct_update_args", grad=g, size=size, update=sgd(out))  # noqa: E731
    return Call(make, {"w": w}, {"w": w - 0.1 * g})


def scanned(outer: int, size: int, inner: int) -> Call:
    """From the end, without the element itself."""
    x = rand(outer, size, inner)
    make = args(
        "ct_scan_args", x=x, outer=outer, size=size, inner=inner, op=abi.Reduce.SUM, exclusive=1, reverse=1
    )
    total = np.flip(np.cumsum(np.flip(x, 1), 1, np.float64), 1)
    return stored(make, y=total - x)


def multiplied(outer: int, size: int, inner: int) -> Call:
    x = rand(outer, size, inner)
    make = args("ct_scan_args", x=x, outer=outer, size=size, inner=inner, op=abi.Reduce.PROD)
    return stored(make, y=np.cumprod(x, 1, np.float64))


def clip_factor(parts: int) -> Call:
    sums = np.square(rand(parts)) + 1
    want = np.array([min(0.5 / (np.sqrt(sums.sum(dtype=np.float64)) + 1e-6), 1)])
    return stored(args("ct_clip_factor_args", sums=sums, parts=parts, limit=0.5), factor=want)


def guarded(size: int) -> Call:
    return Call(args("ct_guard_args", x=rand(size), size=size), {}, {})
