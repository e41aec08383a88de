"""Products and updates against numpy in float64, in each SIMD tier, and the same bits at 1, 2, 3 and 8 threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native import struct
from sized.call import CURVES, RELU, RELU6, Arrays, Call, act, added, args, rand, slope, stored

from circle_train.backends.native.engine import abi

PRODUCTS = [
    (1, 1, 1),
    (10, 128, 784),
    (10, 10, 128),
    (7, 33, 5),
    (64, 16, 24),
    (100, 24, 96),
    (131, 70, 300),
    (300, 40, 1500),
    (5000, 96, 16),
    (33, 1, 17),
    (1, 50, 9),
    (17, 130, 64),
    (7, 530, 131),
    (48, 800, 90),
    (30, 70, 1024),
    (29, 65, 2048),
]
"""The last two: rows of A that meet in the sets of the first-level cache."""


@pytest.mark.parametrize("m,n,k", PRODUCTS)
@pytest.mark.parametrize("a_t,b_t", [(False, False), (False, True), (True, False), (True, True)])
def test_matmul(m: int, n: int, k: int, a_t: bool, b_t: bool) -> None:
    a, b, bias, add = rand(m, k, scale=k**-0.5), rand(k, n), rand(n), rand(m, n)
    given: dict[str, Any] = {
        "a": np.ascontiguousarray(a.T if a_t else a), "b": np.ascontiguousarray(b.T if b_t else b),
        "m": m, "n": n, "k": k, "batch0": 1, "batch1": 1, "c_row": n,
    }  # fmt: skip
    given["a_row"], given["a_col"] = (1, m) if a_t else (k, 1)
    given["b_row"], given["b_col"] = (1, k) if b_t else (n, 1)
    product, c, mask = a.astype(np.float64) @ b, rand(m, n, seed=1), rand(m, n, scale=4)
    make = args("ct_matmul_args", bias=bias, act=RELU, alpha=1.0, **given)
    stored(make, c=act(product + bias, RELU)).agrees("MATMUL")
    for curve in CURVES:
        make = args("ct_matmul_args", bias=bias, act=curve, alpha=1.0, add=add, **given)
        stored(make, c=act(product + bias + add, curve)).agrees("MATMUL")
    make = args(
        "ct_matmul_args", out_mask_y=mask, out_mask_act=RELU6, accumulate=1, alpha=0.5, **given
    )  # fmt: skip
    added(make, c, c=(0.5 * product + c) * slope(mask, RELU6)).agrees("MATMUL")


@pytest.mark.parametrize("b,h,s,d", [(2, 3, 17, 8), (1, 2, 40, 16), (3, 2, 5, 33)])
def test_attention_products_read_heads_in_place(b: int, h: int, s: int, d: int) -> None:
    q, k = rand(b, s, h, d), rand(b, s, h, d, seed=1)
    scores = np.einsum("bshd,bthd->bhst", q.astype(np.float64), k) * 0.25
    batches = {"batch0": b, "batch1": h, "b_batch0": s * h * d, "b_batch1": d}
    make = args(
        "ct_matmul_args", a=q, b=k, m=s, n=s, k=d, a_batch0=s * h * d, a_batch1=d, a_row=h * d, a_col=1, b_row=1,
        b_col=h * d, c_row=s, c_batch0=h * s * s, c_batch1=s * s, alpha=0.25, **batches,
    )  # fmt: skip
    stored(make, c=scores).agrees("MATMUL")
    p = np.ascontiguousarray(scores, np.float32)
    make = args(
        "ct_matmul_args", a=p, b=k, m=s, n=d, k=s, a_batch0=h * s * s, a_batch1=s * s, a_row=s, a_col=1, b_row=h * d,
        b_col=1, c_row=h * d, c_batch0=s * h * d, c_batch1=d, alpha=1.0, **batches,
    )  # fmt: skip
    stored(make, c=np.einsum("bhst,bthd->bshd", p.astype(np.float64), k)).agrees("MATMUL")


SUMS = [
    (10, 128, 784),
    (1, 3, 5),
    (3000, 24, 40),
    (513, 150, 330),
    (20000, 17, 9),
    (10, 10, 128),
    (300, 256, 63),
]


@pytest.mark.parametrize("p,o,i", SUMS)
def test_matmul_grad_w(p: int, o: int, i: int) -> None:
    dy, x, before = rand(p, o), rand(p, i), rand(o, i, seed=5)
    wide, sizes = dy.astype(np.float64), {"rows": p, "out_features": o, "in_features": i}

    def make(out: Arrays) -> Any:
        w, b = struct("ct_update", g=out["w"], accumulate=1), struct("ct_update", g=out["b"])
        return struct("ct_matmul_grad_w_args", dy=dy, x=x, has_w=1, has_b=1, w=w, b=b, **sizes)

    wants = {"w": wide.T @ x + before, "b": wide.sum(0)}
    Call(make, {"w": before, "b": np.zeros(o, np.float32)}, wants).agrees("MATMUL_GRAD_W", 3e-5)


def updated(
    kind: str, s: np.ndarray, g: np.ndarray, w: np.ndarray, m: np.ndarray, v: np.ndarray
) -> tuple[np.ndarray, ...]:
    step, b1, _, eps, decay, root2, rest1, rest2 = (float(x) for x in s[:8])
    g, w, m, v = (a.astype(np.float64) for a in (g, w, m, v))
    if kind == "ADAMW_TORCH":
        w = w - decay * w
    elif kind != "ADAMW_ORT":
        g = g + decay * w
    if kind == "SGD":
        return w - step * g, m, v
    if kind == "ADAGRAD":
        v = v + g * g
        return w - step * g / (np.sqrt(v + float(s[2])) + eps), m, v
    if kind.startswith("RMSPROP"):
        v = v + (g * g - v) * rest2
        g = g / (np.sqrt(v) + eps)
        m = b1 * m + g if kind.endswith("MOMENTUM") else m
        return w - step * (m if kind.endswith("MOMENTUM") else g), m, v
    if kind in ("MOMENTUM", "NESTEROV"):
        m = b1 * m + rest1 * g
        return w - step * (g + b1 * m if kind == "NESTEROV" else m), m, v
    m, v = m + (g - m) * rest1, v + (g * g - v) * rest2
    root = np.sqrt(v) / (root2 if kind == "ADAMW_TORCH" else 1.0)
    w = w - step * m / (root + eps)
    return (w - decay * w if kind == "ADAMW_ORT" else w), m, v


UPDATES = "SGD MOMENTUM NESTEROV ADAM ADAMW_TORCH ADAMW_ORT RMSPROP RMSPROP_MOMENTUM ADAGRAD".split()
SCALARS = np.array([0.01, 0.9, 0.999, 1e-7, 0.02, 0.3, 0.1, 0.001] + [0] * 8, np.float32)


def states(*shape: int) -> Arrays:
    return {"w": rand(*shape, seed=1), "m": rand(*shape, seed=2), "v": np.abs(rand(*shape, seed=3))}


def moved(kind: str, g: np.ndarray, before: Arrays, scalars: np.ndarray = SCALARS) -> Arrays:
    """Weights and slots after the update."""
    return dict(zip("wmv", updated(kind, scalars, g, *(before[name] for name in "wmv")), strict=True))


@pytest.mark.parametrize("kind", UPDATES)
@pytest.mark.parametrize("size", [1, 17, 5000])
def test_update(kind: str, size: int) -> None:
    g, before = rand(size), states(size)

    def make(out: Arrays) -> Any:
        update = struct("ct_update", kind=abi.UpdateKind[kind], scalars=SCALARS, **out)
        return struct("ct_update_args", grad=g, size=size, update=update)

    Call(make, before, moved(kind, g, before)).agrees("UPDATE", 1e-6)


def test_grad_w_with_update_moves_the_weights() -> None:
    dy, x, waiting, before = rand(600, 20), rand(600, 30), rand(20, 30, seed=9), states(20, 30)
    sizes = {"rows": 600, "out_features": 20, "in_features": 30, "has_w": 1}

    def make(out: Arrays) -> Any:
        kind = abi.UpdateKind.ADAM
        update = struct("ct_update", kind=kind, g=waiting, accumulate=1, scalars=SCALARS, **out)
        return struct("ct_matmul_grad_w_args", dy=dy, x=x, w=update, **sizes)

    wants = moved("ADAM", dy.astype(np.float64).T @ x + waiting, before)
    Call(make, before, wants).agrees("MATMUL_GRAD_W")
