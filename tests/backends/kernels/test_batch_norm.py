"""Batch normalisation against numpy in float64: statistics, activations, gradients; each tier, any number of threads."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from native import struct
from sized.call import Call, args, rand

from circle_train.backends.native.engine.abi import Act

SHAPES = [
    (1, 1),
    (2, 3),
    (7, 5),
    (40, 16),
    (130, 24),
    (33, 64),
    (300, 65),
    (2000, 130),
    (5000, 8),
    (20, 1280),
]


def logistic(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-z))


VALUE: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    Act.NONE: lambda z: z,
    Act.RELU: lambda z: np.maximum(z, 0),
    Act.RELU6: lambda z: np.clip(z, 0, 6),
    Act.RELU_N1_TO_1: lambda z: np.clip(z, -1, 1),
    Act.TANH: np.tanh,
    Act.SWISH: lambda z: z * logistic(z),
    Act.HARD_SWISH: lambda z: z * np.clip(z + 3, 0, 6) / 6,
}
SLOPE: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    Act.NONE: np.ones_like,
    Act.RELU: lambda z: z > 0,
    Act.RELU6: lambda z: (z > 0) & (z < 6),
    Act.RELU_N1_TO_1: lambda z: (z > -1) & (z < 1),
    Act.TANH: lambda z: 1 - np.tanh(z) ** 2,
    Act.SWISH: lambda z: logistic(z) * (1 + z * (1 - logistic(z))),
    Act.HARD_SWISH: lambda z: np.where(z < -3, 0, np.where(z > 3, 1, (2 * z + 3) / 6)),
}


def data(rows: int, cols: int, shift: float = 3.0) -> dict[str, np.ndarray]:
    return {
        "x": rand(rows, cols) * 2 + shift * rand(cols, seed=5),
        "dy": rand(rows, cols, seed=1),
        "gamma": rand(cols, seed=2) + 2,
        "beta": rand(cols, seed=3),
        "add": rand(rows, cols, seed=4),
    }


@pytest.mark.parametrize("act", [*VALUE])
@pytest.mark.parametrize("shape", SHAPES)
def test_forward_with_statistics_sum_and_activation(shape: tuple[int, int], act: int) -> None:
    given, (rows, cols) = data(*shape), shape
    x = given["x"].astype(np.float64)
    mean, variance = x.mean(0), x.var(0)
    z = (x - mean) / np.sqrt(variance + 1e-3) * given["gamma"] + given["beta"]
    outputs = {"y": given["x"].copy(), "mean": rand(cols), "variance": rand(cols)}
    for add in (None, given["add"]):
        want = VALUE[act](z if add is None else z + add)
        make = args(
            "ct_batch_norm_args", x=given["x"], gamma=given["gamma"], beta=given["beta"], rows=rows, cols=cols, eps=1e-3,
            act=act, **({} if add is None else {"add": add}),
        )  # fmt: skip
        Call(make, outputs, {"y": want, "mean": mean, "variance": variance}).agrees("BATCH_NORM")


@pytest.mark.parametrize("act", [*VALUE])
@pytest.mark.parametrize("shape", SHAPES[2:])
def test_gradients_through_activation_and_statistics(shape: tuple[int, int], act: int) -> None:
    given, (rows, cols) = data(*shape), shape
    x = given["x"].astype(np.float64)
    mean, variance = x.mean(0).astype(np.float32), x.var(0).astype(np.float32)
    inverse = 1 / np.sqrt(variance.astype(np.float64) + 1e-3)
    normal = (x - mean) * inverse
    g = given["dy"] * SLOPE[act](normal * given["gamma"] + given["beta"])
    want = given["gamma"] * inverse * (g - g.mean(0) - normal * (g * normal).mean(0))
    wants = {"dx": want, "dgamma": (g * normal).sum(0), "dbeta": g.sum(0)}
    outputs = {"dx": given["dy"].copy(), "dgamma": rand(cols), "dbeta": rand(cols)}
    known = {"rows": rows, "cols": cols, "eps": 1e-3, "act": act, "mean": mean, "variance": variance}
    known |= {name: given[name] for name in ("x", "gamma", "beta")}
    make = lambda out: struct("ct_batch_norm_grad_args", dy=out["dx"], **known, **out)  # noqa: E731
    Call(make, outputs, wants).agrees("BATCH_NORM_GRAD", 5e-5)


@pytest.mark.parametrize("distance", [0.0, 1e3])
def test_variance_of_channels_far_from_zero(distance: float) -> None:
    """Squares summed about 0 would leave nothing of it; one row far away does not spoil the others' either."""
    x = rand(4000, 20) + np.float32(distance)
    x[0] += 50
    want = x.astype(np.float64)
    make = args("ct_batch_norm_args", x=x, rows=4000, cols=20)
    before, wants = {"mean": rand(20), "variance": rand(20)}, {"mean": want.mean(0), "variance": want.var(0)}
    Call(make, before, wants).agrees("BATCH_NORM")
