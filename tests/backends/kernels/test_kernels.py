"""Every kernel against numpy in float64, in each SIMD tier, and the same bits at 1, 2, 3 and 8 threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from native import THREADS, run, struct, tiers

from circle_train.backends.native.engine import abi

Arrays = dict[str, np.ndarray]
RELU, N1, RELU6, TANH = abi.Act.RELU, abi.Act.RELU_N1_TO_1, abi.Act.RELU6, abi.Act.TANH


def act(y: np.ndarray, kind: int) -> np.ndarray:
    return {
        0: lambda v: v,
        RELU: lambda v: np.maximum(v, 0),
        N1: lambda v: np.clip(v, -1, 1),
        RELU6: lambda v: np.clip(v, 0, 6),
        TANH: np.tanh,
    }[kind](y)


def slope(y: np.ndarray, kind: int) -> np.ndarray:
    return {
        0: np.ones_like,
        RELU: lambda v: v > 0,
        N1: lambda v: (v > -1) & (v < 1),
        RELU6: lambda v: (v > 0) & (v < 6),
        TANH: lambda v: 1 - v * v,
    }[kind](y)


def rand(*shape: int, scale: float = 1.0, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng([seed, *shape]).standard_normal(shape) * scale).astype(np.float32)


def close(got: np.ndarray, want: np.ndarray, tolerance: float = 2e-5) -> None:
    assert got.shape == want.shape
    scale = max(1e-30, float(np.abs(want).max())) if want.size else 1.0
    error = float(np.abs(got - want).max()) / scale if want.size else 0.0
    assert error <= tolerance, f"error {error:.2e} of the largest value"


def check(
    kernel: str,
    make: Callable[[Arrays], Any],
    outputs: Arrays,
    wants: dict[str, np.ndarray],
    tolerance: float = 2e-5,
) -> None:
    """Runs in each tier and thread count: close to `wants`, and equal bits whatever the thread count."""
    for tier in tiers():
        first: Arrays = {}
        for threads in THREADS:
            fresh = {name: value.copy() for name, value in outputs.items()}
            assert run(kernel, make(fresh), threads, tier) == 0
            if not first:
                first = fresh
                for name, want in wants.items():
                    close(fresh[name].astype(np.float64), want.astype(np.float64), tolerance)
            for name in outputs:
                assert fresh[name].tobytes() == first[name].tobytes(), f"{name} differs at {threads} threads"


# ---- products ----

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
    a_in, b_in = np.ascontiguousarray(a.T if a_t else a), np.ascontiguousarray(b.T if b_t else b)
    a_strides = {"a_row": 1, "a_col": m} if a_t else {"a_row": k, "a_col": 1}
    b_strides = {"b_row": 1, "b_col": k} if b_t else {"b_row": n, "b_col": 1}
    product = a.astype(np.float64) @ b

    def make(
        kind: int,
        mask: np.ndarray | None = None,
        plus: np.ndarray | None = None,
        accumulate: int = 0,
        alpha: float = 1.0,
        with_bias: bool = True,
    ) -> Callable[[Arrays], Any]:
        more: dict[str, Any] = {"bias": bias} if with_bias else {}
        if mask is not None:
            more |= {"out_mask_y": mask, "out_mask_act": RELU6}
        if plus is not None:
            more |= {"add": plus}
        return lambda out: struct(
            "ct_matmul_args",
            a=a_in,
            b=b_in,
            c=out["c"],
            batch0=1,
            batch1=1,
            m=m,
            n=n,
            k=k,
            c_row=n,
            alpha=alpha,
            act=kind,
            accumulate=accumulate,
            **more,
            **a_strides,
            **b_strides,
        )

    c = rand(m, n, seed=1)
    check("MATMUL", make(RELU), {"c": c}, {"c": act(product + bias, RELU)})
    check("MATMUL", make(TANH, plus=add), {"c": c}, {"c": act(product + bias + add, TANH)})
    check(
        "MATMUL",
        make(0, mask=rand(m, n, scale=4), accumulate=1, alpha=0.5, with_bias=False),
        {"c": c},
        {"c": (0.5 * product + c) * slope(rand(m, n, scale=4), RELU6)},
    )


@pytest.mark.parametrize("b,h,s,d", [(2, 3, 17, 8), (1, 2, 40, 16), (3, 2, 5, 33)])
def test_attention_products_read_heads_in_place(b: int, h: int, s: int, d: int) -> None:
    q, k = rand(b, s, h, d), rand(b, s, h, d, seed=1)
    scores = np.einsum("bshd,bthd->bhst", q.astype(np.float64), k) * 0.25
    rows = {
        "batch0": b,
        "batch1": h,
        "a_batch0": s * h * d,
        "a_batch1": d,
        "a_row": h * d,
        "a_col": 1,
        "b_batch0": s * h * d,
        "b_batch1": d,
    }
    check(
        "MATMUL",
        lambda out: struct(
            "ct_matmul_args",
            a=q,
            b=k,
            c=out["c"],
            m=s,
            n=s,
            k=d,
            b_row=1,
            b_col=h * d,
            c_row=s,
            c_batch0=h * s * s,
            c_batch1=s * s,
            alpha=0.25,
            **rows,
        ),
        {"c": np.zeros((b, h, s, s), np.float32)},
        {"c": scores},
    )
    p = np.ascontiguousarray(scores, np.float32)
    want = np.einsum("bhst,bthd->bshd", p.astype(np.float64), k)
    check(
        "MATMUL",
        lambda out: struct(
            "ct_matmul_args",
            a=p,
            b=k,
            c=out["c"],
            m=s,
            n=d,
            k=s,
            batch0=b,
            batch1=h,
            a_batch0=h * s * s,
            a_batch1=s * s,
            a_row=s,
            a_col=1,
            b_batch0=s * h * d,
            b_batch1=d,
            b_row=h * d,
            b_col=1,
            c_row=h * d,
            c_batch0=s * h * d,
            c_batch1=d,
            alpha=1,
        ),
        {"c": np.zeros((b, s, h, d), np.float32)},
        {"c": want},
    )


@pytest.mark.parametrize(
    "p,o,i",
    [
        (10, 128, 784),
        (1, 3, 5),
        (3000, 24, 40),
        (513, 150, 330),
        (20000, 17, 9),
        (10, 10, 128),
        (300, 256, 63),
    ],
)
def test_matmul_grad_w(p: int, o: int, i: int) -> None:
    dy, x = rand(p, o), rand(p, i)
    wide = dy.astype(np.float64)
    before = rand(o, i, seed=5)

    def make(out: Arrays) -> Any:
        return struct(
            "ct_matmul_grad_w_args",
            dy=dy,
            x=x,
            rows=p,
            out_features=o,
            in_features=i,
            has_w=1,
            has_b=1,
            w=struct("ct_update", g=out["w"], accumulate=1),
            b=struct("ct_update", g=out["b"]),
        )

    check(
        "MATMUL_GRAD_W",
        make,
        {"w": before, "b": np.zeros(o, np.float32)},
        {"w": wide.T @ x + before, "b": wide.sum(0)},
        3e-5,
    )


# ---- updates ----


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


UPDATES = [
    "SGD",
    "MOMENTUM",
    "NESTEROV",
    "ADAM",
    "ADAMW_TORCH",
    "ADAMW_ORT",
    "RMSPROP",
    "RMSPROP_MOMENTUM",
    "ADAGRAD",
]
SCALARS = np.array([0.01, 0.9, 0.999, 1e-7, 0.02, 0.3, 0.1, 0.001] + [0] * 8, np.float32)


@pytest.mark.parametrize("kind", UPDATES)
@pytest.mark.parametrize("size", [1, 17, 5000])
def test_update(kind: str, size: int) -> None:
    g, w, m, v = rand(size), rand(size, seed=1), rand(size, seed=2), np.abs(rand(size, seed=3))
    w2, m2, v2 = updated(kind, SCALARS, g, w, m, v)

    def make(out: Arrays) -> Any:
        u = struct(
            "ct_update", kind=abi.UpdateKind[kind], w=out["w"], m=out["m"], v=out["v"], scalars=SCALARS
        )
        return struct("ct_update_args", grad=g, size=size, update=u)

    check("UPDATE", make, {"w": w, "m": m, "v": v}, {"w": w2, "m": m2, "v": v2}, 1e-6)


def test_grad_w_with_update_moves_the_weights() -> None:
    dy, x, w, m, v = (
        rand(600, 20),
        rand(600, 30),
        rand(20, 30),
        rand(20, 30, seed=1),
        np.abs(rand(20, 30, seed=2)),
    )
    before = rand(20, 30, seed=9)
    w2, m2, v2 = updated("ADAM", SCALARS, dy.astype(np.float64).T @ x + before, w, m, v)

    def make(out: Arrays) -> Any:
        u = struct(
            "ct_update",
            kind=abi.UpdateKind.ADAM,
            g=before,
            accumulate=1,
            scalars=SCALARS,
            **{name: out[name] for name in "wmv"},
        )
        return struct(
            "ct_matmul_grad_w_args", dy=dy, x=x, rows=600, out_features=20, in_features=30, has_w=1, w=u
        )

    check("MATMUL_GRAD_W", make, {"w": w, "m": m, "v": v}, {"w": w2, "m": m2, "v": v2})
