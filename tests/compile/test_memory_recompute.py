"""Results that are made again instead of kept: the same bits in less memory, and only where a budget asks for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import networks
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from networks import finish, make, new_input, weight
from test_backends import attention, residual
from test_memory_measured import growth
from test_memory_sharing import engine, every_backend, trained

import circle_train as ct
from circle_train.backends import native
from circle_train.compile.compile import compile
from circle_train.compile.program import Mode, Program
from circle_train.compile.thrift.recompute import recompute
from circle_train.compile.thrift.timeline import Timeline
from circle_train.compile.thrift.work import total_work
from circle_train.ir import Graph, Role, Tensor
from circle_train.ir.graph import constant
from circle_train.ir.node import BatchNorm, Dropout
from circle_train.ir.verify import verify
from circle_train.model import Model
from circle_train.ops.attributes import Activation, Padding

BATCH = 16

SAME = {"padding": Padding.SAME, "stride_h": 1, "stride_w": 1}


def batch_normed(graph: Graph, x: Tensor, name: str) -> Tensor:
    """As a converted file spells it: x·γ/σ + (β - γ·μ/σ)."""
    channels = x.shape[-1]
    gamma, beta = weight(f"{name}.gamma", channels), weight(f"{name}.beta", channels, seed=1)
    mean = constant(np.zeros(channels, np.float32), f"{name}.mean")
    variance = constant(np.ones(channels, np.float32), f"{name}.variance")
    mean.role = variance.role = Role.STATISTIC
    epsilon = constant(np.array([1e-3], np.float32), f"{name}.epsilon")
    shifted = graph.emit(make("ADD"), variance, epsilon)
    inverse = graph.emit(make("RSQRT"), shifted)
    scale = graph.emit(make("MUL"), inverse, gamma)
    shift = graph.emit(
        make("SUB"), beta, graph.emit(make("MUL"), gamma, graph.emit(make("MUL"), mean, inverse))
    )
    y = graph.emit(make("ADD"), graph.emit(make("MUL"), x, scale), shift, name=name)
    graph.nodes[-1].hint = BatchNorm(x, gamma, beta, mean, variance, epsilon, 0.9)
    return y


def normed(size: int = 12, width: int = 8, depth: int = 4) -> Model:
    """Convolutions with batch normalisation and RELU, the results of two blocks added."""
    graph = Graph("normed", [new_input("image", 1, size, size, 3)])
    x, channels, skip = graph.inputs[0], 3, None
    for i in range(depth):
        x = graph.emit(make("CONV_2D", **SAME), x, weight(f"w{i}", width, 3, 3, channels), None)
        x = graph.emit(make("RELU"), batch_normed(graph, x, f"bn{i}"))
        if skip is not None:
            x = graph.emit(make("ADD"), x, skip, name=f"sum{i}")
        channels, skip = width, None if skip is not None else x
    return _headed(graph, x)


def inverted(size: int = 12) -> Model:
    """Wide between narrow tensors, as MobileNets are: 1×1, depthwise, 1×1, and a sum."""
    graph = Graph("inverted", [new_input("image", 1, size, size, 4)])
    x = graph.inputs[0]
    six = {"fused_activation_function": Activation.RELU6}
    for i in range(4):
        wide = graph.emit(
            make("CONV_2D", **SAME, **six), x, weight(f"e{i}", 24, 1, 1, 4), weight(f"eb{i}", 24)
        )
        depthwise = make("DEPTHWISE_CONV_2D", **SAME, **six, depth_multiplier=1)
        wide = graph.emit(depthwise, wide, weight(f"d{i}", 1, 3, 3, 24), weight(f"db{i}", 24))
        narrow = graph.emit(make("CONV_2D", **SAME), wide, weight(f"p{i}", 4, 1, 1, 24), weight(f"pb{i}", 4))
        x = graph.emit(make("ADD"), narrow, x)
    return _headed(graph, x)


def dropping() -> Model:
    """Dense layers with GELU, LOGISTIC and dropout."""
    graph = Graph("dropping", [new_input("x", 1, 16)])
    x = graph.inputs[0]
    for i, name in enumerate(("GELU", "LOGISTIC", "GELU")):
        x = graph.emit(make("FULLY_CONNECTED"), x, weight(f"w{i}", 16, 16, seed=i), weight(f"b{i}", 16))
        x = graph.emit(make(name), x)
        x = graph.emit(make("RESHAPE", new_shape=(-1, 16)), x, name=f"drop{i}")
        graph.nodes[-1].hint = Dropout(0.25, None)
    return finish(graph, graph.emit(make("FULLY_CONNECTED"), x, weight("f", 4, 16), weight("fb", 4)))


def shared() -> Model:
    """One weight in every layer: it is updated only after the last gradient, and nothing may run again behind that."""
    graph = Graph("shared", [new_input("x", 1, 32)])
    x, w = graph.inputs[0], weight("w", 32, 32)
    for _ in range(6):
        x = graph.emit(make("GELU"), graph.emit(make("FULLY_CONNECTED"), x, w, None))
    return finish(graph, x)


def _headed(graph: Graph, x: Tensor) -> Model:
    axes = constant(np.array([1, 2], np.int32), "axes")
    x = graph.emit(make("MEAN", keep_dims=False), x, axes)
    return finish(graph, graph.emit(make("FULLY_CONNECTED"), x, weight("f", 4, x.shape[-1]), weight("fb", 4)))


MODELS: dict[str, Callable[[], Model]] = {
    function.__name__: function
    for function in (normed, inverted, dropping, shared, attention, residual, networks.cnn)
}


def program_of(
    name: str, backend: str, mode: Mode = Mode.TRAIN
) -> tuple[ct.TrainConfig, Callable[[], Program], Any]:
    """A program, compiled anew at each call."""
    model, chosen = MODELS[name](), engine(backend)
    config = ct.TrainConfig(
        loss="mse", optimizer=ct.optimizers.Adam(0.01), batch_size=BATCH, batch_norm="train", dropout=True
    )
    return config, lambda: compile(model.module.main, config, mode, BATCH, chosen), chosen


@every_backend
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("share", [0.75, 0.5, 0.0])
def test_made_again_to_the_bit(name: str, backend: str, share: float) -> None:
    """Losses, outputs, weights and optimizer slots of three steps, with and without."""
    config, new, chosen = program_of(name, backend)
    kept, thrifty = new(), new()
    limit = int(share * kept.arena_bytes)
    again = recompute(thrifty, limit)
    assert again.arena_bytes <= kept.arena_bytes
    assert bool(again.repeats) == (again.arena_bytes < kept.arena_bytes)
    expected, states = trained(kept, config, chosen)
    found, others = trained(again, config, chosen)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    assert others.keys() == states.keys()
    for key, array in states.items():
        np.testing.assert_array_equal(others[key], array, err_msg=str(key))


LINKS = ("GELU", "LOGISTIC", "RELU", "EXP_NEG", "RESHAPE", "SOFTMAX", "ADD", "MUL", "DENSE", "SHARED")


def tangled(links: list[tuple[str, int, int]]) -> Model:
    """Each link reads one or two of the results before it; weights are its own, or those of others like it."""
    graph = Graph("tangled", [new_input("x", 1, 8)])
    made, shared_weight = [graph.inputs[0]], weight("shared", 8, 8)
    for i, (name, first, second) in enumerate(links):
        a, b = made[first % len(made)], made[second % len(made)]
        if name in ("ADD", "MUL"):
            x = graph.emit(make("TANH"), graph.emit(make(name), a, b))
        elif name == "RESHAPE":
            x = graph.emit(make("RESHAPE", new_shape=(-1, 8)), a)
        elif name == "EXP_NEG":
            x = graph.emit(make("EXP"), graph.emit(make("NEG"), graph.emit(make("ABS"), a)))
        elif name in ("DENSE", "SHARED"):
            w = shared_weight if name == "SHARED" else weight(f"w{i}", 8, 8, seed=i)
            x = graph.emit(make("FULLY_CONNECTED", fused_activation_function=Activation.TANH), a, w, None)
        else:
            x = graph.emit(make(name), a)
        made.append(x)
    return finish(graph, graph.emit(make("FULLY_CONNECTED"), made[-1], weight("f", 4, 8), weight("fb", 4)))


link = st.tuples(st.sampled_from(LINKS), st.integers(0, 60), st.integers(0, 60))


@settings(deadline=None, max_examples=25)
@given(st.lists(link, min_size=4, max_size=25), st.sampled_from([0.8, 0.5, 0.0]))
def test_any_network_is_the_same_to_the_bit(links: list[tuple[str, int, int]], share: float) -> None:
    model = tangled(links)
    config = ct.TrainConfig(loss="mse", optimizer=ct.optimizers.Adam(0.01), batch_size=32)
    for backend in ("reference", *(["native"] if native.is_available() else [])):
        chosen = engine(backend)
        kept, thrifty = (compile(model.module.main, config, Mode.TRAIN, 32, chosen) for _ in range(2))
        again = recompute(thrifty, int(share * kept.arena_bytes))
        expected, states = trained(kept, config, chosen)
        found, others = trained(again, config, chosen)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
        for key, array in states.items():
            np.testing.assert_array_equal(others[key], array, err_msg=str(key))


@every_backend
@pytest.mark.parametrize(("name", "share"), [("normed", 0.7), ("inverted", 0.6), ("dropping", 0.75)])
def test_much_memory_for_little_work(name: str, backend: str, share: float) -> None:
    _, new, _ = program_of(name, backend)
    program = new()
    again = recompute(program, int(share * program.arena_bytes))
    assert again.arena_bytes <= share * program.arena_bytes
    assert total_work(again.repeats) < 0.25 * total_work(again.graph.nodes)


@pytest.mark.parametrize(
    ("name", "backend", "share"), [("dropping", "reference", 0.6), ("attention", "native", 0.75)]
)
def test_what_shares_a_block_is_dropped_together(name: str, backend: str, share: float) -> None:
    """A result and its view: making the one again must not read, and so keep, the other."""
    if backend == "native" and not native.is_available():
        pytest.skip("the native engine was not built")
    _, new, _ = program_of(name, backend)
    program = new()
    assert recompute(program, 1).arena_bytes <= share * program.arena_bytes


@pytest.mark.skipif(not native.is_available(), reason="the native engine was not built")
def test_big_products_run_once() -> None:
    """Normalised and activated again is cheap, convolved again is not, but for the first with its three channels."""
    config = ct.TrainConfig(loss="mse", batch_size=8, batch_norm="train")
    program = compile(normed(64, 32).module.main, config, Mode.TRAIN, 8, native.Native(2))
    again = recompute(program, int(0.7 * program.arena_bytes))
    assert again.arena_bytes <= 0.7 * program.arena_bytes
    names = {part.op.name for node in again.repeats for part in getattr(node.op, "parts", [node])}
    assert "NORMALISE_BY_BATCH" in names
    products = [node.inputs[0] for node in again.repeats if node.op.name == "CONV_2D"]
    assert all(x is not None and x.shape[-1] == 3 for x in products)
    assert total_work(again.repeats) < 0.1 * total_work(again.graph.nodes)


@pytest.mark.parametrize("name", ["normed", "attention", "residual"])
def test_what_more_than_the_least_allows_is_reached(name: str) -> None:
    """Choosing by what is asked for may end above it, where choosing for the least ends below."""
    _, new, _ = program_of(name, "reference")
    least, most = recompute(new(), 0).memory.nbytes, new().memory.nbytes
    for limit in range(least, most, (most - least) // 12):
        assert recompute(new(), limit).memory.nbytes <= limit


def test_what_fits_is_left_alone() -> None:
    _, new, _ = program_of("normed", "reference")
    program = new()
    assert recompute(program, program.arena_bytes) is program


def test_nothing_runs_again_behind_the_update_of_what_it_reads() -> None:
    """Every repeated node reads states as its original did: no writer in between."""
    for name in MODELS:
        _, new, _ = program_of(name, "reference")
        again = recompute(new(), 0)
        timeline = Timeline(again.graph)
        position = {node: step for step, node in enumerate(again.graph.nodes)}
        for node in again.repeats:
            for tensor in node.inputs:
                state = None if tensor is None else timeline.views.get(tensor, tensor).state
                assert state is None or all(step > position[node] for step in timeline.written.get(state, ()))


def test_accumulating_programs_make_again_too() -> None:
    _, new, _ = program_of("normed", "reference", Mode.ACCUMULATE)
    program = new()
    assert recompute(program, program.arena_bytes // 2).arena_bytes < 0.8 * program.arena_bytes


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists() or not native.is_available(),
    reason="needs Linux's peak memory and the native engine",
)
def test_the_budget_is_kept_as_measured(tmp_path: Path) -> None:
    """A network of some hundred megabytes, in a process of its own, with batch statistics."""
    model = tmp_path / "normed.circle"
    normed(64, 32, 6).save(model)
    _, whole = growth(model, 16, batch_norm="train")
    for share in (0.8, 0.7):
        budget = int(share * whole)
        measured, predicted = growth(model, 16, batch_norm="train", memory_budget=budget)
        assert predicted <= budget
        assert measured <= 1.03 * budget, f"{measured / 1e6:.1f} MB, {predicted / 1e6:.1f} planned"


def test_a_program_made_thrifty_leaves_the_old_one_as_it_was() -> None:
    """Its tensors are made by its own nodes, and neither graph reads the other's results."""
    config = ct.TrainConfig(loss="mse", batch_size=BATCH)
    whole = compile(normed().module.main, config)
    before = [(node, list(node.inputs), list(node.outputs)) for node in whole.graph.nodes]
    small = recompute(whole, whole.arena_bytes * 3 // 4)
    assert small is not whole and small.repeats
    assert before == [(node, list(node.inputs), list(node.outputs)) for node in whole.graph.nodes]
    for program in (whole, small):
        verify(program.graph)
        assert all(t.producer is node for node in program.graph.nodes for t in node.outputs)
    made = [{t for node in program.graph.nodes for t in node.outputs} for program in (whole, small)]
    assert not made[0] & made[1]
    assert not made[0] & {t for node in small.graph.nodes for t in node.inputs}
