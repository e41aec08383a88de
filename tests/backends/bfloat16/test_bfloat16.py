"""Bfloat16 activations: rounding, half the memory, the same numbers from every engine, and gradients that stay close."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networks
import numpy as np
import pytest
from bfloat16_nets import (
    IMAGES,
    LABELS,
    NETS,
    config_of,
    distance,
    engine_of,
    every_net,
    gradients_of,
    inverted_residual,
    needs_native,
    normal,
    session_of,
)
from networks import make, weight

import circle_train as ct
from circle_train.backends.base import Reference
from circle_train.backends.native import Native
from circle_train.backends.native.engine.abi import Tier
from circle_train.cli.main import main
from circle_train.compile import compile as compiling
from circle_train.compile.program import Mode
from circle_train.errors import ConfigError
from circle_train.ir import DType, Graph
from circle_train.ir.tensor_type import Array
from circle_train.model import Model
from circle_train.ops.internal.bfloat16 import narrowed, widened
from circle_train.runtime.executor import Executor
from circle_train.runtime.state import State


@every_net
@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_storing_loses_nothing(net: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what is rounded already is narrowed: without that, the same bits."""
    stored = session_of(net, backend=backend)
    kinds = {t.dtype for t in stored.program.graph.all_tensors()}
    assert DType.UINT16 in kinds
    losses = [stored.train_step(NETS[net][1], LABELS).loss for _ in range(3)]
    monkeypatch.setattr(compiling, "store", lambda *_: None)
    plain = session_of(net, backend=backend)
    assert DType.UINT16 not in {t.dtype for t in plain.program.graph.all_tensors()}
    assert [plain.train_step(NETS[net][1], LABELS).loss for _ in range(3)] == losses
    for name, value in plain.parameters.items():
        assert value.tobytes() == stored.parameters[name].tobytes(), name


@needs_native
@every_net
def test_engine_computes_what_its_program_says(net: str) -> None:
    """The native program, joined nodes and all, once by its kernels and once in numpy, node by node."""
    found = []
    for engine in (Native(2), Reference()):
        state = None
        program = compiling.compile(NETS[net][0]().module.main, config_of(), Mode.TRAIN, 8, Native(2))
        state = State(program.parameters, 0.05)
        executor = Executor(program, state, engine)
        if isinstance(engine, Native):
            assert "reference" not in executor.engines.values()
        state.set_scalars(config_of().rule)
        before = {p.name: state.array(p.tensor).copy() for p in program.trained}
        executor.run({program.inputs[0]: NETS[net][1], program.targets[0]: LABELS})
        assert program.loss is not None
        moved = {p.name: state.array(p.tensor) - before[p.name] for p in program.trained}
        found.append((float(executor[program.loss].reshape(-1)[0]), moved))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-4)
    assert distance(found[0][1], found[1][1]) < 2e-3


@needs_native
@every_net
def test_engines_agree(net: str) -> None:
    native_, reference = (gradients_of(session_of(net, backend=b), net) for b in ("native", "reference"))
    assert distance(native_, reference) < 2e-3


@every_net
def test_gradients_stay_close_to_those_of_float32(net: str) -> None:
    exact, found = (gradients_of(session_of(net, kind), net) for kind in ("float32", "bfloat16"))
    assert 1e-4 < distance(found, exact) < 0.02


@needs_native
@every_net
def test_any_number_of_threads_gives_the_same_bits(net: str) -> None:
    first, *others = (session_of(net, threads=n) for n in (1, 2, 5))
    for session in (first, *others):
        for _ in range(2):
            session.train_step(NETS[net][1], LABELS)
    for session in others:
        for name, value in first.parameters.items():
            assert value.tobytes() == session.parameters[name].tobytes(), name


def deep() -> Model:
    """Twelve layers of one size: nearly all of the memory is what waits."""
    graph = Graph("deep", [networks.new_input("x", 1, 64)])
    gelu, x = make("GELU"), graph.inputs[0]
    for i in range(12):
        x = graph.emit(
            make("FULLY_CONNECTED"), x, weight(f"{i}/w", 64, 64), weight(f"{i}/b", 64), name=f"fc{i}"
        )
        x = graph.emit(gelu, x, name=f"gelu{i}")
    return networks.finish(graph, x)


