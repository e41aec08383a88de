"""Profiles: every node is there, the work is the program's, and nothing that was learned changes."""

from __future__ import annotations

import numpy as np
import pytest
from networks import cnn, finish, make, mlp, new_input, weight
from test_memory import wide

import circle_train as ct
from circle_train.backends import native
from circle_train.compile import prefix
from circle_train.compile.program import Mode
from circle_train.errors import ConfigError, DataError
from circle_train.ir import Graph
from circle_train.ir.graph import constant
from circle_train.ir.node import known_type
from circle_train.ops.attributes import Padding
from circle_train.runtime.divided import DividedExecutor

BACKENDS = ["reference", *(["native"] if native.is_available() else [])]
X = np.random.default_rng(5).normal(size=(8, 9, 9, 3)).astype(np.float32)
Y = np.eye(5, dtype=np.float32)[np.arange(8) % 5]


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_node_is_timed_once(backend: str) -> None:
    session = ct.TrainSession(cnn(), ct.TrainConfig(loss="mse", batch_size=4), backend=backend)
    profile = session.profile(steps=2)
    bound = session.programs.executor(Mode.TRAIN, 4).bound
    assert len(profile.nodes) == len(bound)
    assert sum(node.flops for node in profile.nodes) == sum(
        node.op.flops([known_type(t) for t in node.inputs], [t.type for t in node.outputs])
        for node, _ in bound
    )
    assert sum(node.flops for node in profile.nodes) <= session.program.flops
    assert all(node.seconds > 0 and node.nbytes > 0 for node in profile.nodes)
    assert {node.engine for node in profile.nodes} == {backend}
    assert profile.step_seconds > 0


def session_within(share: float | None, backend: str) -> ct.TrainSession:
    """The small convolutional network, whole or within a share of the memory that it takes whole."""
    config = ct.TrainConfig(loss="mse", batch_size=8)
    whole = ct.TrainSession(cnn(), config, backend=backend)
    if share is None:
        return whole
    engine = whole.plan.memory["engine"]
    budget = int(share * (whole.plan.total_bytes - engine)) + engine + sum(whole.plan.besides.values())
    divided = ct.TrainSession(cnn(), config.replace(memory_budget=budget), backend=backend)
    assert isinstance(divided.programs.executor(Mode.TRAIN, 8), DividedExecutor)
    return divided


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("share", [None, 0.75])
def test_what_was_learned_stays(backend: str, share: float | None) -> None:
    plain, profiled = (session_within(share, backend) for _ in range(2))
    for number in range(4):
        if number == 2:
            profiled.profile(X, Y, steps=2)
        assert plain.train_step(X, Y).loss == profiled.train_step(X, Y).loss
    for name, value in plain.parameters.items():
        np.testing.assert_array_equal(profiled.parameters[name], value)


def test_parts_of_a_batch_are_counted_together() -> None:
    """Half the batch twice is the same arithmetic in convolutions."""
    whole, divided = (
        sum(
            node.flops
            for node in session_within(share, "reference").profile(steps=1).nodes
            if "CONV_2D" in node.name
        )
        for share in (None, 0.75)
    )
    assert whole == divided > 0


def test_the_table_shows_the_slowest_first() -> None:
    session = ct.TrainSession(mlp(), ct.TrainConfig(loss="mse", batch_size=4))
    profile = session.profile(steps=2)
    lines = str(profile).splitlines()
    slowest = max(profile.nodes, key=lambda node: node.seconds)
    assert lines[0].split() == ["node", "engine", "ms", "share", "GFLOP/s", "GB/s"]
    assert lines[2].startswith(slowest.name)
    assert lines[-1].endswith("a whole step")
    assert len(lines) == len(profile.nodes) + 4


def test_bad_calls_are_refused() -> None:
    session = ct.TrainSession(mlp(), ct.TrainConfig(loss="mse", batch_size=4))
    with pytest.raises(ConfigError, match="steps is 0"):
        session.profile(steps=0)
    with pytest.raises(DataError, match="x"):
        session.profile(np.zeros((4, 7), np.float32), np.zeros((4, 4), np.float32))


@pytest.mark.parametrize("backend", BACKENDS)
def test_lanes_of_a_frozen_beginning_count_together(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it runs whole or a few samples at a time on several threads, the work is the same."""
    config = ct.TrainConfig(loss="mse", batch_size=12, trainable=("last", 1))
    work = {}
    for cache in (prefix.CACHE_BYTES, 40_000):
        monkeypatch.setattr(prefix, "CACHE_BYTES", cache)
        session = ct.TrainSession(wide(), config, backend=backend, threads=2)
        profile = session.profile(steps=2)
        work[cache] = sum(node.flops for node in profile.nodes if node.name.startswith("CONV_2D"))
        assert all(node.engine == backend for node in profile.nodes)
    assert session.program.prefix is not None
    assert len(set(work.values())) == 1 and min(work.values()) > 0


def test_a_loss_over_several_axes_is_planned_and_timed() -> None:
    """Its means are taken over axes whose numbers decide the shapes."""
    graph = Graph("images", [new_input("image", 1, 6, 6, 3)])
    conv = make("CONV_2D", padding=Padding.SAME, stride_h=1, stride_w=1)
    image = graph.emit(conv, graph.inputs[0], weight("w", 4, 3, 3, 3), weight("b", 4), name="y")
    session = ct.TrainSession(finish(graph, image), ct.TrainConfig(loss="mse", batch_size=2))
    assert session.plan.flops > 0 and session.program.flops > 0
    assert sum(node.flops for node in session.profile(steps=1).nodes) > 0


@pytest.mark.skipif(not native.is_available(), reason="the native engine was not built")
def test_what_more_threads_do_not_speed_up_is_told_where_there_are_more() -> None:
    alone, both = (
        ct.TrainSession(cnn(), ct.TrainConfig(loss="mse", batch_size=4), threads=threads)
        for threads in (1, 2)
    )
    assert alone.profile(steps=1).serial is None
    before = both.parameters.flat()
    profile = both.profile(steps=1)
    assert profile.serial is not None
    assert 0 <= profile.serial <= 1
    assert profile.speedup(1) == 1
    assert 1 <= profile.speedup(4) <= 4
    assert "of one thread's work is serial, as 2 threads show" in str(profile)
    np.testing.assert_array_equal(both.parameters.flat(), before)


@pytest.mark.skipif(not native.is_available(), reason="the native engine was not built")
def test_what_an_engine_put_in_is_timed_and_named() -> None:
    """The gradient of a gate for whole images is split into a product and a sum, of which the file has neither."""
    graph = Graph("gate", [new_input("image", 1, 6, 6, 3)])
    conv = make("CONV_2D", padding=Padding.SAME, stride_h=1, stride_w=1)
    image = graph.emit(conv, graph.inputs[0], weight("w", 4, 3, 3, 3), weight("b", 4), name="image")
    gate = graph.emit(conv, graph.inputs[0], weight("v", 4, 6, 6, 3), weight("c", 4), name="gates")
    gate = graph.emit(make("LOGISTIC"), gate, name="gate")
    axes = constant(np.array([1, 2], np.int32), "axes")
    gate = graph.emit(make("MEAN", keep_dims=True), gate, axes, name="mean")
    session = ct.TrainSession(
        finish(graph, graph.emit(make("MUL"), image, gate, name="y")),
        ct.TrainConfig(loss="mse", batch_size=2),
    )
    nodes = session.profile(steps=1).nodes
    assert any(node.name.startswith("SUM_TO") for node in nodes)
    assert {node.engine for node in nodes} == {"native"}
