"""A budget holds for what is not a training step too: gradients that wait, evaluation, prediction, smaller batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_memory import wide

import circle_train as ct
from circle_train.compile.program import Mode
from circle_train.compile.thrift.budget import lessened
from circle_train.runtime.divided import PartsExecutor

BATCH = 12


def sessions() -> tuple[ct.TrainSession, ct.TrainSession]:
    """With as little memory as there can be, and with any."""
    config = ct.TrainConfig(loss="mse", batch_size=BATCH)
    whole = ct.TrainSession(wide(), config, threads=1)
    with pytest.raises(ct.ConfigError) as refusal:
        ct.TrainSession(wide(), config.replace(memory_budget=1), threads=1).prepare()
    needed = float(str(refusal.value).split("a step needs ")[1].split(" MB")[0])
    small = ct.TrainSession(wide(), config.replace(memory_budget=f"{needed + 0.03:.2f}MB"), threads=1)
    return small, whole


def batch(session: ct.TrainSession, count: int) -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    program = session.program
    x, y = (
        random.normal(size=(count, *t.shape[1:])).astype(np.float32)
        for t in (program.inputs[0], program.targets[0])
    )
    return x, y


def arenas(session: ct.TrainSession) -> set[int]:
    """Where the memory of each executor begins."""
    return {
        e.arena.__array_interface__["data"][0] for e in session.programs._executors.values() if e.arena.size
    }


def test_everything_is_done_in_the_memory_of_a_step() -> None:
    small, whole = sessions()
    x, y = batch(whole, BATCH)
    for count in (BATCH, 5):
        assert small.eval_step(x[:count], y[:count]).loss == pytest.approx(
            whole.eval_step(x[:count], y[:count]).loss, rel=1e-5
        )
        np.testing.assert_allclose(small.predict(x[:count]), whole.predict(x[:count]), rtol=1e-5, atol=1e-6)
        for session in (small, whole):
            session.reset_gradients()
            session.train_step(x[:count], y[:count], update=False, accumulate=True)
        for name, gradient in whole.gradients.items():
            np.testing.assert_allclose(small.gradients[name], gradient, rtol=1e-4, atol=1e-6)
        for session in (small, whole):
            session.reset_gradients()
            session.train_step(x[:count], y[:count])
    np.testing.assert_allclose(small.parameters.flat(), whole.parameters.flat(), rtol=1e-4, atol=1e-6)
    assert isinstance(small.programs.executor(Mode.ACCUMULATE, BATCH), PartsExecutor)
    assert len(arenas(small)) == 1


def test_what_needs_more_and_cannot_be_taken_in_parts_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    small, whole = sessions()
    x, _ = batch(whole, BATCH)
    many = np.repeat(x, 50, axis=0)
    np.testing.assert_allclose(
        small.predict(many, batch_size=len(many)), whole.predict(many), rtol=1e-5, atol=1e-6
    )
    monkeypatch.setattr("circle_train.compile.thrift.budget.indivisible", lambda *_: "samples mix")
    expected = (
        r"but to predict 600 samples takes [\d.]+ MB with the step's memory; give at least that, or fewer"
    )
    with pytest.raises(ct.ConfigError, match=expected):
        sessions()[0].predict(many, batch_size=len(many))


def test_a_part_that_is_refused_takes_back_what_others_added() -> None:
    small, _ = sessions()
    x, y = batch(small, BATCH)
    small.train_step(x, y, update=False, accumulate=True)
    before = {name: gradient.copy() for name, gradient in small.gradients.items()}
    y[-1] = np.inf
    with pytest.raises(ct.CircleTrainError):
        small.train_step(x, y, update=False, accumulate=True)
    for name, gradient in small.gradients.items():
        np.testing.assert_array_equal(gradient, before[name])


def test_a_program_that_fits_exactly_stays_as_it_is() -> None:
    program = ct.TrainSession(wide(), ct.TrainConfig(loss="mse", batch_size=BATCH)).program
    assert lessened(program, program.arena_bytes) is program
    assert lessened(program, program.arena_bytes - 1) is not program
