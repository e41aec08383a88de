"""Products and attention as calls of given extents."""

from __future__ import annotations

from typing import Any

import numpy as np
from native import struct

from circle_train.backends.native.engine import abi
from sized.call import Arrays, Call, Make, args, rand, stored, summing


def matmul(m: int, n: int, k: int, batch: int) -> Call:
    a, b, bias, c = rand(batch, m, k), rand(batch, n, k), rand(n), rand(batch, m, n, seed=1)
    make = args(
        "ct_matmul_args", a=a, b=b, bias=bias, m=m, n=n, k=k, batch0=batch, batch1=1, alpha=1.0, accumulate=1,
        a_row=k, a_col=1, b_row=1, b_col=k, c_row=n, a_batch0=m * k, b_batch0=n * k, c_batch0=m * n,
    )  # fmt: skip
    return Call(make, {"c": c}, {"c": a.astype(np.float64) @ b.swapaxes(1, 2) + bias + c})


def fully_connected(m: int, n: int, k: int) -> Call:
    return matmul(m, n, k, 1)


def matmul_turned(m: int, n: int, k: int, batch: int) -> Call:
    """A read across its rows, B as it lies."""
    a, b = rand(batch, k, m), rand(batch, k, n)
    make = args(
        "ct_matmul_args", a=a, b=b, m=m, n=n, k=k, batch0=1, batch1=batch, alpha=0.5, act=abi.Act.RELU,
        a_row=1, a_col=m, b_row=n, b_col=1, c_row=n, a_batch1=m * k, b_batch1=n * k, c_batch1=m * n,
    )  # fmt: skip
    return stored(make, c=np.maximum(0.5 * a.astype(np.float64).swapaxes(1, 2) @ b, 0))


def matmul_bf16(m: int, n: int, k: int) -> Call:
    """Of operands rounded to bfloat16."""
    a, b = (np.round(8 * rand(*shape)) / 8 for shape in ((m, k), (k, n)))
    make = args(
        "ct_matmul_args", a=a, b=b, m=m, n=n, k=k, batch0=1, batch1=1, alpha=1.0, bf16=abi.Bf16.OPERANDS,
        a_row=k, a_col=1, b_row=n, b_col=1, c_row=n,
    )  # fmt: skip
    return stored(make, c=a.astype(np.float64) @ b)


def _matmul_grad_w(rows: int, outs: int, ins: int, bf16: int) -> Call:
    dy, x = (np.round(8 * rand(*shape)) / 8 for shape in ((rows, outs), (rows, ins)))
    sizes = {"rows": rows, "out_features": outs, "in_features": ins, "has_w": 1, "has_b": 1, "bf16": bf16}
    wide = dy.astype(np.float64)
    return stored(summing("ct_matmul_grad_w_args", dy=dy, x=x, **sizes), w=wide.T @ x, b=wide.sum(0))


def matmul_grad_w(rows: int, outs: int, ins: int) -> Call:
    return _matmul_grad_w(rows, outs, ins, 0)


def matmul_grad_w_bf16(rows: int, outs: int, ins: int) -> Call:
    return _matmul_grad_w(rows, outs, ins, abi.Bf16.OPERANDS)


class Attention:
    """softmax(q kᵀ / 4 + 2 mask) v in float64, operands and results lying as (batch, positions, heads, numbers)."""

    def __init__(
        self,
        rows: int,
        cols: int,
        heads: int,
        batch: int,
        parts: int,
        mask: np.ndarray | float = 0.0,
        size: float = 1.0,
    ) -> None:
        self.extents = {"batch0": batch, "batch1": heads, "rows": rows, "cols": cols}
        self.extents |= {"depth": 16 * parts, "width": 32}
        self.q, self.dy = (
            rand(batch, rows, heads, 16 * parts, scale=size),
            rand(batch, rows, heads, 32, seed=1),
        )
        self.k, self.v = (
            rand(batch, cols, heads, 16 * parts, scale=size, seed=2),
            rand(batch, cols, heads, 32, seed=3),
        )
        self.mask = rand(batch, 1, rows, cols, seed=4) + np.float32(mask)
        q, k, v, dy = (a.astype(np.float64).transpose(0, 2, 1, 3) for a in (self.q, self.k, self.v, self.dy))
        z = q @ k.swapaxes(2, 3) / 4 + 2 * self.mask
        p = np.exp(z - z.max(-1, keepdims=True, initial=-1e38))
        p = p / np.maximum(p.sum(-1, keepdims=True), 1e-300)
        dp = dy @ v.swapaxes(2, 3)
        dz = p * (dp - (p * dp).sum(-1, keepdims=True)) / 4
        found = {"y": p @ v, "dq": dz @ k, "dk": dz.swapaxes(2, 3) @ q, "dv": p.swapaxes(2, 3) @ dy}
        self.found = {name: value.transpose(0, 2, 1, 3) for name, value in found.items()}

    def made(self, **given: np.ndarray) -> Make:
        def matrices(array: np.ndarray) -> tuple[int, ...]:
            _, size, heads, width = array.shape
            return array.ctypes.data, size * heads * width, width, heads * width

        def make(out: Arrays) -> Any:
            arrays = {"q": self.q, "k": self.k, "v": self.v, **given, **out}
            places = {name: matrices(array) for name, array in arrays.items()}
            rows, cols = self.mask.shape[-2:]
            places["mask"] = self.mask.ctypes.data, rows * cols, 0, cols
            return struct("ct_attention_args", **places, **self.extents, scale=0.25, mask_scale=2.0)

        return make

    def forward(self) -> Call:
        return stored(self.made(), y=self.found["y"])

    def backward(self) -> Call:
        return stored(self.made(dy=self.dy), **{name: self.found[name] for name in ("dq", "dk", "dv")})

    def values_alone(self) -> Call:
        return stored(self.made(dy=self.dy), dv=self.found["dv"])
