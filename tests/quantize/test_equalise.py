"""Cross-layer equalisation: what the graph computes stays, and what it is for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from networks import finish, make, new_input, weight

import circle_train as ct
from circle_train.ir import Graph
from circle_train.ir.graph import constant
from circle_train.model import Model
from circle_train.ops.attributes import Activation, Padding
from circle_train.quantize.equalise import equalise

X = np.random.default_rng(0).normal(size=(32, 6, 6, 4)).astype(np.float32)


def uneven() -> Model:
    """Layers whose channels differ by orders of magnitude, which the next layer makes up for."""
    graph = Graph("net", [new_input("x", 1, 6, 6, 4)])
    spread = np.logspace(-2, 2, 8)
    rng = np.random.default_rng(1)
    first = constant((rng.normal(size=(8, 1, 1, 4)) * spread[:, None, None, None]).astype(np.float32), "w1")
    second = constant((rng.normal(size=(1, 3, 3, 8))).astype(np.float32), "w2")
    third = constant((rng.normal(size=(5, 1, 1, 8)) / spread).astype(np.float32), "w3")
    relu = {"padding": Padding.SAME, "fused_activation_function": Activation.RELU}
    y = graph.emit(make("CONV_2D", **relu), graph.inputs[0], first, weight("b1", 8), name="first")
    y = graph.emit(make("DEPTHWISE_CONV_2D", **relu), y, second, weight("b2", 8), name="second")
    y = graph.emit(make("CONV_2D", padding=Padding.SAME), y, third, weight("b3", 5), name="third")
    return finish(graph, y)


def test_the_graph_computes_what_it_did() -> None:
    model = uneven()
    before = ct.InferenceSession(model)(X)
    assert equalise(model.module.main) == 2
    after = ct.InferenceSession(model)(X)
    np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-4 * np.abs(before).max())


def test_uneven_channels_ship_better(tmp_path: Path) -> None:
    net, errors = ct.TrainSession(uneven(), ct.TrainConfig(batch_size=4, trainable="none")), {}
    expected = net.predict(X)
    for equal in (False, True):
        settings = ct.Int8(calibration=X, io="float32", equalize=equal, ranges="minmax")
        net.export(tmp_path / "x.tflite", quantize=settings)
        errors[equal] = np.abs(ct.InferenceSession(tmp_path / "x.tflite")(X) - expected).mean()
    assert errors[True] < 0.3 * errors[False]


def test_channels_of_zeros_stay() -> None:
    graph = Graph("net", [new_input("x", 1, 4)])
    w = np.eye(4, dtype=np.float32)
    w[2] = 0
    y = graph.emit(make("FULLY_CONNECTED"), graph.inputs[0], constant(w, "w1"), weight("b1", 4), name="y")
    z = graph.emit(make("FULLY_CONNECTED"), y, constant(w.T * 100, "w2"), weight("b2", 4), name="z")
    model = finish(graph, z)
    x = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    before = ct.InferenceSession(model)(x)
    assert equalise(model.module.main) == 1
    np.testing.assert_allclose(ct.InferenceSession(model)(x), before, rtol=1e-5, atol=1e-5)
