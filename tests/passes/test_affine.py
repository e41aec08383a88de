"""Factors and summands of channels in the weights before them: the same results, fewer nodes."""

from __future__ import annotations

import networks
import numpy as np
import pytest
from networks import make, weight

import circle_train as ct
from circle_train.ir import Graph, Tensor
from circle_train.ops.attributes import Activation, Padding
from circle_train.passes.fold import fold_constants
from circle_train.passes.integers.affine import fold_into_products


def normed(graph: Graph, x: Tensor, name: str, act: Activation) -> Tensor:
    channels = x.shape[-1]
    scaled = graph.emit(make("MUL"), x, weight(f"{name}.s", channels))
    shift = weight(f"{name}.t", *(1,) * (x.type.rank - 1), channels, seed=1)
    return graph.emit(make("ADD", fused_activation_function=act), shift, scaled)


def network(act: Activation = Activation.RELU6) -> Graph:
    graph = Graph("normed", [networks.new_input("image", 2, 7, 6, 3)])
    same = {"padding": Padding.SAME, "stride_h": 1, "stride_w": 1}
    x = graph.emit(make("CONV_2D", **same), graph.inputs[0], weight("w", 20, 3, 3, 3), None)
    x = normed(graph, x, "first", act)
    x = graph.emit(make("DEPTHWISE_CONV_2D", **same), x, weight("d", 1, 3, 3, 20), weight("db", 20))
    x = normed(graph, x, "second", Activation.NONE)
    x = graph.emit(make("SUB"), x, weight("less", 1))
    x = graph.emit(make("RESHAPE", new_shape=(2, 840)), x)
    x = graph.emit(make("FULLY_CONNECTED"), x, weight("f", 5, 840), None)
    graph.outputs = [normed(graph, x, "third", Activation.TANH)]
    return graph


def test_nothing_of_a_normalisation_is_left() -> None:
    graph = network()
    fold_constants(graph)
    fold_into_products(graph)
    names = [node.op.name for node in graph.nodes]
    assert names == ["CONV_2D", "DEPTHWISE_CONV_2D", "RESHAPE", "FULLY_CONNECTED"]


def results(graph: Graph) -> np.ndarray:
    x = np.random.default_rng(0).normal(size=graph.inputs[0].shape).astype(np.float32)
    values = {graph.inputs[0]: x}
    for node in graph.nodes:
        given = [None if t is None else values[t] if t in values else t.data for t in node.inputs]
        values.update(zip(node.outputs, node.op.compute(given), strict=True))
    return values[graph.outputs[0]]


def test_the_results_are_the_same() -> None:
    plain, folded = network(), network()
    for graph in (plain, folded):
        fold_constants(graph)
    fold_into_products(folded)
    np.testing.assert_allclose(results(folded), results(plain), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("reason", ["read twice", "an output", "activated before", "of pixels"])
def test_what_is_more_than_a_factor_of_channels_stays(reason: str) -> None:
    graph = Graph("kept", [networks.new_input("image", 1, 4, 4, 3)])
    act = Activation.RELU if reason == "activated before" else Activation.NONE
    op = make("CONV_2D", fused_activation_function=act)
    y = graph.emit(op, graph.inputs[0], weight("w", 8, 1, 1, 3), None)
    factor = weight("s", 4, 1) if reason == "of pixels" else weight("s", 8)
    z = graph.emit(make("MUL"), y, factor)
    graph.outputs = [z]
    if reason == "read twice":
        graph.outputs = [graph.emit(make("ADD"), z, y)]
    if reason == "an output":
        graph.outputs = [z, y]
    before = len(graph.nodes)
    fold_constants(graph)
    fold_into_products(graph)
    assert len(graph.nodes) == before


def test_a_product_that_the_file_says_is_one_number_stays() -> None:
    """Shapes are a file's own words until a program is compiled."""
    graph = Graph("lies", [networks.new_input("x", 1, 2)])
    x = graph.emit(make("FULLY_CONNECTED"), graph.inputs[0], weight("w", 2, 2), None)
    graph.outputs = [graph.emit(make("ADD"), x, weight("b", 2))]
    x.type = x.type.with_shape(())
    fold_into_products(graph)
    assert [node.op.name for node in graph.nodes] == ["FULLY_CONNECTED", "ADD"]


def test_inference_of_a_model_with_running_statistics() -> None:
    """As InferenceSession runs it, natively and by numpy."""
    model = networks.finish(graph := network(), graph.outputs[0])
    x = np.random.default_rng(1).normal(size=graph.inputs[0].shape).astype(np.float32)
    native, reference = (ct.InferenceSession(model, backend=name)(x) for name in ("auto", "reference"))
    np.testing.assert_allclose(native, reference, rtol=2e-5, atol=2e-6)
