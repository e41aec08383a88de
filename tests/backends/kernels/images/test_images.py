"""Convolutions against direct sums in float64."""

from __future__ import annotations

import numpy as np
import pytest
from native import run, tiers
from sized.call import CURVES, RELU, RELU6, act, added, close, rand, slope, stored
from sized.images import Case, Convolution, Depthwise

from circle_train.backends.native.engine import abi

CONVS = [
    Case(2, 9, 11, 3, 8, (3, 3)),
    Case(2, 9, 11, 3, 8, (3, 3), (2, 2)),
    Case(1, 8, 8, 1, 5, (3, 3)),
    Case(3, 7, 5, 16, 24, (1, 1)),
    Case(2, 8, 8, 6, 10, (1, 1), (2, 2)),
    Case(1, 12, 9, 5, 7, (3, 2), (2, 1), (1, 2)),
    Case(2, 10, 10, 8, 12, (5, 5), (3, 3), pad="VALID"),
    Case(1, 11, 11, 4, 6, (3, 3), (1, 1), (2, 2), "VALID"),
    Case(2, 9, 9, 8, 12, (3, 3), groups=4),
    Case(2, 11, 12, 32, 48, (3, 3), (2, 2), groups=2),
    Case(2, 7, 9, 34, 68, (1, 1), groups=2),
    Case(1, 12, 10, 64, 64, (3, 3), groups=4),
    Case(1, 9, 8, 6, 6, (3, 3), (1, 1), (2, 2), groups=6),
    Case(1, 6, 6, 2, 3, (2, 2), (3, 3), pad="VALID"),
    Case(2, 14, 14, 32, 64, (3, 3)),
    Case(1, 5, 5, 150, 40, (3, 3)),
    Case(4, 12, 12, 17, 35, (3, 3)),
    Case(1, 7, 9, 33, 16, (3, 3), pad="VALID"),
    Case(2, 9, 11, 3, 32, (3, 3), (2, 2)),
    Case(1, 8, 8, 1, 20, (3, 3)),
    Case(2, 30, 29, 3, 48, (7, 7), (2, 2)),
    Case(1, 12, 9, 4, 37, (5, 3), (2, 1), (2, 1)),
    Case(1, 2, 3, 3, 16, (5, 5)),
    Case(3, 13, 15, 2, 64, (3, 2), (3, 2), pad="VALID"),
    Case(2, 1, 9, 2, 6, (2, 3), (1, 1), (3, 1)),
    Case(2, 28, 28, 1, 8, (3, 3)),
    Case(2, 14, 14, 7, 14, (3, 3)),
    Case(1, 19, 33, 13, 9, (3, 2)),
    Case(1, 3, 2, 4, 40, (3, 3)),
    Case(2, 37, 29, 6, 11, (5, 3)),
    Case(2, 18, 35, 16, 3, (2, 5), pad="VALID"),
    Case(1, 5, 13, 9, 16, (7, 7)),
    Case(2, 6, 50, 8, 7, (3, 39)),
    Case(2, 9, 14, 17, 1, (3, 3)),
    Case(2, 7, 9, 50, 2, (1, 1)),
    Case(1, 11, 23, 19, 3, (5, 5), (2, 3), (2, 1)),
    Case(1, 1, 1300, 1, 1, (1, 64), (1, 2), pad="VALID"),
    Case(1, 3, 4, 16, 1, (7, 9)),
    Case(2, 8, 12, 3, 7, (2, 3), (2, 3), pad="VALID"),
    Case(1, 8, 9, 40, 20, (4, 1), (4, 1), pad="VALID"),
    Case(2, 6, 10, 1, 16, (2, 2), (2, 2), pad="VALID"),
    Case(2, 20, 20, 17, 19, (3, 3), (1, 1), (4, 5)),
    Case(2, 21, 18, 64, 80, (3, 3), (2, 2), groups=4),
    Case(1, 17, 23, 32, 96, (3, 2), (2, 3), (2, 1), groups=2),
    Case(1, 25, 9, 30, 66, (5, 3), (1, 1), (3, 2), groups=3),
    Case(3, 13, 11, 40, 30, (1, 1), groups=5),
    Case(2, 12, 12, 40, 24, (1, 1), (2, 2), groups=4),
    Case(2, 5, 6, 12, 9, (2, 2), (5, 4), groups=3),
    Case(2, 9, 14, 3, 24, (4, 4), (2, 2)),
    Case(1, 17, 20, 1, 56, (9, 9), (3, 3)),
    Case(1, 5, 70, 2, 40, (3, 5), (1, 2)),
]


@pytest.mark.parametrize("case", CONVS)
def test_conv(case: Case) -> None:
    t = Convolution(case)
    add, before = rand(*t.dy.shape, seed=8), rand(*t.x.shape, seed=6)
    stored(t.of_x(b=t.b, act=RELU), y=act(t.y, RELU)).agrees("CONV")
    stored(t.of_x(add=add, act=RELU), y=act(t.sums + add, RELU)).agrees("CONV")
    masked = t.of_dy(accumulate=1, out_mask_y=t.x, out_mask_act=RELU)
    added(masked, before, dx=(t.dx + before) * slope(t.x, RELU)).agrees("CONV_GRAD_X")
    t.grad_w().agrees("CONV_GRAD_W")


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("case", CONVS[::2])
def test_curves_behind_a_convolution(case: Case, curve: int) -> None:
    t = Convolution(case)
    add = rand(*t.dy.shape, seed=8)
    near = 2e-5 * max(1, np.abs(t.sums).max())  # of the sums, not of what a curve leaves of them
    stored(t.of_x(b=t.b, act=curve), y=act(t.y, curve)).agrees("CONV", near)
    stored(t.of_x(add=add, act=curve), y=act(t.sums + add, curve)).agrees("CONV", near)


