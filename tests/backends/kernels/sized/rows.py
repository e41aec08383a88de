"""Softmax, losses and norms as calls of given extents."""

from __future__ import annotations

from typing import Any

import numpy as np

from circle_train.backends.native.engine import abi
from sized.call import Call, Make, args, rand, stored, summing


class Softmax:
    """softmax(x) along the last axis, its logarithm, and their gradients."""

    def __init__(self, rows: int, cols: int) -> None:
        self.x, self.dy = rand(rows, cols, scale=3), rand(rows, cols, seed=1)
        e = np.exp(self.x - self.x.max(-1, keepdims=True, initial=-np.inf).astype(np.float64))
        self.y, self.sizes = e / e.sum(-1, keepdims=True), {"rows": rows, "cols": cols, "beta": 1}

    def forward(self, y: np.ndarray) -> Call:
        return stored(args("ct_softmax_args", x=self.x, **self.sizes), y=y)

    def backward(self, y: np.ndarray, dx: np.ndarray) -> Call:
        return stored(args("ct_softmax_args", y=y.astype(np.float32), dy=self.dy, **self.sizes), dx=dx)

    def grad(self) -> Call:
        return self.backward(self.y, self.y * (self.dy - (self.dy * self.y).sum(-1, keepdims=True)))

    def log_grad(self) -> Call:
        total = self.dy.sum(-1, keepdims=True, dtype=np.float64)
        return self.backward(np.log(self.y), self.dy - self.y * total)

    def cross_entropy(self) -> Call:
        t = np.abs(self.dy)
        dz = self.y * t.sum(-1, keepdims=True, dtype=np.float64) - t
        sizes = {"rows": self.sizes["rows"], "cols": self.sizes["cols"], "loss_scale": 1, "grad_scale": 1}
        make = args("ct_cross_entropy_args", logits=self.x, target=t, **sizes)
        return stored(make, loss=np.array(-(t * np.log(self.y)).sum()), dz=dz)


def _regression(size: int) -> tuple[Make, np.ndarray]:
    p, t = rand(size), rand(size, seed=1)
    make = args("ct_regression_loss_args", p=p, target=t, size=size, loss_scale=1, grad_scale=1)
    return make, p.astype(np.float64) - t


def squared_error(size: int) -> Call:
    make, d = _regression(size)
    return stored(make, loss=np.asarray((d * d).sum()), dp=2 * d)


def absolute_error(size: int) -> Call:
    make, d = _regression(size)
    return stored(make, loss=np.asarray(np.abs(d).sum()), dp=np.sign(d))


class Norm:
    """Rows about their mean, or (RMS) about 0, over their deviation; and the gradients."""

    def __init__(self, rows: int, cols: int, centred: bool) -> None:
        self.x, self.gamma, self.dy = rand(rows, cols), rand(cols), rand(rows, cols, seed=2)
        wide, self.sizes = self.x.astype(np.float64), {"rows": rows, "cols": cols}

        def mean(v: np.ndarray) -> np.ndarray:
            return v.sum(-1, keepdims=True) / cols

        self.mean = mean(wide) if centred else np.zeros((rows, 1))
        self.rstd = 1 / np.sqrt(mean((wide - self.mean) ** 2) + 1e-3)
        self.h, d = (wide - self.mean) * self.rstd, self.dy.astype(np.float64) * self.gamma
        self.dx = self.rstd * (d - (mean(d) if centred else 0) - self.h * mean(d * self.h))

    def forward(self) -> Call:
        make = args("ct_norm_args", x=self.x, gamma=self.gamma, eps=1e-3, **self.sizes)
        return stored(make, y=self.h * self.gamma, mean=self.mean, rstd=self.rstd)

    def backward(self) -> Call:
        seen = {"mean": self.mean.astype(np.float32), "rstd": self.rstd.astype(np.float32), **self.sizes}
        wanted = {"gamma_values": self.gamma, "has_gamma": 1, "has_beta": 1}
        make = summing("ct_norm_grad_args", dy=self.dy, x=self.x, **wanted, **seen)
        beta = self.dy.sum(0, dtype=np.float64)
        return stored(make, dx=self.dx, gamma=(self.dy * self.h).sum(0), beta=beta)


def _normal(most: int, cols: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
    """What is normalised, normal and as it lies, one over the deviations, and what calls have in common."""
    x = rand(most, cols)
    mean, variance = x.astype(np.float64).mean(0), x.astype(np.float64).var(0)
    inverse = 1 / np.sqrt(variance + 0.1)
    given = {
        "x": x,
        "gamma": rand(cols, seed=1),
        "beta": rand(cols, seed=2),
        "rows": most,
        "cols": cols,
        "eps": 0.1,
    }
    return (x - mean) * inverse, inverse, np.stack([mean, variance]), given


def batch_norm(most: int, cols: int) -> Call:
    normal, _, (mean, variance), given = _normal(most, cols)
    y = np.maximum(normal * given["gamma"] + given["beta"], 0)
    return stored(args("ct_batch_norm_args", act=abi.Act.RELU, **given), y=y, mean=mean, variance=variance)


def batch_norm_gradient(most: int, cols: int) -> Call:
    normal, inverse, statistics, given = _normal(most, cols)
    mean, variance = statistics.astype(np.float32)
    dy = rand(most, cols, seed=3)
    g = dy.astype(np.float64)
    dx = given["gamma"] * inverse * (g - g.mean(0) - normal * (g * normal).mean(0))
    make = args("ct_batch_norm_grad_args", dy=dy, mean=mean, variance=variance, **given)
    return stored(make, dx=dx, dgamma=(g * normal).sum(0), dbeta=g.sum(0))
