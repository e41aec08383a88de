"""One bit an element instead of an activation's output: where it applies, what it saves, that no bit changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import finish, make, new_input, weight
from test_backends import every_tier
from test_memory_measured import growth
from test_memory_sharing import trained

import circle_train as ct
from circle_train.backends import native
from circle_train.backends.native import Native, joining
from circle_train.backends.native.engine.abi import Tier
from circle_train.backends.native.fusion import masks
from circle_train.compile.compile import compile
from circle_train.compile.program import Mode, Program
from circle_train.ir import Graph, Node, Tensor
from circle_train.ir.graph import constant
from circle_train.model import Model
from circle_train.ops.attributes import Activation, Padding

pytestmark = pytest.mark.skipif(not native.is_available(), reason="the native engine was not built")
SAME = {"padding": Padding.SAME, "stride_h": 1, "stride_w": 1}
BATCH = 4


def only_vectors(name: str) -> bool:
    """Biases: their gradients read no activation."""
    return "/b" in name


def conv(graph: Graph, x: Tensor, name: str, width: int, kind: Activation = Activation.NONE) -> Tensor:
    w, b = weight(f"{name}/w", width, 3, 3, x.shape[-1]), weight(f"{name}/b", width)
    return graph.emit(make("CONV_2D", **SAME, fused_activation_function=kind), x, w, b, name=name)


def head(graph: Graph, x: Tensor) -> Model:
    axes = constant(np.array([1, 2], np.int32), "axes")
    x = graph.emit(make("MEAN", keep_dims=False), x, axes)
    return finish(
        graph, graph.emit(make("FULLY_CONNECTED"), x, weight("f/w", 4, x.shape[-1]), weight("f/b", 4))
    )


def fused(size: int = 19, width: int = 13) -> Model:
    """Activations in convolutions and sums, of each kind."""
    graph = Graph("fused", [new_input("image", 1, size, size, 3)])
    x = conv(graph, graph.inputs[0], "c0", width, Activation.RELU)
    y = conv(graph, x, "c1", width, Activation.RELU6)
    x = graph.emit(make("ADD", fused_activation_function=Activation.RELU), x, y)
    y = conv(graph, x, "c2", width, Activation.RELU_N1_TO_1)
    return head(graph, graph.emit(make("ADD"), x, y))


def alone(size: int = 19, width: int = 13) -> Model:
    """Activations as operators of their own, one seen through a view, one before a pool."""
    graph = Graph("alone", [new_input("image", 1, size, size, 3)])
    x = graph.emit(make("RELU"), conv(graph, graph.inputs[0], "c0", width))
    x = graph.emit(make("RELU_0_TO_1"), conv(graph, x, "c1", width))
    x = graph.emit(make("RESHAPE", new_shape=(-1, size, size, width)), x)
    x = graph.emit(make("RELU6"), conv(graph, x, "c2", width))
    pool = make("MAX_POOL_2D", padding=Padding.SAME, stride_h=2, stride_w=2, filter_height=3, filter_width=3)
    x = graph.emit(pool, x)
    return head(graph, graph.emit(make("RELU"), conv(graph, x, "c3", width)))


MODELS: dict[str, Callable[[], Model]] = {"fused": fused, "alone": alone}


@pytest.fixture(autouse=True)
def small_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masks, "LEAST", 1)


def without_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "PASSES", tuple(p for p in joining.PASSES if p is not masks.keep_bits))


def program_of(name: str, engine: Native, trainable: Any = only_vectors) -> tuple[ct.TrainConfig, Program]:
    config = ct.TrainConfig(
        loss="mse", optimizer=ct.optimizers.Adam(0.01), batch_size=BATCH, trainable=trainable
    )
    return config, compile(MODELS[name]().module.main, config, Mode.TRAIN, BATCH, engine)


def parts(node: Node) -> list[str]:
    return [part.op.name for part in getattr(node.op, "parts", [node])]


def count(program: Program, name: str) -> int:
    return sum(parts(node).count(name) for node in program.graph.nodes)


@every_tier
@pytest.mark.parametrize("name", MODELS)
def test_the_same_bits_in_less_memory(name: str, tier: Tier, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs, weights and slots of three steps, at any number of threads, with and without."""
    found = []
    for threads in (1, 2, 3, 8):
        config, program = program_of(name, Native(threads, tier))
        found.append(trained(program, config, Native(threads, tier)))
    without_bits(monkeypatch)
    config, plain = program_of(name, Native(2, tier))
    assert count(program, "ACTIVE_BITS") == count(program, "PASS_ACTIVE") == {"fused": 4, "alone": 3}[name]
    assert count(plain, "ACTIVE_BITS") == 0
    assert program.arena_bytes < 0.75 * plain.arena_bytes
    expected, states = trained(plain, config, Native(2, tier))
    for seen, arrays in found:
        for one, other in zip(seen, expected, strict=True):
            np.testing.assert_array_equal(one, other)
        for key, array in states.items():
            np.testing.assert_array_equal(arrays[key], array, err_msg=str(key))


