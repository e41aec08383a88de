"""What a process takes besides a step has a line each in the plan, and belongs to the budget."""

from __future__ import annotations

import numpy as np
import pytest
from networks import cnn

import circle_train as ct

CONFIG = ct.TrainConfig(loss="mse", batch_size=4)


def data(session: ct.TrainSession) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    x, y = (
        random.random((8, *t.shape[1:]), np.float32)
        for t in (session.program.inputs[0], session.program.targets[0])
    )
    return x, y


def test_a_plan_has_a_line_for_everything() -> None:
    plan = ct.TrainSession(cnn(), CONFIG).plan
    lines = [line.split()[0] for line in str(plan).splitlines() if line.startswith("  ")]
    works = ["evaluation", "prediction", "accumulation", "checkpoint", "export", "report"]
    assert lines == ["package", "data", *works]
    assert plan.budget_bytes == plan.total_bytes + sum(plan.besides.values())


def test_best_weights_belong_to_the_budget_once_a_callback_keeps_them() -> None:
    whole = ct.TrainSession(cnn(), CONFIG).plan
    held = 4 * sum(whole.parameters.values())
    for room, fits in ((held + 1, True), (held - 1, False)):
        session = ct.TrainSession(cnn(), CONFIG.replace(memory_budget=whole.budget_bytes + room))
        x, y = data(session)
        best = ct.callbacks.EarlyStopping("loss", restore_best=True)
        session.fit(x, y, epochs=2, callbacks=best, verbose=0)
        plan = session.plan
        assert plan.besides["best weights"] == held
        assert plan.budget_bytes <= whole.budget_bytes + room
        assert (plan.total_bytes == whole.total_bytes) == fits


def test_waiting_gradients_make_a_step_do_with_less_and_change_no_bit_of_it() -> None:
    whole = ct.TrainSession(cnn(), CONFIG, threads=1)
    config = CONFIG.replace(memory_budget=whole.plan.budget_bytes)
    session = ct.TrainSession(cnn(), config, threads=1)
    x, y = data(session)
    for one in (whole, session):
        one.train_step(x[:4], y[:4], update=False, accumulate=True)
        one.update()
    assert session.plan.budget_bytes <= whole.plan.budget_bytes
    np.testing.assert_allclose(session.parameters.flat(), whole.parameters.flat(), rtol=1e-5, atol=1e-7)


def test_a_budget_without_room_for_best_weights_is_refused_and_the_session_goes_on() -> None:
    with pytest.raises(ct.ConfigError) as refusal:
        ct.TrainSession(cnn(), CONFIG.replace(memory_budget=1)).prepare()
    least = float(str(refusal.value).split("a step needs ")[1].split(" MB")[0])
    session = ct.TrainSession(cnn(), CONFIG.replace(memory_budget=f"{least}MB"))
    x, y = data(session)
    best = ct.callbacks.EarlyStopping("loss", restore_best=True)
    try:
        session.fit(x, y, epochs=1, callbacks=best, verbose=0)
    except ct.ConfigError as error:
        assert "best weights take" in str(error) and "a step needs" in str(error)
    assert session.train_step(x[:4], y[:4]).loss > 0
