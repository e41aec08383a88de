"""Pools over images against direct sums in float64."""

from __future__ import annotations

import numpy as np
import pytest
from native import struct
from test_images import Case, Image
from test_kernels import RELU, RELU6, act, check, rand, slope

POOLS = [
    Case(2, 8, 8, 5, 5, (2, 2), (2, 2)),
    Case(2, 6, 10, 8, 8, (2, 2), (2, 2)),
    Case(1, 8, 8, 4, 4, (2, 2), (2, 2)),
    Case(2, 7, 11, 4, 4, (2, 2), (2, 2), pad="VALID"),
    Case(1, 5, 7, 8, 8, (2, 2), (2, 2), pad="VALID"),
    Case(2, 6, 9, 24, 24, (2, 2), (2, 2), pad="VALID"),
    Case(2, 9, 7, 33, 33, (3, 3), (2, 2)),
    Case(1, 10, 10, 16, 16, (3, 3)),
    Case(1, 9, 9, 3, 3, (2, 2), (3, 3), pad="VALID"),
    Case(3, 7, 7, 20, 20, (7, 7), pad="VALID"),
    Case(1, 11, 6, 4, 4, (3, 2), (2, 3)),
]


@pytest.mark.parametrize("case", POOLS)
@pytest.mark.parametrize("ties", [False, True])
def test_max_pool(case: Case, ties: bool) -> None:
    im = Image(case)
    x = rand(case.n, case.h, case.w, case.c)
    if ties:
        x = np.round(x)
    shape = (case.n, im.oh, im.ow, case.c)
    best, where = np.full(shape, -np.inf), np.zeros(shape, np.uint8)
    for kh, kw, oh, ow, ih, iw in im.cells():
        better = x[:, ih, iw] > best[:, oh, ow]
        best[:, oh, ow] = np.where(better, x[:, ih, iw], best[:, oh, ow])
        where[:, oh, ow] = np.where(better, kh * case.k[1] + kw, where[:, oh, ow])
    y = act(best, RELU)
    check(
        "MAX_POOL",
        lambda out: struct("ct_pool_args", x=x, y=out["y"], index=out["index"], shape=im.shape, act=RELU),
        {"y": np.zeros(shape, np.float32), "index": np.zeros(shape, np.uint8)},
        {"y": y, "index": where},
        0,
    )
    dy = rand(*shape, seed=1)
    dx = np.zeros(x.shape)
    for kh, kw, oh, ow, ih, iw in im.cells():
        dx[:, ih, iw] += np.where(
            where[:, oh, ow] == kh * case.k[1] + kw, dy[:, oh, ow] * slope(y, RELU)[:, oh, ow], 0
        )
    before, y32 = rand(*x.shape, seed=2), y.astype(np.float32)
    for index in ({"index": where}, {}):
        check(
            "MAX_POOL_GRAD",
            lambda out, index=index: struct(
                "ct_pool_args",
                x=x,
                y=y32,
                dy=dy,
                dx=out["dx"],
                shape=im.shape,
                act=RELU,
                accumulate=1,
                out_mask_y=before,
                out_mask_act=RELU6,
                **index,
            ),
            {"dx": before},
            {"dx": (dx + before) * slope(before, RELU6)},
            1e-6,
        )
    for mask, by in (({"out_mask_y": before, "out_mask_act": RELU6}, slope(before, RELU6)), ({}, 1.0)):
        check(
            "MAX_POOL_GRAD",
            lambda out, mask=mask: struct(
                "ct_pool_args", y=y32, dy=dy, dx=out["dx"], shape=im.shape, act=RELU, index=where, **mask
            ),
            {"dx": np.full(x.shape, np.nan, np.float32)},
            {"dx": dx * by},
            1e-6,
        )


@pytest.mark.parametrize("case", POOLS)
def test_average_pool(case: Case) -> None:
    im = Image(case)
    x = rand(case.n, case.h, case.w, case.c)
    shape = (case.n, im.oh, im.ow, case.c)
    total, count, dx = np.zeros(shape), np.zeros(shape), np.zeros(x.shape)
    for _, _, oh, ow, ih, iw in im.cells():
        total[:, oh, ow] += x[:, ih, iw]
        count[:, oh, ow] += 1
    dy = rand(*shape, seed=1)
    for _, _, oh, ow, ih, iw in im.cells():
        dx[:, ih, iw] += dy[:, oh, ow] / count[:, oh, ow]
    check(
        "AVERAGE_POOL",
        lambda out: struct("ct_pool_args", x=x, y=out["y"], shape=im.shape),
        {"y": np.zeros(shape, np.float32)},
        {"y": total / count},
        1e-6,
    )
    check(
        "AVERAGE_POOL_GRAD",
        lambda out: struct("ct_pool_args", dy=dy, dx=out["dx"], shape=im.shape),
        {"dx": rand(*x.shape)},
        {"dx": dx},
        1e-6,
    )
