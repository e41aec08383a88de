"""Reductions and norms against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native import run, struct
from sized.call import Arrays, Call, added, args, rand, stored, zeros

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
    before = rand(*want.shape) if want.shape else np.asarray(np.float32(3.0))
    make = args(
        "ct_reduce_args", x=x, shape=list(shape) + [0] * (8 - len(shape)), reduce=[int(d in axes) for d in range(8)],
        rank=len(shape), op=abi.Reduce[op], scale=scale, accumulate=1,
    )  # fmt: skip
    added(make, before, y=want + before).agrees("REDUCE", 1e-6 if op != "PROD" else 1e-4)


@pytest.mark.parametrize("shape", [(56, 56, 16), (28, 28, 72), (300, 200, 1), (7, 7, 512)])
def test_a_sample_is_reduced_the_same_whatever_others_there_are(shape: tuple[int, ...]) -> None:
    """Over so many numbers that one sample's are cut into parts."""
    x = rand(17, *shape)

    def reduced(some: np.ndarray) -> np.ndarray:
        y = zeros(len(some), shape[-1])
        make = args(
            "ct_reduce_args", x=some, shape=[*some.shape] + [0] * 4, reduce=[0, 1, 1, 0] + [0] * 4, rank=4,
            op=abi.Reduce.SUM, scale=1.0, accumulate=0,
        )  # fmt: skip
        assert run("REDUCE", make({"y": y}), 2) == 0
        return y

    whole = reduced(x)
    for few in (1, 2, 5):
        assert reduced(x[:few]).tobytes() == whole[:few].tobytes()


@pytest.mark.parametrize("rows,cols", [(1, 5), (300, 256), (40, 17), (1000, 33)])
@pytest.mark.parametrize("kernel", ["LAYER_NORM", "RMS_NORM"])
def test_norm(rows: int, cols: int, kernel: str) -> None:
    x, add, dy = rand(rows, cols, scale=2), rand(rows, cols, seed=1), rand(rows, cols, seed=2)
    gamma, beta, before = rand(cols), rand(cols, seed=1), rand(rows, cols, seed=7)

    def mean_of(v: np.ndarray) -> np.ndarray:
        return v.mean(-1, keepdims=True)

    def centre_of(v: np.ndarray) -> np.ndarray:
        return mean_of(v) if kernel == "LAYER_NORM" else np.zeros((rows, 1))

    sizes = {"rows": rows, "cols": cols}
    total, plain = (x + add).astype(np.float64), x.astype(np.float64) - centre_of(x.astype(np.float64))
    mean = centre_of(total)
    rstd = 1 / np.sqrt(mean_of((total - mean) ** 2) + 1e-5)
    h = (total - mean) * rstd
    make = args("ct_norm_args", x=x, add=add, gamma=gamma, beta=beta, eps=1e-5, **sizes)
    Call(
        make,
        {"y": zeros(rows, cols), "sum": zeros(rows, cols), "mean": zeros(rows, 1), "rstd": zeros(rows, 1)},
        {"y": h * gamma + beta, "rstd": rstd, "sum": total},
    ).agrees(kernel, 5e-6)
    make = args("ct_norm_args", x=x, eps=1e-5, **sizes)
    stored(make, y=plain / np.sqrt(mean_of(plain**2) + 1e-5)).agrees(kernel, 5e-6)
    d = dy.astype(np.float64) * gamma
    dx = rstd * (d - centre_of(d) - h * mean_of(d * h))
    seen = {"x": total.astype(np.float32), "mean": mean.astype(np.float32), "rstd": rstd.astype(np.float32)}

    def back(out: Arrays) -> Any:
        updates = {name: struct("ct_update", g=out[name]) for name in ("gamma", "beta")}
        return struct(
            "ct_norm_grad_args", dy=dy, gamma_values=gamma, dx=out["dx"], accumulate=1, has_gamma=1, has_beta=1,
            **seen, **sizes, **updates,
        )  # fmt: skip

    Call(
        back,
        {"dx": before, "gamma": zeros(cols), "beta": zeros(cols)},
        {"dx": dx + before, "gamma": (dy * h).sum(0), "beta": dy.sum(0, dtype=np.float64)},
    ).agrees(kernel + "_GRAD", 1e-5)
