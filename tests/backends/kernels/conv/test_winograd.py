"""Winograd's 3x3 convolutions against direct sums in float64: odd shapes, every path, and how large the error is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from native import run, tiers
from sized.call import RELU, RELU6, TANH, act, added, rand, slope, stored
from sized.images import Case, Convolution


def layer(case: Case) -> Convolution:
    """A 3x3 convolution with stride 1, its results about as large as its inputs."""
    return Convolution(case, (9 * case.c) ** -0.5)


def agrees(case: Case) -> None:
    """Forward and both gradients, with all that may follow their sums; the weights' gradient is no product of Winograd's."""
    t = layer(case)
    before, add = rand(*t.x.shape, seed=6), rand(*t.dy.shape, seed=8)
    for kind in (RELU, TANH):
        stored(t.of_x(b=t.b, add=add, act=kind), y=act(t.y + add, kind)).agrees("CONV")
    t.grad_x().agrees("CONV_GRAD_X")
    masked = t.of_dy(accumulate=1, out_mask_y=t.x, out_mask_act=RELU6)
    added(masked, before, dx=(t.dx + before) * slope(t.x, RELU6)).agrees("CONV_GRAD_X")
    t.grad_w().agrees("CONV_GRAD_W")


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
    many = layer(Case(9, size, size, c, o, (3, 3)))
    for tier in tiers():
        y, dx = np.zeros_like(many.dy), np.zeros_like(many.x)
        assert run("CONV", many.of_x(b=many.b)({"y": y}), 2, tier) == 0
        assert run("CONV_GRAD_X", many.of_dy()({"dx": dx}), 2, tier) == 0
        one = layer(Case(1, size, size, c, o, (3, 3)))
        one.x, one.dy, one.w, one.b = many.x[5:6], many.dy[5:6], many.w, many.b
        y_one, dx_one = np.zeros_like(one.dy), np.zeros_like(one.x)
        assert run("CONV", one.of_x(b=one.b)({"y": y_one}), 2, tier) == 0
        assert run("CONV_GRAD_X", one.of_dy()({"dx": dx_one}), 2, tier) == 0
        assert y_one.tobytes() == y[5:6].tobytes() and dx_one.tobytes() == dx[5:6].tobytes()


@pytest.mark.parametrize("case", [Case(3, 15, 17, 37, 35, (3, 3)), Case(2, 9, 10, 190, 170, (3, 3))])
def test_windows_of_zeros_give_the_bias(case: Case) -> None:
    """To the bit, on which side of 0 a RELU's gradient depends; and no gradient comes from where there is none."""
    t = layer(case)
    t.x[:, 2:8, 3:9], t.dy[:, 2:8, 3:9], t.dy[0, :, 0] = 0, 0, 0
    for tier in tiers():
        y, dx = np.zeros_like(t.dy), np.zeros_like(t.x)
        assert run("CONV", t.of_x(b=t.b)({"y": y}), 2, tier) == 0
        assert run("CONV_GRAD_X", t.of_dy()({"dx": dx}), 2, tier) == 0
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
    t = layer(case)
    t.x = np.maximum(t.x, 0)
    results = {"y": np.zeros_like(t.dy), "dx": np.zeros_like(t.x), "dw": np.zeros_like(t.w)}
    wants = {"y": t.sums, "dx": t.dx, "dw": t.dw}
    for tier in tiers():
        assert run("CONV", t.of_x()({"y": results["y"]}), 2, tier) == 0
        assert run("CONV_GRAD_X", t.of_dy()({"dx": results["dx"]}), 2, tier) == 0
        assert run("CONV_GRAD_W", t.of_both()({"w": results["dw"]}), 2, tier) == 0
        for name, want in wants.items():
            error = results[name] - want
            rms, largest = (
                np.sqrt((error**2).mean() / (want**2).mean()),
                np.abs(error).max() / np.abs(want).max(),
            )
            assert rms <= 2e-6 and largest <= 1e-5
