"""The memory plan: nothing overlaps while it lives, predictions hold, frozen beginnings and budgets change no number."""

from __future__ import annotations

import re
from pathlib import Path

import networks
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import circle_train as ct
from circle_train.compile import prefix
from circle_train.compile.compile import compile
from circle_train.compile.memory import place, plan_memory
from circle_train.compile.program import Mode
from circle_train.compile.thrift.budget import parse_bytes
from circle_train.ir import DType, Graph, Node, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ir.lifetimes import Block, lifetimes, live_bytes
from circle_train.losses.symbol import Symbol
from circle_train.model import Model
from circle_train.ops.attributes import Activation
from circle_train.ops.internal.fused import Fused

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
            assert apart or a.first > b.last or b.first > a.last


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
    budget = int(0.5 * whole.program.step_bytes) + engine
    small = ct.TrainSession(
        wide(),
        config.replace(memory_budget=budget + whole.plan.budget_bytes - whole.plan.total_bytes),
        backend=backend,
    )
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
    with pytest.raises(ct.ConfigError, match=r"memory_budget is '1KB', but a step needs \d+\.\d\d MB"):
        ct.TrainSession(wide(), config).prepare()


class SumOfSquares(ct.losses.Loss):
    """A loss of somebody's own, whole; what it inherits says nothing of how it is reduced."""

    def __call__(self, output: Symbol, target: Symbol) -> Symbol:
        return (output - target).square().sum()


custom, mse, sparse = ct.losses.custom, ct.losses.MeanSquaredError, ct.losses.SparseCategoricalCrossentropy

ADD_UP = {
    "sum of somebody's own": SumOfSquares(),
    "custom sum": custom(lambda o, t: (o - t).square().sum()),
    "custom mean": custom(lambda o, t: 1 - 2 * abs(o - t).mean()),
    "custom by sample": custom(lambda o, t: (o - t).square().mean(1), reduction="sum"),
    "sum of means": 0.5 * mse() - ct.losses.Huber(),
    "binary": ct.losses.BinaryCrossentropy(from_logits=True, pos_weight=2.0),
}

MIX = {
    "root of the mean": custom(lambda o, t: (o - t).square().mean().sqrt()),
    "largest of the batch": custom(lambda o, t: (o - t).square().max()),
    "products of samples": custom(lambda o, t: (o @ o.T).square().mean()),
    "less the batch's mean": custom(lambda o, t: (o - o.mean(0)).square().mean()),
    "asks for the batch's size": custom(lambda o, t: (o - t).square().sum() / o.shape[0]),
    "sum less a number": custom(lambda o, t: (o - t).square().sum() - 1),
    "sum and mean": mse() + mse("sum"),
    "unreduced": mse("none"),
}


def cut(loss: ct.losses.Loss, more: float = 0.01, **changes: object) -> ct.TrainSession:
    """A session whose budget is the least that it can do with, and so many MB."""
    config = ct.TrainConfig(loss=loss, optimizer=ct.optimizers.SGD(0.1), batch_size=12, **changes)  # type: ignore[arg-type]
    with pytest.raises(ct.ConfigError, match="but a step needs") as found:
        ct.TrainSession(wide(), config.replace(memory_budget=1), threads=1).prepare()
    least = re.search(r"needs ([\d.]+) MB", str(found.value))
    assert least is not None
    return ct.TrainSession(wide(), config.replace(memory_budget=f"{float(least[1]) + more}MB"), threads=1)


@pytest.mark.parametrize("name", [*ADD_UP, *MIX])
def test_a_budget_changes_no_gradient_whatever_the_loss(name: str) -> None:
    """A batch is cut only where the loss proves that its parts add up."""
    loss = {**ADD_UP, **MIX}[name]
    small = cut(loss)
    whole = ct.TrainSession(wide(), small.config.replace(memory_budget=None), threads=1)
    x, y = data(12)
    y = (y > 0).astype(np.float32) if name == "binary" else y
    np.testing.assert_allclose(small.train_step(x, y).loss, whole.train_step(x, y).loss, rtol=1e-5)
    for parameter, value in whole.parameters.trainable().items():
        np.testing.assert_allclose(small.parameters[parameter], value, rtol=1e-4, atol=1e-6)
    assert (small.plan.parts > 1) == (name in ADD_UP)


