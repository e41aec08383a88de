"""One session in many hands and for a long time: threads, forks, hundreds of thousands of steps."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import circle_train as ct

MODEL = Path(__file__).parents[1] / "data" / "mlp.circle"
X, Y = np.random.default_rng(0).random((4, 6), np.float32), np.eye(5, dtype=np.float32)[:4]
CONFIG = ct.TrainConfig(loss="mse", batch_size=4, optimizer=ct.optimizers.Adam(0.01))
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def opened() -> ct.TrainSession:
    session = ct.TrainSession(MODEL, CONFIG, threads=2)
    session.prepare()
    return session


def held() -> tuple[int, int, int]:
    """Bytes in memory, threads, open files."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return (
        pages * os.sysconf("SC_PAGE_SIZE"),
        len(os.listdir("/proc/self/task")),
        len(os.listdir("/proc/self/fd")),
    )


def in_threads(work: list[threading.Thread]) -> None:
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()


def test_eight_threads_train_one_session_and_count_every_step() -> None:
    """Who trains beside another is refused; the steps that are taken are those of one thread alone."""
    session, alone = opened(), opened()
    taken = [0] * 8

    def work(number: int) -> None:
        for _ in range(40):
            try:
                session.train_step(X, Y)
                taken[number] += 1
            except ct.ConfigError as refusal:
                assert "another thread" in str(refusal)

    in_threads([threading.Thread(target=work, args=(i,)) for i in range(8)])
    assert session.state.step == sum(taken) > 0
    for _ in range(sum(taken)):
        alone.train_step(X, Y)
    np.testing.assert_array_equal(session.parameters.flat(), alone.parameters.flat())


def test_eight_threads_ask_one_session_and_get_their_own_answers() -> None:
    session = ct.InferenceSession(MODEL, threads=2)
    inputs = [X + i for i in range(8)]
    right = [session(x) for x in inputs]
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(50):
            if not np.array_equal(session(inputs[number]), right[number]):
                wrong.append(number)

    in_threads([threading.Thread(target=work, args=(i,)) for i in range(8)])
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_process_that_is_forked_while_a_thread_trains_goes_on() -> None:
    session, ending = opened(), threading.Event()

    def work() -> None:
        while not ending.is_set():
            session.train_step(X, Y)

    thread = threading.Thread(target=work)
    thread.start()
    statuses = []
    try:
        for moment in range(30):
            time.sleep(0.0007 * moment % 0.004)
            child = os.fork()
            if not child:
                signal.alarm(30)  # ends what hangs
                done = np.isfinite(session.predict(X)).all() and np.isfinite(opened().train_step(X, Y).loss)
                os._exit(0 if done else 1)
            statuses.append(os.waitpid(child, 0)[1])
    finally:
        ending.set()
        thread.join()
    assert statuses == [0] * 30


@LINUX
@pytest.mark.parametrize("steps", [3_000, pytest.param(200_000, marks=pytest.mark.slow)])
def test_steps_leave_nothing_behind(steps: int) -> None:
    session = opened()
    for _ in range(500):
        session.train_step(X, Y)
    before = held()
    for _ in range(steps):
        session.train_step(X, Y)
    after = held()
    assert after[1:] == before[1:] and after[0] - before[0] < 2 << 20


@LINUX
@pytest.mark.parametrize(
    "count",
    [
        60,
        pytest.param(1_500, marks=pytest.mark.slow(seconds=20)),
        pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.thorough]),
    ],
)
def test_sessions_leave_nothing_behind(count: int) -> None:
    for _ in range(20):
        opened().train_step(X, Y)
        ct.InferenceSession(MODEL, threads=2)(X)
    before = held()
    for _ in range(count):
        opened().train_step(X, Y)
        ct.InferenceSession(MODEL, threads=2)(X)
    after = held()
    assert after[1:] == before[1:] and after[0] - before[0] < 6 << 20


@LINUX
def test_programs_of_batches_long_past_leave_nothing_behind() -> None:
    session = opened()

    def sizes(first: int, last: int) -> None:
        for size in range(first, last):
            session.eval_step(np.ones((size, 6), np.float32), np.ones((size, 5), np.float32))
            session.predict_batch([np.ones((size, 6), np.float32)])

    sizes(1, 30)
    before = held()
    sizes(30, 150)
    assert held()[0] - before[0] < 3 << 20
