"""Whole trainings on the native engine: as the specification has them, on any number of threads, interrupted."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import networks
import numpy as np
import pytest
from test_backends import attention, every_tier, residual

import circle_train as ct
from circle_train.backends import native
from circle_train.backends.base import Reference
from circle_train.backends.native import Native
from circle_train.backends.native.engine.abi import Tier
from circle_train.compile import prefix
from circle_train.compile.compile import compile
from circle_train.compile.program import Mode
from circle_train.errors import DataError
from circle_train.ir import DType, Graph, Node, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ir.tensor_type import Array
from circle_train.model import Model
from circle_train.ops.internal.gradient import NotFinite
from circle_train.ops.internal.sequence.operators import (
    Direction,
    OverSequence,
    SequenceGru,
    SequenceLstm,
    SequenceRnn,
)
from circle_train.runtime.executor import Executor
from circle_train.runtime.state import State

pytestmark = pytest.mark.skipif(not native.is_available(), reason="the native engine was not built")


def rms_norm() -> Model:
    """A norm between dense layers, its input read twice."""
    graph, make, weight = Graph("rms", [networks.new_input("x", 1, 6)]), networks.make, networks.weight
    x = graph.emit(make("FULLY_CONNECTED"), graph.inputs[0], weight("a", 17, 6), weight("ab", 17))
    normal = graph.emit(make("RMS_NORM"), x, weight("gamma", 17))
    x = graph.emit(make("ADD"), x, normal)
    return networks.finish(graph, graph.emit(make("FULLY_CONNECTED"), x, weight("b", 4, 17), weight("bb", 4)))


def grouped() -> Model:
    """A convolution whose outputs read half of the channels each."""
    graph, make, weight = (
        Graph("grouped", [networks.new_input("x", 1, 6, 5, 8)]),
        networks.make,
        networks.weight,
    )
    x = graph.emit(make("CONV_2D"), graph.inputs[0], weight("c", 12, 3, 3, 4), weight("cb", 12))
    x = graph.emit(make("MEAN"), x, constant(np.array((1, 2), np.int32)))
    return networks.finish(graph, graph.emit(make("FULLY_CONNECTED"), x, weight("f", 4, 12), weight("fb", 4)))


def sequence(op: OverSequence) -> Model:
    """What all steps say, and the last states, of samples that are sequences."""
    directions, rows = len(op.direction.backwards), op.gates * 9
    graph, make, weight = (
        Graph("sequence", [networks.new_input("x", 1, 6, 5)]),
        networks.make,
        networks.weight,
    )
    x = graph.emit(make("TRANSPOSE"), graph.inputs[0], constant(np.array((1, 0, 2), np.int32)))
    weights = (
        weight("w", directions, rows, 5),
        weight("r", directions, rows, 9),
        weight("rb", directions, 2 * rows),
    )
    steps, last, *_ = graph.emit_all(op, x, *weights)
    mean = graph.emit(make("MEAN"), steps, constant(np.array((0, 1), np.int32)))
    x = graph.emit(make("ADD"), mean, graph.emit(make("SUM"), last, constant(np.array([0], np.int32))))
    return networks.finish(graph, graph.emit(make("FULLY_CONNECTED"), x, weight("f", 4, 9), weight("fb", 4)))


BOTH_WAYS = SequenceLstm(Direction.BIDIRECTIONAL, ("Sigmoid", "Tanh", "Tanh") * 2)

MODELS = {
    "lstm": lambda: sequence(BOTH_WAYS),
    "gru": lambda: sequence(SequenceGru(Direction.REVERSE, linear_before_reset=True)),
    "rnn": lambda: sequence(SequenceRnn(functions=("Relu",))),
    "mlp": networks.mlp,
    "cnn": networks.cnn,
    "grouped": grouped,
    "residual": residual,
    "attention": attention,
    "rms_norm": rms_norm,
}

OPTIMIZERS = {
    "sgd": ct.optimizers.SGD(0.05, weight_decay=0.01),
    "momentum": ct.optimizers.SGD(0.05, momentum=0.9),
    "nesterov": ct.optimizers.SGD(0.05, momentum=0.9, nesterov=True),
    "adam": ct.optimizers.Adam(0.01),
    "adamw": ct.optimizers.AdamW(0.01),
    "adamw_ort": ct.optimizers.AdamW(0.01, style="ort"),
    "clipped": ct.optimizers.Adam(0.01, clip_norm=0.1),
    "limited": ct.optimizers.SGD(0.05, clip_value=0.01),
    "limited_and_clipped": ct.optimizers.SGD(0.05, momentum=0.9, clip_value=0.05, clip_norm=0.1),
    "rmsprop": ct.optimizers.RMSprop(0.01, weight_decay=0.01),
    "centered": ct.optimizers.RMSprop(0.01, centered=True, epsilon=1e-3),
    "rmsprop_momentum": ct.optimizers.RMSprop(0.01, momentum=0.9),
    "centered_momentum": ct.optimizers.RMSprop(0.01, momentum=0.9, centered=True, epsilon=1e-3),
    "adagrad": ct.optimizers.Adagrad(0.05, weight_decay=0.01),
}


def batch(model: Model, size: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(3)
    tensor = model.module.main.inputs[0]
    shape = (size, *tensor.shape[1:])
    x = (
        rng.integers(0, 20, shape)
        if tensor.dtype is DType.INT64
        else rng.normal(size=shape).astype(np.float32)
    )
    outputs = model.module.main.outputs[0].shape[-1]
    return x, np.eye(outputs, dtype=np.float32)[rng.integers(0, outputs, size)]


def trained(
    model: Model, config: ct.TrainConfig, engine: Any, steps: int = 3
) -> tuple[list[float], dict[str, Array]]:
    """Losses and parameters after some steps."""
    program = compile(model.module.main, config, Mode.TRAIN, config.batch_size, engine)
    state = State(program.parameters, config.rule.base_learning_rate)
    executor = Executor(program, state, engine)
    x, y = batch(model, config.batch_size)
    losses = []
    for _ in range(steps):
        state.set_scalars(config.rule)
        executor.run({program.inputs[0]: x, program.targets[0]: y})
        state.step += 1
        assert program.loss is not None
        losses.append(float(executor[program.loss]))
    if isinstance(engine, Native):
        assert not [str(node) for node, name in executor.engines.items() if name != "native"]
    return losses, {p.name: np.array(state.value(p.name)) for p in program.trained}


class Joined(Reference):
    """The specification of the graph that the native engine runs."""

    def __init__(self, engine: Native) -> None:
        super().__init__()
        self.engine = engine

    def recognise(self, graph: Graph, keep: Sequence[Tensor]) -> None:
        self.engine.recognise(graph, keep)

    def fuse(self, graph: Graph, keep: Sequence[Tensor]) -> None:
        self.engine.fuse(graph, keep)


def same(first: dict[str, Array], second: dict[str, Array], tolerance: float) -> None:
    for name, value in first.items():
        np.testing.assert_allclose(second[name], value, rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("rule", OPTIMIZERS)
def test_training_is_as_specified(name: str, rule: str) -> None:
    """Natively, by numpy on the joined graph, and by numpy on the plain one."""
    model = MODELS[name]()
    loss = "mse" if name == "mlp" else "categorical_crossentropy"
    config = ct.TrainConfig(loss=loss, optimizer=OPTIMIZERS[rule], batch_size=2 if name == "attention" else 5)
    engine = Native(2)
    losses, values = trained(model, config, Reference())
    for other in (Joined(engine), engine):
        other_losses, other_values = trained(model, config, other)
        np.testing.assert_allclose(other_losses, losses, rtol=1e-5)
        # Where a gradient vanishes but for rounding, Adam still takes a whole step in its direction.
        same({k: v for k, v in values.items() if k != "kb"}, other_values, 2e-4)


@every_tier
@pytest.mark.parametrize("name", MODELS)
def test_any_number_of_threads_gives_the_same_bits(name: str, tier: Tier) -> None:
    config = ct.TrainConfig(loss="mse", batch_size=2 if name == "attention" else 7)
    results = [trained(MODELS[name](), config, Native(threads, tier)) for threads in (1, 2, 3, 8)]
    for losses, values in results[1:]:
        assert losses == results[0][0]
        assert all((values[key] == value).all() for key, value in results[0][1].items())


def test_a_step_is_one_call() -> None:
    """Nothing is left to Python between the first kernel and the last."""
    for name, make in MODELS.items():
        config = ct.TrainConfig(loss="mse", batch_size=2 if name == "attention" else 4)
        model, engine = make(), Native(1)
        program = compile(model.module.main, config, Mode.TRAIN, config.batch_size, engine)
        assert len(Executor(program, State(program.parameters, 0.1), engine).steps) == 1


def test_an_index_outside_the_table_is_refused() -> None:
    node = Node(
        networks.make("GATHER"), [networks.weight("t", 4, 3), Tensor("i", TensorType(DType.INT32, (2,)))], []
    )
    node.outputs = [Tensor("y", TensorType(DType.FLOAT32, (2, 3)))]
    for index in (4, -5, 1 << 30):
        step = Native(1).bind(
            node,
            [np.ones((4, 3), np.float32), np.array([0, index], np.int32)],
            [np.zeros((2, 3), np.float32)],
        )
        assert step is not None
        with pytest.raises(DataError, match=r"GATHER.*outside its range"):
            step()


def test_a_loss_that_is_no_number_changes_nothing() -> None:
    model, engine = residual(), Native(2)
    config = ct.TrainConfig(loss="mse", batch_size=3)
    program = compile(model.module.main, config, Mode.TRAIN, 3, engine)
    state = State(program.parameters, 0.1)
    executor = Executor(program, state, engine)
    before = {p.name: state.value(p.name).copy() for p in program.trained}
    x, y = batch(model, 3)
    x[0] = np.nan
    with pytest.raises(NotFinite):
        executor.run({program.inputs[0]: x, program.targets[0]: y})
    assert all((state.value(name) == value).all() for name, value in before.items())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_trains_on() -> None:
    config = ct.TrainConfig(loss="mse", batch_size=64)
    model, engine = residual(), Native(3)
    expected = trained(model, config, engine)[0]
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, repr(trained(model, config, engine)[0]).encode())
        finally:
            os._exit(0)
    os.close(writing)
    found = os.read(reading, 1000).decode()
    os.close(reading)
    os.waitpid(child, 0)
    assert found == repr(expected)


def test_sessions_in_several_python_threads_do_not_meet() -> None:
    """Each with an engine of its own, and all with one."""
    config = ct.TrainConfig(loss="mse", batch_size=33)
    expected = trained(residual(), config, Native(2))[0]
    shared = Native(2)
    for engines in ([Native(2) for _ in range(4)], [shared] * 4):
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda engine: trained(residual(), config, engine)[0], engines))
        assert found == [expected] * 4


def test_a_frozen_beginning_side_by_side_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many threads take its parts."""
    monkeypatch.setattr(prefix, "CACHE_BYTES", 20_000)
    config = ct.TrainConfig(loss="mse", batch_size=12, trainable=("last", 1))
    results = []
    for threads in (1, 2, 3, 8):
        session = ct.TrainSession(residual(), config, threads=threads, backend="native")
        x, y = batch(residual(), 12)
        losses = [session.train_step(x, y).loss for _ in range(3)]
        found = session.program.prefix
        assert found is not None and found.lanes == min(threads, 12 // found.program.batch_size)
        results.append((losses, session.parameters.flat().tobytes()))
    assert results == [results[0]] * 4


def test_what_is_asked_for_by_name_survives_joining() -> None:
    """A tensor inside a formula that kernels know as one, and one that a product would have swallowed."""
    model = attention()
    inner = [
        node.outputs[0].name for node in model.module.main.nodes if node.op.name in ("RSQRT", "MUL", "ADD")
    ]
    config = ct.TrainConfig(loss="mse", batch_size=2, extra_outputs=inner)
    x, y = batch(model, 2)
    plain, joined = (ct.TrainSession(model, config, backend=name) for name in ("reference", "native"))
    expected, found = plain.train_step(x, y).extra, joined.train_step(x, y).extra
    assert set(found) == set(inner)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5, err_msg=name)
