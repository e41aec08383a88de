"""What the engine does with threads that it is not given, with none that start, and in a forked child."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from networks import cnn

import circle_train as ct
from circle_train.backends import native

pytestmark = pytest.mark.skipif(not native.is_available(), reason="the native engine was not built")
X = np.random.default_rng(2).normal(size=(6, 9, 9, 3)).astype(np.float32)
Y = np.eye(5, dtype=np.float32)[[0, 1, 2, 3, 4, 0]]


def session(threads: Any = 2) -> ct.TrainSession:
    config = ct.TrainConfig(loss="categorical_crossentropy", optimizer="sgd", batch_size=6)
    return ct.TrainSession(cnn(), config, threads=threads, backend="native")


@pytest.mark.parametrize("threads", [0, -1, 1025, 2**31, 2**64, 1.5, "2", float("nan")])
def test_a_number_of_threads_that_is_none_is_refused(threads: Any) -> None:
    with pytest.raises(ct.ConfigError, match=r"threads is .*, expected a whole number from 1 to 1024"):
        session(threads)


@pytest.mark.parametrize("threads", [np.int64(2), np.uint8(3), True])
def test_any_whole_number_is_taken(threads: Any) -> None:
    assert np.isfinite(session(threads).train_step(X, Y).loss)


NO_MORE_THREADS = """
import os, sys
sys.path.insert(0, {tests!r})
from test_engine_threads import X, Y, session
first = session(1).train_step(X, Y).loss
many = session(64)
assert many.train_step(X, Y).loss == first
print(len(os.listdir("/proc/self/task")))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts the threads that Linux lists")
def test_where_no_thread_starts_one_does_the_work() -> None:
    """Stacks of a size that no address space holds."""
    import resource

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_STACK, (1 << 50, resource.RLIM_INFINITY))

    # from a folder without the tree's package, which may lack the library
    code = NO_MORE_THREADS.format(tests=os.path.dirname(__file__))
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, preexec_fn=limit, cwd=os.path.dirname(__file__), capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (0, "1"), done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_forked_while_another_thread_trains_can_work() -> None:
    trained, stop = session(), threading.Event()
    trained.train_step(X, Y)

    def keep_training() -> None:
        while not stop.is_set():
            trained.train_step(X, Y)

    busy = threading.Thread(target=keep_training)
    busy.start()
    try:
        for _ in range(10):
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                trained.eval_step(X, Y)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        busy.join()
