"""A long step is walked in pieces, so that Ctrl-C ends it where nothing is half moved."""

from __future__ import annotations

import signal
from typing import Any

import networks
import numpy as np
import pytest
from test_backend_training import batch
from test_backends import residual

import circle_train as ct
from circle_train.backends import native
from circle_train.backends.native.engine import step
from circle_train.backends.native.engine.step import NativeRun
from circle_train.compile.program import Mode
from circle_train.errors import DataError

pytestmark = pytest.mark.skipif(not native.is_available(), reason="the native engine was not built")


def in_pieces(monkeypatch: pytest.MonkeyPatch) -> tuple[ct.TrainSession, list[NativeRun], list[NativeRun]]:
    """A session whose steps took long, and its runs before the first weight moves and from there."""
    monkeypatch.setattr(step, "LONG", 0.0)
    monkeypatch.setattr("circle_train.runtime.executor.LARGE", 0)
    session = ct.TrainSession(residual(), ct.TrainConfig(loss="mse", batch_size=4), backend="native")
    plain = ct.TrainSession(residual(), ct.TrainConfig(loss="mse", batch_size=4), backend="reference")
    x, y = batch(residual(), 4)
    found = [session.train_step(x, y).loss for _ in range(3)]
    assert found == pytest.approx([plain.train_step(x, y).loss for _ in range(3)], rel=1e-5)
    program = session.programs.executor(Mode.TRAIN, 4)
    runs = [run for run in program.steps if isinstance(run, NativeRun)]
    assert len(runs) == len(program.steps) and all(len(run._pieces) == len(run._calls) for run in runs)
    return session, runs[: program.reading], runs[program.reading :]


def test_a_short_step_stays_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "LONG", 60.0)
    session = ct.TrainSession(networks.mlp(), ct.TrainConfig(loss="mse", batch_size=4), backend="native")
    for _ in range(2):
        session.train_step(*batch(networks.mlp(), 4))
    steps = session.programs.executor(Mode.TRAIN, 4).steps
    assert all(len(run._pieces) == 1 for run in steps if isinstance(run, NativeRun))


def interrupt(session: ct.TrainSession, run: NativeRun) -> int:
    """Ctrl-C in every piece of the run, and how many of them were taken."""
    taken = 0
    inner = run._run

    def interrupted(*arguments: Any) -> int:
        nonlocal taken
        taken += 1
        status = inner(*arguments)
        signal.raise_signal(signal.SIGINT)
        return status

    run._run = interrupted
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            session.train_step(*batch(residual(), 4))
    finally:
        signal.signal(signal.SIGINT, before)
        run._run = inner
    return taken


def test_ctrl_c_ends_a_long_step_before_a_weight_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that took long is taken in pieces, between which Python answers signals."""
    session, (reading,), _ = in_pieces(monkeypatch)
    before = {name: value.copy() for name, value in session.parameters.items()}
    assert interrupt(session, reading) == 1 < len(reading._pieces)
    assert session.state.step == 3
    assert all(np.array_equal(value, before[name]) for name, value in session.parameters.items())
    x, y = batch(residual(), 4)
    x[:] = np.nan
    with pytest.raises(DataError, match="NaN"):
        session.train_step(x, y)


def test_ctrl_c_waits_for_a_long_step_whose_weights_move(monkeypatch: pytest.MonkeyPatch) -> None:
    session, _, (moving,) = in_pieces(monkeypatch)
    other, _, _ = in_pieces(monkeypatch)
    assert interrupt(session, moving) == len(moving._pieces) > 1
    other.train_step(*batch(residual(), 4))
    assert session.state.step == other.state.step == 4
    assert all(np.array_equal(value, other.parameters[name]) for name, value in session.parameters.items())
