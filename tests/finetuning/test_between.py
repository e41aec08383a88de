"""Weights between those before a phase and after it: where a known answer lies, there they are put."""

from __future__ import annotations

import numpy as np
import pytest
from networks import mlp

import circle_train as ct
from circle_train.data.dataset import Dataset
from circle_train.finetuning.between import partway

RANDOM = np.random.default_rng(2)
X = RANDOM.normal(size=(30, 6)).astype(np.float32)


@pytest.mark.parametrize("share", [1.0, 0.75, 0.5])
@pytest.mark.parametrize("budget", [None, "64MB"])
def test_weights_go_as_far_as_those_held_out_agree(share: float, budget: str | None) -> None:
    config = ct.TrainConfig(loss="mse", optimizer="sgd", batch_size=10, memory_budget=budget, metrics=["mae"])
    session = ct.TrainSession(mlp(), config, seed=3)
    right = {name: np.array(value) for name, value in session.parameters.items()}
    held_out = Dataset([X], [np.asarray(session.predict(X))])
    before = {
        name: value + RANDOM.normal(size=value.shape).astype(np.float32) for name, value in right.items()
    }
    after = {name: before[name] + (value - before[name]) / np.float32(share) for name, value in right.items()}
    for name, value in after.items():
        session.parameters[name] = value
    at_the_end = session.evaluate(held_out)
    found = partway(session, before, held_out)
    assert found == session.evaluate(held_out)
    if share == 1:
        assert found == at_the_end
        for name, value in after.items():
            np.testing.assert_array_equal(session.parameters[name], value)
    else:
        assert found["loss"] < 1e-6 < at_the_end["loss"]
        for name, value in right.items():
            np.testing.assert_allclose(session.parameters[name], value, atol=1e-5)
