"""The memory plan: nothing overlaps while it lives, predictions hold, frozen beginnings and budgets change no number."""

from __future__ import annotations

import networks
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import circle_train as ct
from circle_train.ir import DType, Graph, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.model import Model
from circle_train.ops.attributes import Activation
from circle_train.train import prefix
from circle_train.train.budget import parse_bytes, step_bytes
from circle_train.train.compile import compile
from circle_train.train.memory import Block, live_bytes, place, plan_memory
from circle_train.train.program import Mode

spans = st.tuples(st.integers(1, 50), st.integers(0, 20), st.integers(0, 8))


@settings(deadline=None)
@given(st.lists(spans, max_size=30))
def test_blocks_that_live_together_do_not_overlap(items: list[tuple[int, int, int]]) -> None:
    blocks = [Block(64 * size, first, first + length) for size, first, length in items]
    total = place(blocks)
    for i, a in enumerate(blocks):
        assert a.offset + a.nbytes <= total
        for b in blocks[:i]:
            apart = a.offset + a.nbytes <= b.offset or b.offset + b.nbytes <= a.offset
            assert apart or not a.overlaps(b)


@pytest.mark.parametrize("make", [networks.mlp, networks.cnn, networks.two_headed])
def test_a_program_fits_what_must_live_at_once(make: object) -> None:
    """The arena is never smaller than the fullest moment, and little larger."""
    model: Model = make()  # type: ignore[operator]
    program = compile(model.module.main, ct.TrainConfig(loss="mse", batch_size=16), Mode.TRAIN, 16)
    most = max(live_bytes(program.graph))
    assert most <= program.memory.nbytes <= 1.25 * most


def test_an_elementwise_result_takes_over_its_dying_operand() -> None:
    graph = Graph("chain", [networks.new_input("x", 4, 64)])
    tensor = graph.inputs[0]
    for _ in range(5):
        tensor = graph.emit(networks.make("EXP"), tensor)
    plan = plan_memory(graph, [tensor])
    assert len(plan.blocks) == 1 and plan.nbytes == 4 * 64 * 4


def test_an_operand_that_another_one_views_is_not_overwritten() -> None:
    """x·view(x): writing the result over x would change what is still read through the view."""
    graph = Graph("alias", [Tensor("x", TensorType(DType.FLOAT32, (8, 8)))])
    x = graph.emit(networks.make("EXP"), graph.inputs[0])
    column = graph.emit(networks.make("RESHAPE", new_shape=(8, 1, 8)), x)
    graph.outputs = [graph.emit(networks.make("MUL"), x, column)]
    plan = plan_memory(graph, graph.outputs)
    assert plan.block_of[graph.outputs[0]] is not plan.block_of[x]


def wide() -> Model:
    """Large images at first, small features later, as image classifiers are."""
    graph = Graph("wide", [networks.new_input("image", 1, 16, 16, 3)])
    relu = networks.make("CONV_2D", fused_activation_function=Activation.RELU, stride_h=2, stride_w=2)
    x = graph.emit(
        relu, graph.inputs[0], networks.weight("c0", 32, 3, 3, 3), networks.weight("b0", 32), name="c0"
    )
    x = graph.emit(relu, x, networks.weight("c1", 8, 3, 3, 32), networks.weight("b1", 8), name="c1")
    axes = constant(np.array([1, 2], np.int32))
    x = graph.emit(networks.make("MEAN", keep_dims=False), x, axes, name="mean")
    x = graph.emit(
        networks.make("FULLY_CONNECTED"), x, networks.weight("f", 4, 8), networks.weight("fb", 4), name="f"
    )
    return networks.finish(graph, x)


def data(count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    return rng.normal(size=(count, 16, 16, 3)).astype(np.float32), rng.normal(size=(count, 4)).astype(
        np.float32
    )


def losses(session: ct.TrainSession, batch: int, steps: int = 4) -> list[float]:
    return [session.train_step(*data(batch)).loss for _ in range(steps)]


@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_a_frozen_beginning_in_parts_gives_the_same(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = ct.TrainConfig(loss="mse", batch_size=12, trainable=("last", 1))
    whole = ct.TrainSession(wide(), config, backend=backend)
    expected = losses(whole, 12)
    assert whole.program.prefix is None
    monkeypatch.setattr(prefix, "CACHE_BYTES", 40_000)
    parts = ct.TrainSession(wide(), config, backend=backend)
    assert losses(parts, 12) == pytest.approx(expected, rel=1e-5)
    found = parts.program.prefix
    assert found is not None and 12 % found.program.batch_size == 0 and found.program.batch_size < 12
    assert parts.program.arena_bytes < 0.8 * whole.program.arena_bytes
    x, y = data(12)
    assert parts.eval_step(x, y).loss == pytest.approx(whole.eval_step(x, y).loss, rel=1e-5)
    np.testing.assert_allclose(parts.predict(x), whole.predict(x), rtol=1e-5)


@pytest.mark.parametrize("backend", ["reference", "auto"])
@pytest.mark.parametrize("loss", ["mse", ct.losses.MeanSquaredError("sum"), "categorical_crossentropy"])
def test_a_budget_is_kept_and_changes_no_loss(backend: str, loss: object) -> None:
    config = ct.TrainConfig(loss=loss, batch_size=12)  # type: ignore[arg-type]
    whole = ct.TrainSession(wide(), config, backend=backend)
    expected = losses(whole, 12)
    engine = whole.plan.memory["engine"]
    budget = int(0.5 * step_bytes(whole.program, accumulates=False)) + engine
    small = ct.TrainSession(wide(), config.replace(memory_budget=budget), backend=backend)
    assert losses(small, 12) == pytest.approx(expected, rel=1e-4)
    assert small.plan.total_bytes <= budget
    x, y = data(12)
    outputs = whole.eval_step(x, y).outputs[0]
    np.testing.assert_allclose(small.train_step(x, y).outputs[0], outputs, rtol=1e-3, atol=1e-5)
    for name, value in whole.parameters.items():
        if name not in small.parameters.trainable():
            np.testing.assert_array_equal(small.parameters[name], value)


def test_a_budget_that_suffices_changes_nothing() -> None:
    config = ct.TrainConfig(loss="mse", batch_size=12)
    small = ct.TrainSession(wide(), config.replace(memory_budget="1GB"))
    assert losses(small, 12) == losses(ct.TrainSession(wide(), config), 12)


def test_a_budget_that_nothing_fits_says_the_least() -> None:
    config = ct.TrainConfig(loss="mse", batch_size=12, memory_budget="1KB")
    with pytest.raises(ct.ConfigError, match=r"memory_budget is '1KB', but a step needs \d\.\d\d MB"):
        ct.TrainSession(wide(), config).prepare()


def test_a_loss_that_cannot_be_cut_is_refused() -> None:
    loss = ct.losses.SparseCategoricalCrossentropy(ignore_index=1)
    config = ct.TrainConfig(loss=loss, batch_size=12, memory_budget="60KB")
    with pytest.raises(ct.ConfigError, match="and the batch cannot be taken in parts, because"):
        ct.TrainSession(wide(), config).prepare()


@pytest.mark.parametrize(
    ("text", "expected"), [("150MB", 150e6), ("1.5 GB", 1.5e9), ("64MiB", 64 << 20), ("7", 7), (99, 99)]
)
def test_budgets_are_read(text: int | str, expected: float) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["much", "-3MB", "", 0, -1, True])
def test_what_is_no_budget_is_refused(text: int | str) -> None:
    with pytest.raises(ct.ConfigError, match="memory_budget is"):
        parse_bytes(text)
