"""Convolutions of few channels joined with a max pool, against direct sums in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native import run, struct, tiers
from test_images import Case, Image
from test_kernels import RELU, RELU6, act, check, close, rand, slope


class Layers:
    """A convolution and the pool over it: each a case; results in float64."""

    def __init__(self, conv: Case, k: tuple[int, int], pad: str) -> None:
        self.conv = Image(conv)
        shape = (conv.n, self.conv.oh, self.conv.ow, conv.o)
        self.pool = Image(Case(conv.n, shape[1], shape[2], conv.o, conv.o, k, k, pad=pad))
        self.x, self.w = rand(conv.n, conv.h, conv.w, conv.c), rand(conv.o, *conv.k, conv.c)
        self.b = rand(conv.o)
        self.sums = np.zeros(shape) + self.b
        for kh, kw, oh, ow, ih, iw in self.conv.cells():
            self.sums[:, oh, ow] += self.x.astype(np.float64)[:, ih, iw] @ self.w[:, kh, kw].T

    @property
    def pooled(self) -> tuple[int, ...]:
        return (self.conv.case.n, self.pool.oh, self.pool.ow, self.conv.case.o)


LAYERS = {
    "one channel": (Case(3, 12, 14, 1, 32, (3, 3)), (2, 2), "VALID"),
    "one vector": (Case(2, 9, 9, 1, 16, (3, 3), pad="VALID"), (2, 2), "VALID"),
    "three vectors": (Case(2, 10, 11, 2, 48, (2, 3)), (2, 2), "SAME"),
    "kernel rows": (Case(2, 13, 15, 3, 32, (5, 5)), (3, 2), "SAME"),
    "strides": (Case(1, 30, 29, 3, 64, (7, 7), (2, 2)), (2, 2), "VALID"),
    "dilation": (Case(1, 14, 12, 4, 16, (3, 2), (1, 1), (3, 1)), (1, 4), "VALID"),
    "windows of padding": (Case(2, 3, 4, 1, 16, (3, 2), (1, 1), (5, 1)), (3, 3), "SAME"),
}


@pytest.mark.parametrize(("conv", "k", "pad"), LAYERS.values(), ids=LAYERS)
def test_forward(conv: Case, k: tuple[int, int], pad: str) -> None:
    t = Layers(conv, k, pad)
    y = act(t.sums, RELU6)
    want = np.full(t.pooled, -np.inf)
    for _, _, oh, ow, ih, iw in t.pool.cells():
        want[:, oh, ow] = np.maximum(want[:, oh, ow], y[:, ih, iw])

    def args(out: dict[str, np.ndarray]) -> Any:
        pool = struct("ct_pool_args", y=out["y"], index=out["index"], shape=t.pool.shape)
        return struct(
            "ct_conv_pool_args",
            conv=struct("ct_conv_args", x=t.x, w=t.w, b=t.b, shape=t.conv.shape, act=RELU6),
            pool=pool,
        )

    outputs = {"y": np.zeros(t.pooled, np.float32), "index": np.full(t.pooled, 255, np.uint8)}
    check("CONV_POOL", args, outputs, {"y": want})
    for tier in tiers():
        assert run("CONV_POOL", args(outputs), 2, tier) == 0
        found = np.full(t.pooled, np.nan)
        for kh, kw, oh, ow, ih, iw in t.pool.cells():
            here = outputs["index"][:, oh, ow] == kh * k[1] + kw
            found[:, oh, ow] = np.where(here, y[:, ih, iw], found[:, oh, ow])
        close(found, want)


@pytest.mark.parametrize(("conv", "k", "pad"), LAYERS.values(), ids=LAYERS)
@pytest.mark.parametrize("kind", [0, RELU])
def test_backward(conv: Case, k: tuple[int, int], pad: str, kind: int) -> None:
    t = Layers(conv, k, pad)
    places = np.zeros(t.pooled, np.uint8)
    best = np.full(t.pooled, -np.inf)
    for kh, kw, oh, ow, ih, iw in t.pool.cells():
        better = t.sums[:, ih, iw] > best[:, oh, ow]
        places[:, oh, ow] = np.where(better, kh * k[1] + kw, places[:, oh, ow])
        best[:, oh, ow] = np.maximum(best[:, oh, ow], t.sums[:, ih, iw])
    dy, y = rand(*t.pooled, seed=3), best.astype(np.float32)
    sent = np.zeros(t.sums.shape)
    for kh, kw, oh, ow, ih, iw in t.pool.cells():
        here = places[:, oh, ow] == kh * k[1] + kw
        sent[:, ih, iw] += np.where(here, dy[:, oh, ow] * slope(y[:, oh, ow], kind), 0)
    dw = np.zeros(t.w.shape)
    for kh, kw, oh, ow, ih, iw in t.conv.cells():
        dw[:, kh, kw] = np.tensordot(sent[:, oh, ow], t.x.astype(np.float64)[:, ih, iw], ((0, 1), (0, 1)))

    def args(out: dict[str, np.ndarray]) -> Any:
        return struct(
            "ct_pool_conv_grad_w_args",
            pool=struct("ct_pool_args", y=y, index=places, dy=dy, shape=t.pool.shape, act=kind),
            conv=struct(
                "ct_conv_grad_w_args",
                x=t.x,
                shape=t.conv.shape,
                w=struct("ct_update", g=out["w"]),
                b=struct("ct_update", g=out["b"]),
                has_w=1,
                has_b=1,
            ),
        )

    check(
        "POOL_CONV_GRAD_W",
        args,
        {"w": np.full(t.w.shape, np.nan, np.float32), "b": np.full(conv.o, np.nan, np.float32)},
        {"w": dw, "b": sent.sum((0, 1, 2))},
    )


def test_ties_are_the_first() -> None:
    """Where a RELU makes all of a window 0, its first cell is the place."""
    t = Layers(Case(1, 6, 6, 1, 16, (3, 3)), (2, 2), "VALID")
    for tier in tiers():
        y, index = np.full(t.pooled, 7, np.float32), np.full(t.pooled, 255, np.uint8)
        args = struct(
            "ct_conv_pool_args",
            conv=struct("ct_conv_args", x=t.x, w=0 * t.w, b=0 * t.b, shape=t.conv.shape, act=RELU),
            pool=struct("ct_pool_args", y=y, index=index, shape=t.pool.shape),
        )
        assert run("CONV_POOL", args, 1, tier) == 0
        assert not y.any() and not index.any()