@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_what_waits_takes_half_the_memory(backend: str) -> None:
    def plan(activations: str) -> Any:
        config = ct.TrainConfig("mse", batch_size=256, activations=activations)
        return ct.TrainSession(deep(), config, backend=backend).plan

    halves, whole = plan("bfloat16"), plan("float32")
    assert halves.memory["arena"] < 0.6 * whole.memory["arena"]
    assert "wait for the backward pass" in str(halves)
    assert not whole.bfloat16


@every_net
def test_small_models_need_less_too(net: str) -> None:
    halves, whole = (session_of(net, kind).plan for kind in ("bfloat16", "float32"))
    assert halves.memory["arena"] < 0.9 * whole.memory["arena"]


@every_net
def test_evaluation_and_prediction_are_float32(net: str) -> None:
    halves, whole = (session_of(net, kind) for kind in ("bfloat16", "float32"))
    x = NETS[net][1]
    np.testing.assert_array_equal(halves.predict(x), whole.predict(x))
    assert halves.eval_step(x, LABELS).loss == whole.eval_step(x, LABELS).loss


@every_net
def test_training_learns(net: str) -> None:
    session = session_of(net, optimizer=ct.optimizers.Adam(5e-3))
    losses = [session.train_step(NETS[net][1], LABELS).loss for _ in range(40)]
    assert losses[-1] < 0.2 * losses[0]


def test_agrees_with_torch_rounding_at_the_same_places() -> None:
    """Two dense layers in torch with what is kept, and what is multiplied, rounded by torch's own bfloat16."""
    torch = pytest.importorskip("torch")
    model, x = networks.mlp(40, 1024, 5, softmax=False), normal(8, 40)
    session = ct.TrainSession(model, config_of())
    found = gradients_of_mlp(session, x)

    def rounded_(t: Any) -> Any:
        return t.bfloat16().float()

    w0, b0, w1, b1 = (
        torch.tensor(np.array(session.parameters[n])) for n in ("fc0/w", "fc0/b", "fc1/w", "fc1/b")
    )
    inner = rounded_(torch.relu(rounded_(torch.tensor(x)) @ rounded_(w0).T + b0))
    z = inner @ rounded_(w1).T + b1
    dz = (torch.softmax(z, 1) - torch.tensor(LABELS)) / 8
    dinner = (rounded_(dz) @ rounded_(w1)) * (inner > 0)
    expected = {
        "fc1/w": rounded_(dz).T @ inner,
        "fc1/b": dz.sum(0),
        "fc0/w": rounded_(dinner).T @ rounded_(torch.tensor(x)),
        "fc0/b": dinner.sum(0),
    }
    assert distance(found, {name: g.numpy() for name, g in expected.items()}) < 2e-4


def gradients_of_mlp(session: ct.TrainSession, x: Array) -> dict[str, Array]:
    session.train_step(x, LABELS, update=False, accumulate=True)
    return dict(session.gradients.items())


def test_a_softplus_far_below_zero_keeps_its_gradient() -> None:
    """Of 1 + e^z a bfloat16 keeps nothing but the 1; behind the logarithm was 0, and behind that no gradient."""
    graph = Graph("softplus", [networks.new_input("x", 1, 40)])
    bias = networks.constant(np.full(1024, -7, np.float32), "b")
    z = graph.emit(make("FULLY_CONNECTED"), graph.inputs[0], weight("w", 1024, 40), bias, name="z")
    more = graph.emit(make("ADD"), graph.emit(make("EXP"), z), networks.constant(np.float32(1), "one"))
    size = graph.emit(make("ABS"), graph.emit(make("LOG"), more))
    model = networks.finish(
        graph, graph.emit(make("FULLY_CONNECTED"), size, weight("v", 5, 1024), weight("c", 5), name="y")
    )
    found, expected = (
        gradients_of_mlp(ct.TrainSession(model, config_of(kind)), normal(8, 40))
        for kind in ("bfloat16", "float32")
    )
    assert np.linalg.norm(found["w"] - expected["w"]) < 0.02 * np.linalg.norm(expected["w"])


# Together with everything else


