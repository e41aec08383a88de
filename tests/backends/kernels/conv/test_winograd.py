"""Winograd's 3x3 convolutions against direct sums in float64: odd shapes, every path, and how large the error is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from native import run, struct, tiers
from test_images import Case, Image
from test_kernels import RELU, RELU6, TANH, act, check, rand, slope


class Layer:
    """A 3x3 convolution with stride 1 on random numbers, and its results in float64."""

    def __init__(self, case: Case, relu: bool = False) -> None:
        im = Image(case)
        self.shape, deep = im.shape, case.c
        self.x, self.b = rand(case.n, case.h, case.w, deep), rand(case.o)
        self.x = np.maximum(self.x, 0) if relu else self.x
        self.w = rand(case.o, 3, 3, deep, scale=(9 * deep) ** -0.5)
        self.dy = rand(case.n, im.oh, im.ow, case.o, seed=4)
        self.y = np.zeros(self.dy.shape)
        self.dx, self.dw = np.zeros(self.x.shape), np.zeros(self.w.shape)
        x, w, dy = (v.astype(np.float64) for v in (self.x, self.w, self.dy))
        for kh, kw, oh, ow, ih, iw in im.cells():
            inside, sent = x[:, ih, iw], dy[:, oh, ow]
            self.y[:, oh, ow] += inside @ w[:, kh, kw].T
            self.dx[:, ih, iw] += sent @ w[:, kh, kw]
            self.dw[:, kh, kw] += np.tensordot(sent, inside, ((0, 1), (0, 1)))

    def forward(self, y: np.ndarray, **more: Any) -> Any:
        return struct("ct_conv_args", x=self.x, w=self.w, y=y, shape=self.shape, **more)

    def input_gradient(self, dx: np.ndarray, **more: Any) -> Any:
        return struct("ct_conv_grad_x_args", dy=self.dy, w=self.w, dx=dx, shape=self.shape, **more)

    def weight_gradient(self, w: np.ndarray, b: np.ndarray) -> Any:
        updates = {"w": struct("ct_update", g=w), "b": struct("ct_update", g=b), "has_w": 1, "has_b": 1}
        return struct("ct_conv_grad_w_args", dy=self.dy, x=self.x, shape=self.shape, **updates)


def agrees(case: Case) -> None:
    """Forward and both gradients, with all that may follow their sums; the weights' gradient is no product of Winograd's."""
    t = Layer(case)
    fresh, before, add = np.zeros(t.y.shape, np.float32), rand(*t.x.shape, seed=6), rand(*t.y.shape, seed=8)
    for kind in (RELU, TANH):
        check(
            "CONV",
            lambda out, kind=kind: t.forward(out["y"], b=t.b, add=add, act=kind),
            {"y": fresh},
            {"y": act(t.y + t.b + add, kind)},
        )
    check("CONV_GRAD_X", lambda out: t.input_gradient(out["dx"]), {"dx": before}, {"dx": t.dx})
    check(
        "CONV_GRAD_X",
        lambda out: t.input_gradient(out["dx"], accumulate=1, out_mask_y=t.x, out_mask_act=RELU6),
        {"dx": before},
        {"dx": (t.dx + before) * slope(t.x, RELU6)},
    )
    check(
        "CONV_GRAD_W",
        lambda out: t.weight_gradient(out["w"], out["b"]),
        {"w": np.zeros(t.w.shape, np.float32), "b": np.zeros(case.o, np.float32)},
        {"w": t.dw, "b": t.dy.astype(np.float64).sum((0, 1, 2))},
    )


PATHS = {
    "few weights": Case(3, 15, 17, 37, 35, (3, 3)),
    "many weights": Case(2, 9, 10, 190, 170, (3, 3)),
    "many weights, blocks of tiles": Case(4, 15, 14, 950, 31, (3, 3)),
    "sums in chunks": Case(4, 39, 41, 121, 117, (3, 3)),
    "sums in chunks and stages": Case(6, 20, 21, 310, 270, (3, 3), pad="VALID"),
}


@pytest.mark.parametrize("case", PATHS.values(), ids=PATHS)
def test_paths(case: Case) -> None:
    agrees(case)


@pytest.mark.parametrize(("size", "c", "o"), [(4, 40, 40), (7, 64, 64), (15, 33, 20), (9, 190, 170)])
def test_an_image_has_the_same_bits_in_any_batch(size: int, c: int, o: int) -> None:
    many = Layer(Case(9, size, size, c, o, (3, 3)))
    for tier in tiers():
        y, dx = np.zeros_like(many.dy), np.zeros_like(many.x)
        assert run("CONV", many.forward(y, b=many.b), 2, tier) == 0
        assert run("CONV_GRAD_X", many.input_gradient(dx), 2, tier) == 0
        one = Layer(Case(1, size, size, c, o, (3, 3)))
        one.x, one.dy, one.w, one.b = many.x[5:6], many.dy[5:6], many.w, many.b
        y_one, dx_one = np.zeros_like(one.dy), np.zeros_like(one.x)
        assert run("CONV", one.forward(y_one, b=one.b), 2, tier) == 0
        assert run("CONV_GRAD_X", one.input_gradient(dx_one), 2, tier) == 0
        assert y_one.tobytes() == y[5:6].tobytes() and dx_one.tobytes() == dx[5:6].tobytes()


@pytest.mark.parametrize("case", [Case(3, 15, 17, 37, 35, (3, 3)), Case(2, 9, 10, 190, 170, (3, 3))])
def test_windows_of_zeros_give_the_bias(case: Case) -> None:
    """To the bit, on which side of 0 a RELU's gradient depends; and no gradient comes from where there is none."""
    t = Layer(case)
    t.x[:, 2:8, 3:9], t.dy[:, 2:8, 3:9], t.dy[0, :, 0] = 0, 0, 0
    for tier in tiers():
        y, dx = np.zeros_like(t.dy), np.zeros_like(t.x)
        assert run("CONV", t.forward(y, b=t.b), 2, tier) == 0
        assert run("CONV_GRAD_X", t.input_gradient(dx), 2, tier) == 0
        assert (y[:, 3:7, 4:8] == t.b).all() and (y[:, 1] != t.b).any()
        assert not dx[:, 3:7, 4:8].any() and dx[0, :, 0].any()