def test_the_reference_runs_the_same_graph() -> None:
    """The joined graph, node by node in numpy."""
    from circle_train.backends.base import Reference

    for name in MODELS:
        config, program = program_of(name, Native(1))
        seen, arrays = trained(program, config, Native(1))
        expected, states = trained(program, config, Reference())
        for one, other in zip(seen, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
        for key, array in states.items():
            np.testing.assert_allclose(arrays[key], array, rtol=2e-3, atol=1e-4, err_msg=str(key))


@pytest.mark.parametrize("name", MODELS)
def test_what_lives_anyway_is_its_own_mask(name: str) -> None:
    """The gradient of the next weights reads the output; behind sums and means there is none."""
    _, program = program_of(name, Native(1), "all")
    kept = {t for node in program.graph.nodes if "ACTIVE_BITS" in parts(node) for t in node.inputs}
    late = {
        t
        for node in program.graph.nodes
        if any(part.startswith("GRADIENT") for part in parts(node))
        for t in node.inputs
    }
    assert count(program, "ACTIVE_BITS") == {"fused": 2, "alone": 1}[name] and not kept & late


def test_small_ones_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masks, "LEAST", 1 << 30)
    assert count(program_of("fused", Native(1))[1], "ACTIVE_BITS") == 0


def test_masks_of_products_are_bits_only_where_much_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two more passes over memory; those of elementwise gradients cost none and are bits in any case."""
    monkeypatch.setattr(masks, "WORTHWHILE", 0.0)
    assert count(program_of("fused", Native(1))[1], "ACTIVE_BITS") == 2
    monkeypatch.setattr(masks, "WORTHWHILE", 1.0)
    assert count(program_of("fused", Native(1))[1], "ACTIVE_BITS") == 4


def test_evaluation_keeps_no_bits() -> None:
    config = ct.TrainConfig(loss="mse", batch_size=BATCH)
    program = compile(fused().module.main, config, Mode.EVALUATE, BATCH, Native(1))
    assert count(program, "ACTIVE_BITS") == 0


def test_outputs_asked_for_stay() -> None:
    """What is read after the step lives anyway."""
    config = ct.TrainConfig(
        loss="mse", batch_size=BATCH, trainable=only_vectors, extra_outputs=["c0", "c1", "c2"]
    )
    program = compile(fused().module.main, config, Mode.TRAIN, BATCH, Native(1))
    assert count(program, "ACTIVE_BITS") == 1


def test_a_pool_without_activation_keeps_no_output() -> None:
    """Its places say it all; the pooled values were kept for a mask that there is none of."""
    graph = Graph("pooled", [new_input("image", 1, 16, 16, 3)])
    pool = make("MAX_POOL_2D", padding=Padding.VALID, stride_h=2, stride_w=2, filter_height=2, filter_width=2)
    x = graph.emit(pool, conv(graph, graph.inputs[0], "c", 8), name="pool")
    model = head(graph, x)
    program = compile(model.module.main, ct.TrainConfig(loss="mse", batch_size=2), Mode.TRAIN, 2, Native(1))
    pooled = next(n.outputs[0] for n in program.graph.nodes if n.op.name == "MAX_POOL_AND_PLACES")
    readers = [n for n in program.graph.nodes if pooled in n.inputs]
    assert [n.op.name for n in readers] == ["MEAN"]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's peak memory")
def test_what_is_saved_is_measured(tmp_path: Path) -> None:
    """Biases trained behind frozen convolutions, in a process of its own."""
    fused(64, 48).save(tmp_path / "fused.tflite")
    measured, predicted = growth(tmp_path / "fused.tflite", 32, trainable=["c0/b", "c1/b", "c2/b", "f/b"])
    activation = 32 * 64 * 64 * 48 * 4
    assert measured == pytest.approx(predicted, rel=0.03) and measured < 2.5 * activation
