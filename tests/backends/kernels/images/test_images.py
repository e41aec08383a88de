"""Convolutions against direct sums in float64."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from native import run, struct, tiers
from test_kernels import RELU, RELU6, act, check, close, rand, slope


class Case(NamedTuple):
    n: int
    h: int
    w: int
    c: int
    o: int
    k: tuple[int, int]
    s: tuple[int, int] = (1, 1)
    d: tuple[int, int] = (1, 1)
    pad: str = "SAME"
    groups: int = 1


def geometry(size: int, k: int, s: int, d: int, pad: str) -> tuple[int, int]:
    reach = (k - 1) * d + 1
    if pad == "VALID":
        return (size - reach) // s + 1, 0
    out = -(-size // s)
    return out, max((out - 1) * s + reach - size, 0) // 2


class Image:
    """A case with its sizes, and each window cell as (kh, kw, output slice, input slice)."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.oh, self.ph = geometry(case.h, case.k[0], case.s[0], case.d[0], case.pad)
        self.ow, self.pw = geometry(case.w, case.k[1], case.s[1], case.d[1], case.pad)
        self.shape = struct(
            "ct_conv_shape",
            batch=case.n,
            in_h=case.h,
            in_w=case.w,
            in_c=case.c,
            out_h=self.oh,
            out_w=self.ow,
            out_c=case.o,
            kernel_h=case.k[0],
            kernel_w=case.k[1],
            stride_h=case.s[0],
            stride_w=case.s[1],
            dilation_h=case.d[0],
            dilation_w=case.d[1],
            pad_top=self.ph,
            pad_left=self.pw,
            groups=case.groups,
        )

    def cells(self) -> Any:
        c = self.case
        for kh in range(c.k[0]):
            for kw in range(c.k[1]):
                pixels = [
                    (oh, ow, oh * c.s[0] - self.ph + kh * c.d[0], ow * c.s[1] - self.pw + kw * c.d[1])
                    for oh in range(self.oh)
                    for ow in range(self.ow)
                ]
                inside = [p for p in pixels if 0 <= p[2] < c.h and 0 <= p[3] < c.w]
                if inside:
                    yield kh, kw, *(np.array(v) for v in zip(*inside, strict=True))


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
]


@pytest.mark.parametrize("case", CONVS)
def test_conv(case: Case) -> None:
    im = Image(case)
    cg, og = case.c // case.groups, case.o // case.groups
    x, w, b = rand(case.n, case.h, case.w, case.c), rand(case.o, *case.k, cg), rand(case.o)
    add = rand(case.n, im.oh, im.ow, case.o, seed=8)
    dy = rand(case.n, im.oh, im.ow, case.o, seed=4)
    sent = dy.astype(np.float64)
    y, dw, dx = np.zeros(dy.shape), np.zeros(w.shape), np.zeros(x.shape)
    for kh, kw, oh, ow, ih, iw in im.cells():
        for g in range(case.groups):
            ins, outs = slice(g * cg, (g + 1) * cg), slice(g * og, (g + 1) * og)
            wk, xs, ds = w[outs, kh, kw].astype(np.float64), x[:, ih, iw, ins], sent[:, oh, ow, outs]
            y[:, oh, ow, outs] += xs @ wk.T
            dw[outs, kh, kw] += np.einsum("npo,npc->oc", ds, xs)
            dx[:, ih, iw, ins] += ds @ wk
    common: dict[str, Any] = {"shape": im.shape}
    check(
        "CONV",
        lambda out: struct("ct_conv_args", x=x, w=w, b=b, y=out["y"], act=RELU, **common),
        {"y": np.zeros(dy.shape, np.float32)},
        {"y": act(y + b, RELU)},
    )
    check(
        "CONV",
        lambda out: struct("ct_conv_args", x=x, w=w, add=add, y=out["y"], act=RELU, **common),
        {"y": np.zeros(dy.shape, np.float32)},
        {"y": act(y + add, RELU)},
    )
    before = rand(*x.shape, seed=6)
    check(
        "CONV_GRAD_X",
        lambda out: struct(
            "ct_conv_grad_x_args",
            dy=dy,
            w=w,
            dx=out["dx"],
            accumulate=1,
            out_mask_y=x,
            out_mask_act=RELU,
            **common,
        ),
        {"dx": before},
        {"dx": (dx + before) * slope(x, RELU)},
    )
    plain = np.zeros(x.shape)
    for kh, kw, oh, ow, ih, iw in im.cells():
        for g in range(case.groups):
            ins, outs = slice(g * cg, (g + 1) * cg), slice(g * og, (g + 1) * og)
            plain[:, ih, iw, ins] += dy[:, oh, ow, outs].astype(np.float64) @ w[outs, kh, kw]
    check(
        "CONV_GRAD_X",
        lambda out: struct(
            "ct_conv_grad_x_args",
            dy=dy,
            w=w,
            dx=out["dx"],
            accumulate=1,
            out_mask_y=x,
            out_mask_act=RELU,
            **common,
        ),
        {"dx": before},
        {"dx": (plain + before) * slope(x, RELU)},
    )
    check(
        "CONV_GRAD_W",
        lambda out: struct(
            "ct_conv_grad_w_args",
            dy=dy,
            x=x,
            has_w=1,
            has_b=1,
            w=struct("ct_update", g=out["w"]),
            b=struct("ct_update", g=out["b"]),
            **common,
        ),
        {"w": np.zeros(w.shape, np.float32), "b": np.zeros(case.o, np.float32)},
        {"w": dw, "b": sent.sum((0, 1, 2))},
    )


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
    *(Case(1, 4, width, 48, 48, (3, 3), (s, s)) for width in (1, 2, 3, 4, 5, 8, 9, 15, 22) for s in (1, 2)),
    *(Case(1, 5, width, 16, 16, (3, 3), (s, s), pad="VALID") for width in (3, 6, 12) for s in (1, 2)),
]