@pytest.mark.parametrize("curve", CURVES)
def test_curves_end_where_numbers_do(curve: int) -> None:
    t = Convolution(Case(1, 1, 8, 16, 16, (1, 1)))
    t.x[0, 0, :, 0] = [-1e30, -100, -87.5, -86, 20, 87.5, 100, 1e30]
    t.w[:] = np.eye(16)[:, None, None]
    want = act(np.broadcast_to(t.x[..., :1], t.x.shape), curve)
    t.x[..., 1:] = t.x[..., :1]
    for x, y in zip(np.moveaxis(t.x, 2, 0), np.moveaxis(want, 2, 0), strict=True):
        t.x, wanted = (
            np.broadcast_to(x[:, :, None], t.x.shape).copy(),
            np.broadcast_to(y[:, :, None], want.shape),
        )
        stored(t.of_x(act=curve), y=wanted).agrees("CONV")


@pytest.mark.parametrize("stride", [1, 2])
def test_gradients_of_groups_of_rounded_operands(stride: int) -> None:
    """They are computed group by group where they lie, masks included."""
    t = Convolution(Case(2, 9, 11, 12, 8, (3, 3), (stride, stride), groups=4))
    t.w, t.dy, before = np.round(8 * t.w) / 8, np.round(8 * t.dy) / 8, rand(*t.x.shape, seed=6)
    make = t.of_dy(bf16=abi.Bf16.OPERANDS, accumulate=1, out_mask_y=t.x, out_mask_act=RELU)
    added(make, before, dx=(t.dx + before) * slope(t.x, RELU)).agrees("CONV_GRAD_X")


DEPTHWISE = [
    Case(2, 9, 11, 16, 16, (3, 3)),
    Case(2, 12, 12, 24, 24, (3, 3), (2, 2)),
    Case(1, 11, 9, 5, 15, (3, 3)),
    Case(2, 13, 13, 40, 40, (5, 5)),
    Case(1, 13, 13, 33, 33, (5, 5), (2, 2)),
    Case(1, 9, 9, 4, 8, (3, 3), (2, 2)),
    Case(1, 12, 10, 7, 7, (3, 3), (1, 1), (2, 2)),
    Case(1, 12, 10, 20, 20, (7, 7), (3, 2), pad="VALID"),
    Case(2, 3, 3, 19, 19, (3, 3)),
    Case(1, 10, 10, 6, 6, (2, 2), (1, 1), (3, 3), "VALID"),
    Case(1, 6, 6, 3, 3, (1, 1), (2, 2)),
    Case(1, 14, 14, 8, 8, (7, 7), pad="VALID"),
    Case(3, 20, 19, 35, 35, (3, 3), (2, 2)),
    *(Case(1, 5, width, 24, 24, (5, 5), (s, s)) for width in (1, 3, 4, 5, 7, 8, 14) for s in (1, 2)),
    *(Case(1, 4, width, 48, 48, (3, 3), (s, s)) for width in (1, 2, 3, 4, 5, 8, 9, 15, 22) for s in (1, 2)),
    *(Case(1, 5, width, 16, 16, (3, 3), (s, s), pad="VALID") for width in (3, 6, 12) for s in (1, 2)),
]


@pytest.mark.parametrize("case", DEPTHWISE)
def test_depthwise(case: Case) -> None:
    t = Depthwise(case)
    before = rand(*t.x.shape, seed=6)
    for kind in (RELU6, *CURVES):
        stored(t.of_x(b=t.b, act=kind), y=act(t.y, kind)).agrees("DEPTHWISE")
    masked = t.of_dy(accumulate=1, out_mask_y=t.x, out_mask_act=RELU)
    added(masked, before, dx=(t.dx + before) * slope(t.x, RELU)).agrees("DEPTHWISE_GRAD_X")
    t.grad_x().agrees("DEPTHWISE_GRAD_X")
    masked = t.of_dy(out_mask_y=t.x, out_mask_act=RELU6)
    stored(masked, dx=t.dx * slope(t.x, RELU6)).agrees("DEPTHWISE_GRAD_X")
    t.grad_w().agrees("DEPTHWISE_GRAD_W")


@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_gradients_too_large_for_the_caches(stride: int) -> None:
    """Lying at whole cache lines they are stored past the caches."""
    case = Case(9, 130, 130, 48, 48, (3, 3), (stride, stride))
    t, last = Depthwise(case), Depthwise(case._replace(n=1))
    last.x, last.dy = t.x[-1:], t.dy[-1:]
    last.w = t.w
    memory = np.empty(t.x.size + 16, np.float32)
    dx = memory[-memory.ctypes.data % 64 // 4 :][: t.x.size].reshape(t.x.shape)
    for tier in tiers():
        dx[:] = np.nan
        args = t.of_dy(out_mask_y=t.x, out_mask_act=RELU6)({"dx": dx})
        assert run("DEPTHWISE_GRAD_X", args, 2, tier) == 0
        close(dx[-1:].astype(np.float64), last.dx * slope(last.x, RELU6))
        assert np.isfinite(dx).all()