SIZES = st.integers(4, 23)
CHANNELS = st.integers(12, 75)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.integers(1, 5), SIZES, SIZES, CHANNELS, CHANNELS, st.sampled_from(["SAME", "VALID"]))
def test_random_shapes(n: int, h: int, w: int, c: int, o: int, pad: str) -> None:
    agrees(Case(n, h, w, c, o, (3, 3), pad=pad))


@pytest.mark.parametrize("case", [Case(1, 56, 56, 64, 64, (3, 3)), Case(2, 14, 14, 256, 256, (3, 3))])
def test_error(case: Case) -> None:
    """The root mean square of the error stays within 2e-6 of the result's, the largest within 1e-5 of its largest."""
    t = Layer(case, relu=True)
    results = {"y": np.zeros_like(t.dy), "dx": np.zeros_like(t.x), "dw": np.zeros_like(t.w)}
    wants = {"y": t.y, "dx": t.dx, "dw": t.dw}
    bias = np.zeros(case.o, np.float32)
    for tier in tiers():
        assert run("CONV", t.forward(results["y"]), 2, tier) == 0
        assert run("CONV_GRAD_X", t.input_gradient(results["dx"]), 2, tier) == 0
        assert run("CONV_GRAD_W", t.weight_gradient(results["dw"], bias), 2, tier) == 0
        for name, want in wants.items():
            error = results[name] - want
            rms, largest = (
                np.sqrt((error**2).mean() / (want**2).mean()),
                np.abs(error).max() / np.abs(want).max(),
            )
            assert rms <= 2e-6 and largest <= 1e-5
