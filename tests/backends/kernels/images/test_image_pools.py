"""Pools over images against direct sums in float64."""

from __future__ import annotations

import numpy as np
import pytest
from sized.call import RELU, RELU6, Call, act, added, args, rand, slope
from sized.images import Case, Pool

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
    x = rand(case.n, case.h, case.w, case.c)
    t = Pool(np.round(x) if ties else x, case.k, case.s, case.pad)
    y, before = act(t.best, RELU), rand(*x.shape, seed=2)
    outputs = {"y": np.zeros(t.shape, np.float32), "index": np.zeros(t.shape, np.uint8)}
    make = args("ct_pool_args", x=t.x, shape=t.image.shape, act=RELU)
    Call(make, outputs, {"y": y, "index": t.where}).agrees("MAX_POOL", 0)
    dx, passes = t.sent_of(t.dy * slope(y, RELU)), slope(before, RELU6)
    given = {"y": y.astype(np.float32), "dy": t.dy, "shape": t.image.shape, "act": RELU}
    mask = {"out_mask_y": before, "out_mask_act": RELU6}
    for index in ({"index": t.where}, {}):
        make = args("ct_pool_args", x=t.x, accumulate=1, **given, **mask, **index)
        added(make, before, dx=(dx + before) * passes).agrees("MAX_POOL_GRAD", 1e-6)
    unset = np.full(x.shape, np.nan, np.float32)
    for masked, by in ((mask, passes), ({}, 1.0)):
        make = args("ct_pool_args", index=t.where, **given, **masked)
        added(make, unset, dx=dx * by).agrees("MAX_POOL_GRAD", 1e-6)


@pytest.mark.parametrize("case", POOLS)
def test_average_pool(case: Case) -> None:
    t = Pool(rand(case.n, case.h, case.w, case.c), case.k, case.s, case.pad)
    t.average().agrees("AVERAGE_POOL", 1e-6)
    t.backward(t.shared).agrees("AVERAGE_POOL_GRAD", 1e-6)
