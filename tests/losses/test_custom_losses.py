"""Losses of a user's own: formulas over symbols, bare functions, what a file can hold of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tiny_graph import loss_and_gradient

import circle_train as ct
from circle_train.errors import ConfigError
from circle_train.ir import DType, TensorType
from circle_train.losses import MeanAbsoluteError, MeanSquaredError, Traced, custom, trace


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape)


def test_a_bare_function_or_a_class_is_no_loss() -> None:
    with pytest.raises(
        ConfigError, match=r"the function 'mixed', expected a loss; wrap it in ct\.losses\.custom"
    ):
        ct.TrainConfig(loss=mixed)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="MeanSquaredError'>, expected a name or an object"):
        ct.TrainConfig(loss=MeanSquaredError)  # type: ignore[arg-type]


def mixed(output: Any, target: Any) -> Any:
    error = output - target
    return 0.4 * error.square().mean() + 0.6 * abs(error).mean()


def test_a_custom_loss_is_differentiated_and_can_be_kept_as_a_graph() -> None:
    x, target = random(3, 4), random(3, 4, seed=1)
    loss = custom(mixed, name="mixed")
    wanted = loss_and_gradient(0.4 * MeanSquaredError() + 0.6 * MeanAbsoluteError(), x, target)
    kept = Traced(graph=trace(loss, TensorType(DType.FLOAT32, (3, 4))), name="mixed")
    for made in (loss, kept):
        value, gradient = loss_and_gradient(made, x, target)
        np.testing.assert_allclose(value, wanted[0])
        np.testing.assert_allclose(gradient, wanted[1])
    more = random(5, 4), random(5, 4, seed=1)
    np.testing.assert_allclose(loss_and_gradient(kept, *more)[0], loss_and_gradient(loss, *more)[0])
    with pytest.raises(ConfigError, match="made for float32 3×4, the model has float32 3×5"):
        loss_and_gradient(kept, random(3, 5), random(3, 5))


@pytest.mark.parametrize(
    ("formula", "numpy"),
    [
        (lambda o, t: (1 - o) / (2 + t**2), None),
        (lambda o, t: 3 / (1 + o.exp()) - t.tanh(), lambda o, t: 3 / (1 + np.exp(o)) - np.tanh(t)),
        (lambda o, t: (o > t) * (o - t), None),
        (lambda o, t: (o <= 0.1) * o + np.float32(2) * t, None),
        (lambda o, t: o[:, 1:3] * t[:, 0].reshape(3, 1), None),
        (lambda o, t: o[-1] - t[0, ::-1], None),
        (lambda o, t: o[::-2, 3] + np.array([1, 2]), None),
        (lambda o, t: o[2:0:-1, :-1] - t[1:, 1:], None),
        (lambda o, t: o.max(1) - t.min(1, keepdims=True).sum(1), None),
        (lambda o, t: o.transpose(1, 0).clip(-0.5, 0.5), None),
        (lambda o, t: o.relu() + t.sigmoid().log(), lambda o, t: np.maximum(o, 0) - np.log1p(np.exp(-t))),
        (lambda o, t: o[..., 1:, None] * t[None, :, 0].T, None),
        (lambda o, t: np.exp(-np.square(o - t)) + np.abs(t), None),
        (lambda o, t: np.where(o > t, o, 0.5), None),
        (lambda o, t: np.maximum(0.1, o) / np.float64(2) - np.minimum(o, t), None),
        (lambda o, t: np.array([1.0, 2, 3, 4]) * o + [4, 3, 2, 1] * t, None),
        (lambda o, t: np.mean(o, axis=0, keepdims=True) - np.var(t, axis=1)[:, None], None),
        (lambda o, t: np.std(o, axis=-1) + np.max(t, 1) - np.sum(o, 1), None),
        (lambda o, t: np.concatenate([o, t], axis=1) @ np.ones((8, 2)), None),
        (lambda o, t: np.clip(np.reshape(o, (4, -1)), -1, 1) * np.transpose(t), None),
        (lambda o, t: (o == t) * o + (o != t) * t, None),
        (lambda o, t: o.abs().pow(1.5) + t.sin() * np.cos(o), lambda o, t: np.abs(o) ** 1.5 + np.sin(t) * np.cos(o)),
    ],
)  # fmt: skip
def test_symbols_compute_what_numpy_computes(formula: Any, numpy: Any) -> None:
    """Most formulas are numpy's own; the others stand beside it."""
    output, target = random(3, 4), random(3, 4, seed=1)
    output[0, 0] = target[0, 0]
    value, _ = loss_and_gradient(custom(formula, reduction="sum_elements"), output, target)
    np.testing.assert_allclose(value, (numpy or formula)(output, target).sum(), rtol=1e-6)


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        (lambda o, t: 1.0, "returned a float, expected floats computed from its arguments"),
        (lambda o, t: o if o > t else t, "a symbol has no value yet"),
        (lambda o, t: o["a"], "cannot index a symbol"),
        (lambda o, t: o[0, 0, 0], "cannot index a symbol"),
        (lambda o, t: o[3], "3 cannot index a symbol of shape"),
        (lambda o, t: o[..., 0, ...], "cannot index a symbol"),
        (lambda o, t: np.arctan(o), "np.arctan of a symbol has no operator; use one of absolute, add"),
        (lambda o, t: np.median(o), "np.median of a symbol has no operator"),
        (lambda o, t: np.add.reduce(o), "np.add of a symbol"),
    ],
)
def test_custom_losses_that_make_no_sense_are_refused(formula: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        loss_and_gradient(custom(formula), random(3, 4), random(3, 4))
