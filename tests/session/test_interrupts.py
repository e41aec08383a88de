"""Ctrl-C at every moment of a step: the step is whole or not at all, and counted if it is."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import networks
import numpy as np
import pytest

import circle_train as ct
from circle_train.runtime.undisturbed import Undisturbed

# Ctrl-C while Python throws a generator away is lost, says Python; the next one is not.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Exception ignored in.*<generator:pytest.PytestUnraisableExceptionWarning"
)
OURS = os.path.dirname(ct.__file__)


@pytest.fixture(autouse=True)
def listening() -> Iterator[None]:
    """A background job ignores Ctrl-C, and so would the tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@contextmanager
def interrupted(at: int, number: int = signal.SIGINT) -> Iterator[list[int]]:
    """Send this process a signal at the at-th moment at which Python looks for signals in our code; gives how many were.

    Those are the beginning of a function and the return from one in C.
    """
    moments = [0]

    def look(frame: FrameType, event: str, argument: Any) -> None:
        if event in ("call", "c_return") and frame.f_code.co_filename.startswith(OURS):
            moments[0] += 1
            if moments[0] == at:
                signal.raise_signal(number)

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        yield moments
    finally:
        sys.setprofile(before)


Snapshot = tuple[int, int, dict[str, np.ndarray]]


def snapshot(session: ct.TrainSession) -> Snapshot:
    state = session.state
    return state.step, state.passes, {str(key): array.copy() for key, array in state.arrays.items()}


def restore(session: ct.TrainSession, saved: Snapshot) -> None:
    state = session.state
    state.step, state.passes = saved[:2]
    for key, array in state.arrays.items():
        if array.flags.writeable:
            np.copyto(array, saved[2][str(key)])


def same(one: Snapshot, other: Snapshot) -> bool:
    """Apart from what is written anew for each step: rates, and what decides dropout."""
    names = [name for name in one[2] if "scalars" not in name and "random" not in name]
    return one[:2] == other[:2] and all(np.array_equal(one[2][n], other[2][n]) for n in names)


def batch(session: ct.TrainSession) -> tuple[list[np.ndarray], list[np.ndarray]]:
    rng = np.random.default_rng(0)
    program = session.program
    return [rng.random(t.shape, np.float32) for t in program.inputs], [
        rng.random(t.shape, np.float32) for t in program.targets
    ]


def opened(**settings: Any) -> ct.TrainSession:
    backend = settings.pop("backend", "auto")
    config = ct.TrainConfig(loss="mse", batch_size=4, optimizer=ct.optimizers.Adam(0.01), **settings)
    return ct.TrainSession(networks.mlp(), config, backend=backend, threads=1)


def train(session: ct.TrainSession) -> None:
    session.train_step(*batch(session))


def accumulate(session: ct.TrainSession) -> None:
    session.train_step(*batch(session), accumulate=True, update=False)


CASES: dict[str, tuple[dict[str, Any], Callable[[ct.TrainSession], None]]] = {
    "a step": ({}, train),
    "a step of the reference": ({"backend": "reference"}, train),
    "a step within a budget": ({"memory_budget": "divided"}, train),
    "a step on a frozen beginning": ({"trainable": ("last", 1)}, train),
    "gradients that wait": ({}, accumulate),
    "their update": ({}, lambda session: session.update()),
    "their reset": ({}, lambda session: session.reset_gradients()),
}


def smallest_budget() -> str:
    """One that divides the batch."""
    with pytest.raises(ct.ConfigError, match="a step needs") as refusal:
        opened(memory_budget=1).prepare()
    return str(refusal.value).partition("needs ")[2].partition(" even")[0].replace(" ", "")


@pytest.mark.parametrize("name", CASES)
def test_what_is_interrupted_is_whole_or_not_at_all(name: str) -> None:
    settings, act = CASES[name]
    if "memory_budget" in settings:
        settings = {"memory_budget": smallest_budget()}
    session = opened(**settings)
    train(session)
    accumulate(session)
    before = snapshot(session)
    act(session)
    restore(session, before)
    with interrupted(at=0) as moments:
        act(session)
    after = snapshot(session)
    assert not same(before, after)
    outcomes = {"before": 0, "after": 0}
    for at in range(1, moments[0] + 1):
        act(session)  # an interrupt may have cost a program, which is made again
        restore(session, before)
        with suppress(KeyboardInterrupt), interrupted(at):
            act(session)
        found = snapshot(session)
        assert same(found, before) or same(found, after), f"torn at moment {at} of {moments[0]}"
        outcomes["before" if same(found, before) else "after"] += 1
    assert all(outcomes.values()), outcomes
    restore(session, before)
    act(session)
    assert same(snapshot(session), after)


def test_an_interrupted_fit_has_counted_every_batch_whose_step_was_taken() -> None:
    x, y = (
        np.ones((8, *t.shape[1:]), np.float32)
        for t in (opened().program.inputs[0], opened().program.targets[0])
    )
    with interrupted(at=0) as moments:
        opened().fit(x, y, epochs=1, shuffle=False, verbose=0)
    steps = set()
    for at in range(1, moments[0] + 1, 23):
        session = opened()
        with suppress(KeyboardInterrupt), interrupted(at):  # in a __del__ Python swallows it
            session.fit(x, y, epochs=1, shuffle=False, verbose=0)
        if session.programs.made is not None:
            state = session.state
            assert state.step == (2 if state.epoch or state.epochs_begun else state.position)
            steps.add(state.step)
    assert steps == {0, 1, 2}


def test_signals_wait_and_then_do_what_they_do() -> None:
    heard: list[int] = []
    numbers = [signal.SIGUSR1, signal.SIGTERM]
    replaced = {number: signal.signal(number, lambda got, frame: heard.append(got)) for number in numbers}
    try:
        with Undisturbed() as undisturbed:
            signal.raise_signal(signal.SIGUSR1)
            assert heard == [signal.SIGUSR1]
            undisturbed.begin()
            for number in numbers:
                signal.raise_signal(number)
            assert heard == [signal.SIGUSR1]
        assert heard == [signal.SIGUSR1, *numbers]
        signal.raise_signal(signal.SIGTERM)
        assert len(heard) == 4
    finally:
        for number, handler in replaced.items():
            signal.signal(number, handler)


def test_handlers_are_back_although_one_raises_at_once() -> None:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with pytest.raises(KeyboardInterrupt), Undisturbed() as undisturbed:
        undisturbed.begin()
        signal.raise_signal(signal.SIGINT)
    assert {number: signal.getsignal(number) for number in handlers} == handlers


def test_an_error_within_is_not_hidden_by_the_signal() -> None:
    with pytest.raises(KeyboardInterrupt) as caught, Undisturbed() as undisturbed:
        undisturbed.begin()
        signal.raise_signal(signal.SIGINT)
        raise ValueError("first")
    assert isinstance(caught.value.__context__, ValueError)