@pytest.mark.parametrize(
    "name", ["custom sum", "custom by sample", "root of the mean", "less the batch's mean"]
)
def test_a_loss_that_a_file_holds_is_cut_only_where_its_parts_add_up(name: str, tmp_path: Path) -> None:
    """As nodes of a graph, without the function that they were."""
    loss = {**ADD_UP, **MIX}[name]
    ct.TrainSession(wide(), cut(loss).config.replace(memory_budget=None)).export_circleplus(
        tmp_path / "p.circle"
    )
    model = ct.load(tmp_path / "p.circle")
    assert model.training is not None
    small, whole = (
        ct.TrainSession(model, model.training.replace(memory_budget=budget), threads=1)
        for budget in (cut(loss).config.memory_budget, None)
    )
    x, y = data(12)
    np.testing.assert_allclose(small.train_step(x, y).loss, whole.train_step(x, y).loss, rtol=1e-5)
    for parameter, value in whole.parameters.trainable().items():
        np.testing.assert_allclose(small.parameters[parameter], value, rtol=1e-4, atol=1e-6)
    assert (small.plan.parts > 1) == (name in ADD_UP)


def test_activations_in_halves_do_not_hide_what_mixes_samples() -> None:
    """The rounding of an operand stands between an operator and what it reads."""
    graph = Graph("normed", [networks.new_input("x", 1, 6)])
    x = graph.emit(networks.make("FULLY_CONNECTED"), graph.inputs[0], networks.weight("w", 6, 6), None)
    x = graph.emit(
        networks.make("SUB"),
        x,
        graph.emit(networks.make("MEAN", keep_dims=True), x, constant(np.array([0], np.int32))),
    )
    x = graph.emit(networks.make("FULLY_CONNECTED"), x, networks.weight("v", 5, 6), None)
    model = networks.finish(graph, x)
    config = ct.TrainConfig(loss="mse", batch_size=12, memory_budget=1, activations="bfloat16")
    with pytest.raises(ct.ConfigError, match="may mix the samples of a batch"):
        ct.TrainSession(model, config).prepare()


def test_the_first_of_several_outputs_takes_over_what_fits_it() -> None:
    """A joined node's other outputs may be of any size: whether memory fits is asked of the first alone."""
    graph = Graph("g", [Tensor("x", TensorType(DType.FLOAT32, (4, 8)))])
    x = graph.emit(networks.make("ABS"), graph.inputs[0])
    large, small = Tensor("large", x.type), Tensor("small", TensorType(DType.FLOAT32, (4,)))
    op = Fused("toy", (("x",),), (), (0, 0), (large.type, small.type), overwrites=(0,))
    graph.append(Node(op, [x], [large, small]))
    blocks, _ = lifetimes(graph, [large, small])
    assert blocks[large] is blocks[x]
    assert blocks[small] is not blocks[x]


def test_sums_of_gradients_are_the_optimizers_memory() -> None:
    """A step that adds gradients up holds one number for each of the parameters', whatever the rule; a plain one nothing."""
    model = networks.mlp()
    config = ct.TrainConfig(loss="mse", optimizer=ct.optimizers.SGD(0.1), batch_size=4)
    sizes = [
        compile(model.module.main, config, mode).bytes_by_class for mode in (Mode.TRAIN, Mode.ACCUMULATE)
    ]
    assert sizes[1]["optimizer"] == sizes[1]["trained parameters"] > sizes[0]["optimizer"]


def test_the_plan_of_a_batch_in_parts_names_the_engines() -> None:
    session = cut(mse())
    assert session.plan.parts > 1
    engines = {op.name: op.engine for op in session.plan.operators}
    assert engines["CONV_2D"] == engines["FULLY_CONNECTED"] == session.backend.name


def test_a_loss_that_cannot_be_cut_is_refused() -> None:
    loss = sparse(ignore_index=1)
    config = ct.TrainConfig(loss=loss, batch_size=12, memory_budget="60KB")
    with pytest.raises(ct.ConfigError, match="because the loss's MAXIMUM may mix the samples of a batch"):
        ct.TrainSession(wide(), config).prepare()


@pytest.mark.parametrize(
    ("text", "expected"), [("150MB", 150e6), ("1.5 GB", 1.5e9), ("64MiB", 64 << 20), ("7B", 7), (99, 99)]
)
def test_budgets_are_read(text: int | str, expected: float) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["much", "-3MB", "", "90", 0, -1, True])
def test_what_is_no_budget_is_refused(text: int | str) -> None:
    with pytest.raises(ct.ConfigError, match="memory_budget is"):
        parse_bytes(text)