def test_gradient_accumulation_sums(tmp_path: Path) -> None:
    session = session_of("inverted_residual")
    once = gradients_of(session, "inverted_residual")
    session.train_step(IMAGES, LABELS, update=False, accumulate=True)
    for name, value in session.gradients.items():
        np.testing.assert_allclose(value, 2 * once[name], rtol=1e-6, atol=1e-7)


def test_fits_a_budget() -> None:
    whole = session_of("inverted_residual")
    budget = int(whole.plan.budget_bytes - 0.3 * whole.plan.memory["arena"])
    thrifty = session_of("inverted_residual", memory_budget=budget)
    for _ in range(2):
        loss = thrifty.train_step(IMAGES, LABELS).loss
        assert loss == pytest.approx(whole.train_step(IMAGES, LABELS).loss, rel=1e-2)
    assert thrifty.plan.total_bytes <= budget
    assert thrifty.plan.parts > 1 or thrifty.plan.repeats


def test_a_frozen_beginning_stays_float32() -> None:
    """What no gradient passes through is computed as the file has it; its result waits as bfloat16."""
    halves, whole = (
        session_of("inverted_residual", kind, trainable=("last", 4)) for kind in ("bfloat16", "float32")
    )
    assert {type(n.op).__name__ for n in halves.program.operators[:5]} & {"RoundedConv2D"} == set()
    exact = gradients_of(whole, "inverted_residual")
    assert distance(gradients_of(halves, "inverted_residual"), exact) < 0.02


def test_training_resumes_from_a_checkpoint(tmp_path: Path) -> None:
    session = session_of("inverted_residual", optimizer="adam")
    session.train_step(IMAGES, LABELS)
    session.save_checkpoint(tmp_path / "c.safetensors")
    again = session_of("inverted_residual", optimizer="adam")
    again.load_checkpoint(tmp_path / "c.safetensors")
    assert session.train_step(IMAGES, LABELS).loss == again.train_step(IMAGES, LABELS).loss
    for name, value in session.parameters.items():
        assert value.tobytes() == again.parameters[name].tobytes()


def test_the_setting_is_part_of_circleplus(tmp_path: Path) -> None:
    inverted_residual().with_training(config_of()).save(tmp_path / "plus.circle")
    config = ct.load(tmp_path / "plus.circle").training
    assert config is not None and config.activations is ct.TrainConfig(activations="bfloat16").activations


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="activations is 'float16', expected 'float32' or 'bfloat16'"):
        ct.TrainConfig(activations="float16")


def test_exported_models_are_float32(tmp_path: Path) -> None:
    halves, whole = (session_of("inverted_residual", kind) for kind in ("bfloat16", "float32"))
    for session, name in ((halves, "a"), (whole, "b")):
        session.export(tmp_path / f"{name}.circle")
    assert (tmp_path / "a.circle").read_bytes() == (tmp_path / "b.circle").read_bytes()


def test_widening_is_exact() -> None:
    numbers = np.arange(1 << 16, dtype=np.uint16)
    finite = ~np.isnan(widened(numbers)) & (numbers & 0x7F80 != 0)
    np.testing.assert_array_equal(narrowed(widened(numbers))[finite], numbers[finite])


@needs_native
def test_the_plan_says_what_the_processor_has() -> None:
    session = session_of("inverted_residual")
    has = session.backend.has_bfloat16_products
    assert ("the processor's own instruction" in session.plan.bfloat16) is has
    assert not engine_of(Tier.AVX2).has_bfloat16_products


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    networks.mlp(40, 1024, 5).save(tmp_path / "m.circle")
    np.save(tmp_path / "x.npy", normal(8, 40))
    np.save(tmp_path / "y.npy", LABELS)
    files = ["--input", str(tmp_path / "x.npy"), "--expected", str(tmp_path / "y.npy"), "--epochs", "1"]
    loss = ["--loss", "categorical_crossentropy", "--batch-size", "8", "--activations", "bfloat16"]
    plus = ["--export-circleplus", str(tmp_path / "plus.circle")]
    assert main(["train", str(tmp_path / "m.circle"), *files, *loss, *plus]) == 0
    config = ct.load(tmp_path / "plus.circle").training
    assert config is not None and config.activations.value == "bfloat16"
    assert main(["check", str(tmp_path / "m.circle"), "--activations", "bfloat16"]) == 0
    assert "bfloat16 activations" in capsys.readouterr().out