@pytest.mark.parametrize("case", DEPTHWISE)
def test_depthwise(case: Case) -> None:
    im = Image(case)
    repeat = case.o // case.c
    x, w, b = rand(case.n, case.h, case.w, case.c), rand(*case.k, case.o), rand(case.o)
    dy = rand(case.n, im.oh, im.ow, case.o, seed=4)
    wide = np.repeat(x, repeat, -1).astype(np.float64)
    sent = dy.astype(np.float64)
    y, dw, dx = np.zeros(dy.shape), np.zeros(w.shape), np.zeros(x.shape)
    for kh, kw, oh, ow, ih, iw in im.cells():
        y[:, oh, ow] += wide[:, ih, iw] * w[kh, kw]
        dw[kh, kw] += (wide[:, ih, iw] * sent[:, oh, ow]).sum((0, 1))
        dx[:, ih, iw] += (sent[:, oh, ow] * w[kh, kw]).reshape(case.n, -1, case.c, repeat).sum(-1)
    common: dict[str, Any] = {"shape": im.shape}
    check(
        "DEPTHWISE",
        lambda out: struct("ct_conv_args", x=x, w=w, b=b, y=out["y"], act=RELU6, **common),
        {"y": np.zeros(dy.shape, np.float32)},
        {"y": act(y + b, RELU6)},
    )
    before, plain = rand(*x.shape, seed=6), plain_depthwise_grad_x(im, dy, w)
    check(
        "DEPTHWISE_GRAD_X",
        lambda out: struct(
            "ct_conv_grad_x_args",
            dy=dy,
            w=w,
            dx=out["dx"],
            accumulate=1,
            out_mask_y=x,
            out_mask_act=RELU,
            **common,
        ),
        {"dx": before},
        {"dx": (dx + before) * slope(x, RELU)},
    )
    check(
        "DEPTHWISE_GRAD_X",
        lambda out: struct("ct_conv_grad_x_args", dy=dy, w=w, dx=out["dx"], **common),
        {"dx": before},
        {"dx": plain},
    )
    check(
        "DEPTHWISE_GRAD_X",
        lambda out: struct(
            "ct_conv_grad_x_args", dy=dy, w=w, dx=out["dx"], out_mask_y=x, out_mask_act=RELU6, **common
        ),
        {"dx": before},
        {"dx": plain * slope(x, RELU6)},
    )
    check(
        "DEPTHWISE_GRAD_W",
        lambda out: struct(
            "ct_conv_grad_w_args",
            dy=dy,
            x=x,
            has_w=1,
            has_b=1,
            w=struct("ct_update", g=out["w"]),
            b=struct("ct_update", g=out["b"]),
            **common,
        ),
        {"w": np.zeros(w.shape, np.float32), "b": np.zeros(case.o, np.float32)},
        {"w": dw, "b": sent.sum((0, 1, 2))},
    )


@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_gradients_too_large_for_the_caches(stride: int) -> None:
    """Lying at whole cache lines they are stored past the caches."""
    case = Case(9, 130, 130, 48, 48, (3, 3), (stride, stride))
    im, alone = Image(case), Image(case._replace(n=1))
    x, w = rand(case.n, case.h, case.w, case.c), rand(*case.k, case.o)
    dy = rand(case.n, im.oh, im.ow, case.o, seed=4)
    want = plain_depthwise_grad_x(alone, dy[-1:], w) * slope(x[-1:], RELU6)
    memory = np.empty(x.size + 16, np.float32)
    dx = memory[-memory.ctypes.data % 64 // 4 :][: x.size].reshape(x.shape)
    for tier in tiers():
        dx[:] = np.nan
        args = struct(
            "ct_conv_grad_x_args", dy=dy, w=w, dx=dx, out_mask_y=x, out_mask_act=RELU6, shape=im.shape
        )
        assert run("DEPTHWISE_GRAD_X", args, 2, tier) == 0
        close(dx[-1:].astype(np.float64), want)
        assert np.isfinite(dx).all()


def plain_depthwise_grad_x(im: Image, dy: np.ndarray, w: np.ndarray) -> np.ndarray:
    case = im.case
    dx = np.zeros((case.n, case.h, case.w, case.c))
    for kh, kw, oh, ow, ih, iw in im.cells():
        dx[:, ih, iw] += (
            (dy[:, oh, ow].astype(np.float64) * w[kh, kw])
            .reshape(case.n, -1, case.c, case.o // case.c)
            .sum(-1)
        )
    return dx
