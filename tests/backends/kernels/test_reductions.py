"""Reductions and norms against float64."""

from __future__ import annotations

import numpy as np
import pytest
from native import struct
from test_kernels import check, rand

from circle_train.backends.native.engine import abi


@pytest.mark.parametrize(
    "shape,axes",
    [
        ((10,), (0,)),
        ((3000, 33), (0,)),
        ((3000, 33), (1,)),
        ((50, 70, 40), (0, 2)),
        ((5, 60, 70, 3), (1, 2)),
        ((100000,), (0,)),
        ((4, 5, 6, 7, 8), (1, 3)),
        ((3, 4), ()),
        ((2, 9000), (1,)),
        ((40000, 5), (0,)),
        ((1, 8, 1), (0, 1)),
    ],
)
@pytest.mark.parametrize("op", ["SUM", "MAX", "MIN", "SUM_SQUARES", "PROD"])
def test_reduce(shape: tuple[int, ...], axes: tuple[int, ...], op: str) -> None:
    x = rand(*shape)
    if op == "PROD":
        x = np.exp(x * 0.02).astype(np.float32)
    wide = x.astype(np.float64)
    f = {
        "SUM": np.sum,
        "MAX": np.max,
        "MIN": np.min,
        "SUM_SQUARES": lambda v, a: np.sum(v * v, a),
        "PROD": np.prod,
    }[op]
    scale = 0.5 if op.startswith("SUM") else 1.0
    want = np.asarray(f(wide, axes) * scale)
    before = rand(*want.shape) if want.shape else np.float32(3.0).reshape(())
    flags = [int(d in axes) for d in range(8)]
    check(
        "REDUCE",
        lambda out: struct(
            "ct_reduce_args",
            x=x,
            y=out["y"],
            shape=list(shape) + [0] * (8 - len(shape)),
            reduce=flags,
            rank=len(shape),
            op=abi.Reduce[op],
            scale=scale,
            accumulate=1,
        ),
        {"y": np.asarray(before)},
        {"y": want + before},
        1e-6 if op != "PROD" else 1e-4,
    )


@pytest.mark.parametrize("rows,cols", [(1, 5), (300, 256), (40, 17), (1000, 33)])
@pytest.mark.parametrize("kernel", ["LAYER_NORM", "RMS_NORM"])
def test_norm(rows: int, cols: int, kernel: str) -> None:
    x, add, gamma, beta, dy = (
        rand(rows, cols, scale=2),
        rand(rows, cols, seed=1),
        rand(cols),
        rand(cols, seed=1),
        rand(rows, cols, seed=2),
    )
    total = (x + add).astype(np.float64)
    mean = total.mean(-1, keepdims=True) if kernel == "LAYER_NORM" else np.zeros((rows, 1))
    rstd = 1 / np.sqrt(((total - mean) ** 2).mean(-1, keepdims=True) + 1e-5)
    h = (total - mean) * rstd
    shape32 = {
        "y": np.zeros_like(x),
        "sum": np.zeros_like(x),
        "mean": np.zeros((rows, 1), np.float32),
        "rstd": np.zeros((rows, 1), np.float32),
    }
    check(
        kernel,
        lambda out: struct(
            "ct_norm_args", x=x, add=add, gamma=gamma, beta=beta, rows=rows, cols=cols, eps=1e-5, **out
        ),
        shape32,
        {"y": h * gamma + beta, "rstd": rstd, "sum": total},
        5e-6,
    )
    plain = np.zeros_like(x)
    x64 = x.astype(np.float64)
    m = x64.mean(-1, keepdims=True) if kernel == "LAYER_NORM" else 0.0
    check(
        kernel,
        lambda out: struct("ct_norm_args", x=x, y=out["y"], rows=rows, cols=cols, eps=1e-5),
        {"y": plain},
        {"y": (x64 - m) / np.sqrt(((x64 - m) ** 2).mean(-1, keepdims=True) + 1e-5)},
        5e-6,
    )
    d = dy.astype(np.float64) * gamma
    dx = rstd * (
        d - (d.mean(-1, keepdims=True) if kernel == "LAYER_NORM" else 0) - h * (d * h).mean(-1, keepdims=True)
    )
    t32, m32, r32 = total.astype(np.float32), mean.astype(np.float32), rstd.astype(np.float32)
    before = rand(rows, cols, seed=7)
    check(
        kernel + "_GRAD",
        lambda out: struct(
            "ct_norm_grad_args",
            dy=dy,
            x=t32,
            gamma_values=gamma,
            mean=m32,
            rstd=r32,
            dx=out["dx"],
            rows=rows,
            cols=cols,
            gamma=struct("ct_update", g=out["gamma"]),
            beta=struct("ct_update", g=out["beta"]),
            accumulate=1,
            has_gamma=1,
            has_beta=1,
        ),
        {"dx": before, "gamma": np.zeros(cols, np.float32), "beta": np.zeros(cols, np.float32)},
        {"dx": dx + before, "gamma": (dy * h).sum(0), "beta": dy.sum(0, dtype=np.float64)},
        1e-5,
    )
