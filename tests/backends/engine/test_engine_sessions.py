"""Sessions on the native engine: two in a process, interrupted ones, bad indices, what runs where, no library at all."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import warnings
from typing import Any

import numpy as np
import pytest
from networks import cnn, finish, make, mlp, new_input, weight

import circle_train as ct
from circle_train.backends import choice, native
from circle_train.backends.native.engine import library
from circle_train.backends.native.engine.abi import CopyArgs, Kernel
from circle_train.backends.native.engine.step import Call, Scratch
from circle_train.ir import DType, Graph
from circle_train.model import Model

needs_native = pytest.mark.skipif(not native.is_available(), reason="the native engine was not built")

X = np.random.default_rng(2).normal(size=(6, 9, 9, 3)).astype(np.float32)

Y = np.eye(5, dtype=np.float32)[[0, 1, 2, 3, 4, 0]]


# Sessions


def config(**changes: Any) -> ct.TrainConfig:
    return ct.TrainConfig(**{"loss": "mse", "batch_size": 6, "optimizer": "adam", **changes})


def steps(session: ct.TrainSession, count: int = 3) -> list[float]:
    return [session.train_step(X, Y).loss for _ in range(count)]


ALONE = """
import json, sys
sys.path[:0] = json.loads(sys.argv[1])
from test_engine_sessions import cnn, config, steps
import circle_train as ct
print(json.dumps([x.hex() for x in steps(ct.TrainSession(cnn(), config(optimizer=sys.argv[2]), backend="native", threads=2))]))
"""


@needs_native
def test_two_sessions_in_a_process_are_two_processes() -> None:
    """Taking turns, each gives bit for bit what it gives alone in a process."""
    here = ct.TrainSession(cnn(), config(), backend="native", threads=2)
    other = ct.TrainSession(cnn(), config(optimizer="sgd"), backend="native", threads=2)
    together: list[list[str]] = [[], []]
    for _ in range(3):
        for session, found in zip((here, other), together, strict=True):
            found.append(session.train_step(X, Y).loss.hex())
    for optimizer, found in zip(("adam", "sgd"), together, strict=True):
        command = [sys.executable, "-c", ALONE, json.dumps(sys.path), optimizer]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert json.loads(done.stdout) == found


@needs_native
@pytest.mark.skipif(sys.platform == "win32", reason="signals are Unix's")
def test_an_interrupted_training_can_go_on() -> None:
    """Ctrl-C amid steps that take a while: KeyboardInterrupt soon, and a session whose weights are numbers."""
    graph = Graph("wide", [new_input("x", 1, 1500)])
    x = graph.inputs[0]
    for i in range(4):
        x = graph.emit(make("FULLY_CONNECTED"), x, weight(f"w{i}", 1500, 1500), weight(f"b{i}", 1500))
    session = ct.TrainSession(finish(graph, x), config(batch_size=256), backend="native", threads=2)
    data = np.random.default_rng(0).normal(size=(256, 1500)).astype(np.float32)
    session.train_step(data, data)
    sent: list[float] = []

    def interrupt() -> None:
        sent.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.2, interrupt)
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            for _ in range(10_000):
                session.train_step(data, data)
        assert time.perf_counter() - sent[0] < 5
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, previous)
    before = session.parameters["w0"].copy()
    assert np.isfinite(before).all()
    assert np.isfinite(session.train_step(data, data).loss)
    assert not np.array_equal(session.parameters["w0"], before)


@needs_native
def test_a_session_between_steps_takes_no_processor() -> None:
    """Its threads wait awake for a moment only."""
    session = ct.TrainSession(cnn(), config(), backend="native", threads=4)
    steps(session)
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.02


@needs_native
@pytest.mark.parametrize("label", [4, -1, 1 << 30, -(1 << 31)])
def test_a_label_out_of_range_is_refused_and_changes_nothing(label: int) -> None:
    settings_ = config(loss="sparse_categorical_crossentropy", batch_size=3)
    session = ct.TrainSession(mlp(), settings_, backend="native")
    x = np.ones((3, 6), np.float32)
    session.train_step(x, np.array([[0], [1], [3]]))
    before = {name: array.copy() for name, array in session.parameters.items()}
    with pytest.raises(ct.DataError):
        session.train_step(x, np.array([[0], [label], [1]]))
    for name, array in before.items():
        np.testing.assert_array_equal(session.parameters[name], array)
    assert np.isfinite(session.train_step(x, np.array([[0], [1], [3]])).loss)


def looked_up() -> Model:
    """Rows of a trained table by index, and a dense layer."""
    graph = Graph("rows", [new_input("i", 1, 2, dtype=DType.INT32)])
    x = graph.emit(make("GATHER"), weight("table", 7, 4), graph.inputs[0], name="rows")
    x = graph.emit(make("RESHAPE", new_shape=(-1, 8)), x)
    return finish(graph, graph.emit(make("FULLY_CONNECTED"), x, weight("f", 3, 8), weight("fb", 3)))


@needs_native
@pytest.mark.parametrize("index", [7, -8, 1 << 30])
def test_an_index_out_of_range_is_refused_by_training_and_inference(index: int) -> None:
    session = ct.TrainSession(looked_up(), config(batch_size=2), backend="native")
    y = np.zeros((2, 3), np.float32)
    session.train_step(np.array([[0, 6], [1, 2]], np.int32), y)
    bad = np.array([[0, index], [1, 2]], np.int32)
    before = session.parameters["table"].copy()
    with pytest.raises(ct.DataError, match="GATHER"):
        session.train_step(bad, y)
    np.testing.assert_array_equal(session.parameters["table"], before)
    with pytest.raises(ct.DataError):
        ct.InferenceSession(looked_up(), backend="native")(bad)


@needs_native
def test_the_plan_says_what_the_reference_runs() -> None:
    graph = Graph("mixed", [new_input("x", 1, 1, 1, 6)])
    dense = make("FULLY_CONNECTED", keep_num_dims=True)
    x = graph.emit(dense, graph.inputs[0], weight("w", 6, 6), weight("b", 6), name="dense")
    x = graph.emit(make("LOCAL_RESPONSE_NORMALIZATION"), x, name="normal")
    session = ct.TrainSession(finish(graph, x), config(batch_size=2), backend="native")
    plan = session.plan
    assert [(operator.name, operator.engine) for operator in plan.operators] == [
        ("FULLY_CONNECTED", "native"),
        ("LOCAL_RESPONSE_NORMALIZATION", "reference"),
    ]
    assert any("LOCAL_RESPONSE_NORMALIZATION" in name for name in plan.reference_operators)
    assert "reference" in str(plan)
    reference = ct.TrainSession(session.model, config(batch_size=2), backend="reference")
    data = np.random.default_rng(1).normal(size=(2, 1, 1, 6)).astype(np.float32)
    for _ in range(3):
        assert session.train_step(data, data).loss == pytest.approx(
            reference.train_step(data, data).loss, rel=1e-5
        )


# Without a library


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Any:
    """As installed without a compiler."""
    library.load.cache_clear()
    monkeypatch.setattr(library, "FOLDER", tmp_path)
    yield tmp_path
    library.load.cache_clear()


def test_without_a_library_one_warning_and_the_reference(absent: pathlib.Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        session = ct.TrainSession(cnn(), config())
    assert [str(w.message) for w in caught if "native engine" in str(w.message)] == [
        "the native engine was not built for this release, training runs on the slower numpy reference"
    ]
    assert session.backend.name == "reference"
    assert steps(session, 2) == steps(ct.TrainSession(cnn(), config(), backend="reference"), 2)


def test_a_broken_library_is_none(absent: pathlib.Path) -> None:
    (absent / "libcircle_train_native.so").write_bytes(b"\x7fELF is not enough")
    assert not native.is_available()
    with pytest.raises(ct.ConfigError, match="backend 'native' was not built"):
        choice.choose("native", None)


@needs_native
def test_a_library_of_other_sources_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Built from another header it would read arguments where they do not lie."""
    library.load.cache_clear()
    monkeypatch.setattr(library.abi, "ABI_VERSION", library.abi.ABI_VERSION ^ 1)
    assert not native.is_available()
    with pytest.raises(ct.ConfigError, match="was not built for this release"):
        choice.choose("native", None)
    library.load.cache_clear()


class Asks:
    """Workers for whom each call needs as much."""

    def scratch_bytes(self, kernel: int, args: Any) -> int:
        return 1000


def test_working_memory_counts_what_was_asked_for_wherever_it_lies() -> None:
    """Plans and budgets are made of this number: it must not depend on an address."""
    held = []
    for size in range(1, 400, 13):
        scratch = Scratch(Asks())  # type: ignore[arg-type]
        scratch.reserve([Call(Kernel.COPY, CopyArgs(), ())])
        held.append((scratch, np.empty(size, np.uint8)))
    assert {scratch.nbytes for scratch, _ in held} == {1000}
