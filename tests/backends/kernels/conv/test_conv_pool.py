"""Convolutions of few channels joined with a max pool, against direct sums in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native import run, struct, tiers
from sized.call import RELU, RELU6, Call, act, close, rand, slope
from sized.images import Case, Convolution, Pool, pooled_gradients

LAYERS = {
    "one channel": (Case(3, 12, 14, 1, 32, (3, 3)), (2, 2), "VALID"),
    "one vector": (Case(2, 9, 9, 1, 16, (3, 3), pad="VALID"), (2, 2), "VALID"),
    "three vectors": (Case(2, 10, 11, 2, 48, (2, 3)), (2, 2), "SAME"),
    "kernel rows": (Case(2, 13, 15, 3, 32, (5, 5)), (3, 2), "SAME"),
    "strides": (Case(1, 30, 29, 3, 64, (7, 7), (2, 2)), (2, 2), "VALID"),
    "dilation": (Case(1, 14, 12, 4, 16, (3, 2), (1, 1), (3, 1)), (1, 4), "VALID"),
    "windows of padding": (Case(2, 3, 4, 1, 16, (3, 2), (1, 1), (5, 1)), (3, 3), "SAME"),
}


def joined(conv: Convolution, pool: Pool, kind: int) -> Any:
    """Arguments of both, for given outputs."""
    first = conv.of_x(b=conv.b, act=kind)({})
    shape = pool.image.shape
    return lambda out: struct(
        "ct_conv_pool_args", conv=first, pool=struct("ct_pool_args", shape=shape, **out)
    )


@pytest.mark.parametrize(("case", "k", "pad"), LAYERS.values(), ids=LAYERS)
def test_forward(case: Case, k: tuple[int, int], pad: str) -> None:
    conv = Convolution(case)
    y = act(conv.y, RELU6)
    pool = Pool(y, k, k, pad)
    make = joined(conv, pool, RELU6)
    outputs = {"y": np.zeros(pool.shape, np.float32), "index": np.full(pool.shape, 255, np.uint8)}
    Call(make, outputs, {"y": pool.best}).agrees("CONV_POOL")
    for tier in tiers():
        assert run("CONV_POOL", make(outputs), 2, tier) == 0
        found = np.full(pool.shape, np.nan)
        for kh, kw, oh, ow, ih, iw in pool.image.cells():
            here = outputs["index"][:, oh, ow] == kh * k[1] + kw
            found[:, oh, ow] = np.where(here, y[:, ih, iw], found[:, oh, ow])
        close(found, pool.best)


@pytest.mark.parametrize(("case", "k", "pad"), LAYERS.values(), ids=LAYERS)
@pytest.mark.parametrize("kind", [0, RELU])
def test_backward(case: Case, k: tuple[int, int], pad: str, kind: int) -> None:
    conv = Convolution(case)
    pool = Pool(conv.y, k, k, pad)
    dy, y = rand(*pool.shape, seed=3), pool.best.astype(np.float32)
    back = struct("ct_pool_args", y=y, index=pool.where, dy=dy, shape=pool.image.shape, act=kind)
    pooled_gradients(conv, back, pool.sent_of(dy * slope(y, kind))).agrees("POOL_CONV_GRAD_W")


def test_ties_are_the_first() -> None:
    """Where a RELU makes all of a window 0, its first cell is the place."""
    conv = Convolution(Case(1, 6, 6, 1, 16, (3, 3)), 0.0)
    conv.b *= 0
    pool = Pool(conv.y, (2, 2), (2, 2), "VALID")
    for tier in tiers():
        y, index = np.full(pool.shape, 7, np.float32), np.full(pool.shape, 255, np.uint8)
        assert run("CONV_POOL", joined(conv, pool, RELU)({"y": y, "index": index}), 1, tier) == 0
        assert not y.any() and not index.any()
