"""Softmax, cross-entropy and regression losses, and products of gradients that lie nowhere, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native import run, struct
from sized.call import Call, added, args, rand, stored, summing, zeros

from circle_train.backends.native.engine import abi


@pytest.mark.parametrize("rows,cols", [(1, 1), (10, 10), (33, 1000), (5, 17), (70, 128)])
@pytest.mark.parametrize("beta", [1.0, 0.5, -2.0])
def test_softmax(rows: int, cols: int, beta: float) -> None:
    x, dy = rand(rows, cols, scale=5), rand(rows, cols, seed=1)
    e = np.exp(beta * x.astype(np.float64) - (beta * x).max(-1, keepdims=True))
    y = e / e.sum(-1, keepdims=True)
    sizes = {"rows": rows, "cols": cols, "beta": beta}
    for kernel, want in (("SOFTMAX", y), ("LOG_SOFTMAX", np.log(y))):
        stored(args("ct_softmax_args", x=x, **sizes), y=want).agrees(kernel, 2e-6)
    y32, l32, before = y.astype(np.float32), np.log(y).astype(np.float32), rand(rows, cols, seed=2)
    dx = beta * y32 * (dy - (dy * y32.astype(np.float64)).sum(-1, keepdims=True))
    make = args("ct_softmax_args", y=y32, dy=dy, **sizes)
    stored(make, dx=dx).agrees("SOFTMAX_GRAD", 3e-6 if cols > 1 else 1)
    dx = beta * (dy - y * dy.sum(-1, keepdims=True, dtype=np.float64))
    make = args("ct_softmax_args", y=l32, dy=dy, accumulate=1, **sizes)
    added(make, before, dx=before + dx).agrees("LOG_SOFTMAX_GRAD", 5e-6)


@pytest.mark.parametrize("rows,cols", [(1, 2), (37, 3), (10, 10), (33, 1000), (70, 17), (70, 33)])
def test_cross_entropy(rows: int, cols: int) -> None:
    z = rand(rows, cols, scale=5)
    labels = np.random.default_rng(0).integers(0, cols, rows).astype(np.int32)
    dense = np.random.default_rng(1).random((rows, cols)).astype(np.float32)
    labels[0] = -1
    one_hot = np.where(labels[:, None] == np.arange(cols), 1.0, 0.0)
    zd = z.astype(np.float64)
    log_p = (
        zd - zd.max(-1, keepdims=True) - np.log(np.exp(zd - zd.max(-1, keepdims=True)).sum(-1, keepdims=True))
    )
    for t, mass, more in (
        (dense, dense.sum(-1, keepdims=True), {"target": dense}),
        (one_hot, one_hot.sum(-1, keepdims=True), {"labels": labels, "ignore_label": -1}),
    ):
        per_row = -(t * log_p).sum(-1)
        make = args(
            "ct_cross_entropy_args", logits=z, rows=rows, cols=cols, loss_scale=0.5, grad_scale=0.25, **more
        )  # fmt: skip
        dz = 0.25 * (np.exp(log_p) * mass - t)
        wanted = stored(make, loss=np.array([0.5 * per_row.sum()]), row_loss=per_row, dz=dz)
        wanted.agrees("SOFTMAX_CROSS_ENTROPY", 5e-6)


def test_a_label_out_of_range_stops_the_run() -> None:
    z, dz = rand(2, 3), rand(2, 3)
    for bad in (3, -2):
        labels = np.array([0, bad], np.int32)
        args = struct(
            "ct_cross_entropy_args", logits=z, labels=labels, dz=dz, rows=2, cols=3, ignore_label=-1
        )
        assert run("SOFTMAX_CROSS_ENTROPY", args) == abi.Status.BAD_INDEX


@pytest.mark.parametrize("size", [1, 100, 9001])
def test_regression_losses(size: int) -> None:
    p, t = rand(size), rand(size, seed=1)
    d = p.astype(np.float64) - t
    for kernel, value, slope in (
        ("MEAN_SQUARED_ERROR", d * d, 2 * d),
        ("MEAN_ABSOLUTE_ERROR", np.abs(d), np.sign(d)),
    ):
        make = args("ct_regression_loss_args", p=p, target=t, size=size, loss_scale=0.5, grad_scale=0.25)
        stored(make, loss=np.array([0.5 * value.sum()]), dp=0.25 * slope).agrees(kernel, 1e-6)


SIZES = [(1, 1, 1), (3, 17, 5), (7, 40, 33), (33, 300, 24), (130, 1400, 40), (700, 70, 9)]
SCALE = 0.125


class Logits:
    """Logits far beyond what exp can take, labels of which some count nothing, and the gradient."""

    def __init__(self, rows: int, classes: int) -> None:
        self.logits = rand(rows, classes, scale=5) + 200
        self.labels = np.random.default_rng(rows).integers(0, classes, rows).astype(np.int32)
        self.labels[rows // 2 :: 3] = -1
        e = np.exp(self.logits.astype(np.float64) - self.logits.max(-1, keepdims=True))
        counts = self.labels >= 0
        self.top = np.where(counts, self.logits.max(-1), 0)
        self.rate = counts * SCALE / e.sum(-1)
        hot = self.labels[:, None] == np.arange(classes)
        self.gradient = e * self.rate[:, None] - SCALE * hot

    @property
    def given(self) -> Any:
        top, rate = self.top.astype(np.float32), self.rate.astype(np.float32)
        return struct("ct_labels", label=self.labels, top=top, rate=rate, scale=SCALE)


@pytest.mark.parametrize("rows,classes,width", SIZES)
def test_statistics_of_rows(rows: int, classes: int, width: int) -> None:
    loss = Logits(rows, classes)
    make = args(
        "ct_cross_entropy_args", logits=loss.logits, labels=loss.labels, rows=rows, cols=classes, loss_scale=1.0,
        grad_scale=SCALE, ignore_label=-1,
    )  # fmt: skip
    before = {"top": zeros(rows), "rate": zeros(rows), "loss": zeros(1)}
    Call(make, before, {"top": loss.top, "rate": loss.rate}).agrees("SOFTMAX_CROSS_ENTROPY", 2e-6)


@pytest.mark.parametrize("rows,classes,width", SIZES)
def test_an_unmade_gradient_times_weights(rows: int, classes: int, width: int) -> None:
    loss, weights = Logits(rows, classes), rand(classes, width)
    make = args(
        "ct_matmul_args", a=loss.logits, b=weights, batch0=1, batch1=1, m=rows, n=width, k=classes, a_row=classes,
        a_col=1, b_row=width, b_col=1, c_row=width, alpha=1.0, labels=loss.given,
    )  # fmt: skip
    stored(make, c=loss.gradient @ weights.astype(np.float64)).agrees("MATMUL")


@pytest.mark.parametrize("rows,classes,width", SIZES)
def test_an_unmade_gradient_times_inputs(rows: int, classes: int, width: int) -> None:
    loss, x = Logits(rows, classes), rand(rows, width)
    sizes = {"rows": rows, "out_features": classes, "in_features": width, "has_w": 1, "has_b": 1}
    make = summing("ct_matmul_grad_w_args", dy=loss.logits, x=x, labels=loss.given, **sizes)
    dw = loss.gradient.T @ x.astype(np.float64)
    stored(make, w=dw, b=loss.gradient.sum(0)).agrees("MATMUL_GRAD_W")
