"""Gradients that wait for their update, within a budget."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from test_memory import cut, data

import circle_train as ct

custom, mse, sparse = ct.losses.custom, ct.losses.MeanSquaredError, ct.losses.SparseCategoricalCrossentropy


def test_waiting_gradients_go_on_waiting_in_a_step_within_a_budget() -> None:
    session = cut(mse(), more=0.04)
    x, y = data(12)
    session.train_step(x, y, update=False, accumulate=True)
    assert session.plan.parts > 1 and session.plan.besides["gradients that wait"] > 0
    waiting = {name: array.copy() for name, array in session.gradients.items()}
    session.train_step(x[::-1], y)
    for name, array in session.gradients.items():
        np.testing.assert_array_equal(array, waiting[name])


def fits(session: ct.TrainSession) -> ct.TrainSession | None:
    """The session, if its step keeps within its budget."""
    with suppress(ct.ConfigError):
        session.prepare()
        return session
    return None


def test_gradients_that_wait_are_refused_where_the_budget_has_no_room_for_them() -> None:
    (x, y), waiting = data(12), 4 * sum(cut(mse()).plan.parameters.values())
    session = next(
        tight for more in range(0, 100_000, waiting // 2) if (tight := fits(cut(mse(), more / 1e6)))
    )
    with pytest.raises(ct.ConfigError, match=r"gradients that wait take 0\.01 MB: .* needs \d+\.\d+ MB"):
        session.train_step(x, y, update=False, accumulate=True)
    assert session.train_step(x, y).loss > session.train_step(x, y).loss
    assert "gradients that wait" not in session.plan.besides
