"""ONERT's training process, one method a step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onert_files import BY_NAME, FOLDER, batches, config_of, session_of

import circle_train as ct

RUN = BY_NAME["two_input__mse_mean_adam"]


def opened() -> ct.TrainSession:
    return ct.TrainSession(str(FOLDER / RUN["model"]))


def fed(session: ct.TrainSession, step: int) -> None:
    x, y = batches(RUN)[step]
    for index, array in enumerate(x):
        session.set_input(index, array)
    session.set_expected(0, y)


def test_the_eight_steps_give_onerts_losses() -> None:
    session = opened()
    session.set_traininfo(config_of(RUN))
    session.prepare()
    losses = []
    for step in range(RUN["steps"]):
        fed(session, step)
        session.run()
        losses.append(session.loss(0))
    assert np.allclose(losses, RUN["losses"], rtol=1e-5)


def test_a_run_without_update_changes_nothing() -> None:
    session = session_of(RUN)
    fed(session, 0)
    session.run(update=False)
    before = session.loss()
    session.run(update=False)
    assert session.loss() == before and session.state.step == 0


def test_inference_in_the_same_session() -> None:
    trained, plain = session_of(RUN), session_of(RUN)
    x, y = batches(RUN)[0]
    for session in (trained, plain):
        session.train_step(x, y)
    trained.set_input(0, x[0])
    trained.set_input(1, x[1])
    trained.run(update=False)
    assert np.array_equal(trained.output(), plain.predict(x))
    with pytest.raises(ct.ConfigError, match="the last run had no expected values"):
        trained.loss()


def test_arrays_are_copied_and_converted() -> None:
    """ONERT reads memory that is gone by then, in whatever layout it had."""
    session, plain = session_of(RUN), session_of(RUN)
    x, y = batches(RUN)[0]
    for index, array in enumerate(x):
        other = np.asfortranarray(array.astype(np.float64))
        session.set_input(index, other)
        other[:] = np.nan
    session.set_expected(0, y)
    session.run()
    assert session.loss() == plain.train_step(x, y).loss


MISTAKES: list[tuple[Callable[[ct.TrainSession], object], type[Exception], str]] = [
    (lambda s: s.set_traininfo(config_of(RUN)), ct.ConfigError, "prepared already"),
    (lambda s: s.run(), ct.DataError, r"input 0 \('x1'\) is not set; call set_input\(0, array\)"),
    (lambda s: s.loss(), ct.ConfigError, "nothing was run yet"),
    (lambda s: s.output(), ct.ConfigError, "nothing was run yet"),
    (lambda s: s.set_input(2, np.zeros(1)), ct.DataError, "there is no number 2, the model has 2"),
    (lambda s: s.set_input(0, np.zeros((5, 9))), ct.DataError, "has shape 5×9, expected N×4"),
    (lambda s: s.set_expected(1, np.zeros(1)), ct.DataError, "there is no number 1, the model has 1"),
]


@pytest.mark.parametrize(("mistake", "kind", "message"), MISTAKES, ids=range(len(MISTAKES)))
def test_what_is_out_of_order_is_said(
    mistake: Callable[[ct.TrainSession], object], kind: type[Exception], message: str
) -> None:
    session = session_of(RUN)
    session.prepare()
    with pytest.raises(kind, match=message):
        mistake(session)


def test_an_update_needs_expected_values() -> None:
    session = session_of(RUN)
    for index, array in enumerate(batches(RUN)[0][0]):
        session.set_input(index, array)
    with pytest.raises(ct.DataError, match=r"expected value 0 .* is not set; call set_expected"):
        session.run()


def test_a_session_without_settings_says_so() -> None:
    with pytest.raises(ct.ConfigError, match="carries no training settings and none were given"):
        opened().prepare()
