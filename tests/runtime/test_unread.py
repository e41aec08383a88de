"""Large outputs are copied when they are read, or before something else is written there; what is read is the step's own."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from networks import mlp

import circle_train as ct
from circle_train.ir.tensor_type import Array
from circle_train.session.batches import LARGE

X = np.random.default_rng(3).normal(size=(3, 256, 6)).astype(np.float32)
Y = np.zeros((256, 2048), np.float32)


def opened(**settings: Any) -> ct.TrainSession:
    config = ct.TrainConfig(loss="mse", batch_size=256, **settings)
    return ct.TrainSession(mlp(classes=2048, softmax=False), config)


def read_at_once() -> list[Array]:
    session = opened()
    return [session.train_step(x, Y).outputs[0] for x in X]


def test_outputs_are_those_of_their_step_whenever_they_are_read() -> None:
    session = opened()
    results = [session.train_step(x, Y) for x in X]
    assert Y.nbytes >= LARGE
    for result, expected in zip(results, read_at_once(), strict=True):
        np.testing.assert_array_equal(result.outputs[0], expected)
        assert result.outputs[0] is result.outputs[0]


@pytest.mark.parametrize(
    "another",
    [
        lambda session: session.predict(X[1]),
        lambda session: session.evaluate(X[1], Y),
        lambda session: session.train_step(X[1], Y, update=False, accumulate=True),
        lambda session: session.fit(X[1], Y, epochs=1, verbose=0),
        lambda session: session.profile(X[1], Y, steps=1),
        lambda session: session.set_trainable(("last", 1)),
    ],
    ids=["predict", "evaluate", "accumulate", "fit", "profile", "set_trainable"],
)
def test_whatever_runs_next_leaves_them(another: Callable[[ct.TrainSession], Any]) -> None:
    session = opened()
    result = session.train_step(X[0], Y)
    another(session)
    np.testing.assert_array_equal(result.outputs[0], read_at_once()[0])


def test_what_is_changed_is_the_readers_own() -> None:
    session = opened()
    session.train_step(X[0], Y).outputs[0][:] = np.nan
    assert np.isfinite(session.train_step(X[1], Y).loss)


def test_a_forgotten_result_is_not_copied() -> None:
    session = opened()
    session.train_step(X[0], Y)
    assert session.state.unread is not None and session.state.unread() is None
    held = session.train_step(X[0], Y)
    assert held.at_hand[0].base is not None and not held.at_hand[0].flags.owndata
    assert held.outputs[0].flags.owndata and held.at_hand[0] is held.outputs[0]


def test_metrics_and_small_outputs_are_read_at_once() -> None:
    measured = opened(metrics=["mean_absolute_error"]).train_step(X[0], Y)
    np.testing.assert_array_equal(measured.outputs[0], read_at_once()[0])
    assert measured.metrics["mean_absolute_error"] == pytest.approx(
        np.abs(measured.outputs[0]).mean(), rel=1e-5
    )
    small = ct.TrainSession(mlp(), ct.TrainConfig(loss="mse", batch_size=4))
    small.train_step(X[0, :4], Y[:4, :4])
    assert small.state.unread is None


def test_a_copy_and_a_pickle_hold_the_numbers() -> None:
    session = opened()
    result = session.train_step(X[0], Y)
    twins = [copy.deepcopy(result), pickle.loads(pickle.dumps(session.train_step(X[1], Y)))]
    for twin, expected in zip(twins, read_at_once(), strict=False):
        np.testing.assert_array_equal(twin.outputs[0], expected)
    assert repr(result).startswith("Unread(loss=")
