"""QuantizeLinear and DequantizeLinear pairs in training: per tensor and per channel, weights learn through them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import circle_train as ct

onnx = pytest.importorskip("onnx")
X = np.random.default_rng(0).uniform(-5, 5, (6, 4)).astype(np.float32)
W = np.random.default_rng(1).uniform(-1, 1, (3, 4)).astype(np.float32)
SCALE, ZERO = np.float32(0.03), np.int8(5)
"""Of the activations; some of them lie outside what eight bits hold."""


def model_of(per_channel: bool, stored: bool = False) -> Any:
    """y = dequantized x times dequantized w; the weights quantised while running, or stored as integers."""
    from onnx import helper, numpy_helper

    scale = (np.abs(W).max(1) if per_channel else np.abs(W).max()) / np.float32(127)
    values = {
        "sx": SCALE,
        "zx": ZERO,
        "sw": scale,
        "zw": np.zeros(scale.shape, np.int8),
        "b": np.zeros(3, np.float32),
    }
    axis = {"axis": 0} if per_channel else {}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "sx", "zx"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "sx", "zx"], ["xd"]),
        helper.make_node("DequantizeLinear", ["wq", "sw", "zw"], ["wd"], **axis),
        helper.make_node("Gemm", ["xd", "wd", "b"], ["y"], transB=1),
    ]
    if stored:
        values["wq"] = np.rint(W / scale.reshape(-1, 1)).astype(np.int8)
    else:
        values["w"] = W
        nodes.insert(0, helper.make_node("QuantizeLinear", ["w", "sw", "zw"], ["wq"], **axis))
    ends = [[helper.make_tensor_value_info(name, 1, ["n", size])] for name, size in (("x", 4), ("y", 3))]
    weights = [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()]
    graph = helper.make_graph(nodes, "quantised", *ends, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def config(**changes: Any) -> ct.TrainConfig:
    loss = ct.losses.MeanSquaredError(reduction="sum_elements")
    return ct.TrainConfig(**({"loss": loss, "optimizer": ct.optimizers.SGD(1e-3), "batch_size": 6} | changes))


def rounded_weights(per_channel: bool) -> Any:
    scale = (np.abs(W).max(1, keepdims=True) if per_channel else np.abs(W).max()) / np.float32(127)
    return np.rint(W / scale) * scale


@pytest.mark.parametrize("per_channel", [False, True])
def test_gradients_pass_straight_through(per_channel: bool) -> None:
    """Also at ±127, where the largest weight stands; not where an activation is cut off."""
    session = ct.TrainSession(model_of(per_channel), config())
    assert set(session.parameters.trainable()) == {"w", "b"}
    steps = np.clip(np.rint(X / SCALE) + ZERO, -128, 127)
    assert (np.abs(steps) > 126).any()
    x, w = (steps - ZERO) * SCALE, rounded_weights(per_channel)
    np.testing.assert_allclose(session.predict(X), x @ w.T, rtol=1e-5, atol=1e-5)
    session.train_step(X, np.zeros((6, 3)), update=False, accumulate=True)
    np.testing.assert_allclose(session.gradients["w"], 2 * (x @ w.T).T @ x, rtol=1e-4)


def test_what_is_cut_off_gets_no_gradient() -> None:
    session = ct.TrainSession(model_of(False), config())
    session.parameters["w"] = np.where(np.arange(4) == 2, 1.5, W).astype(np.float32)
    session.train_step(X, np.ones((6, 3)), update=False, accumulate=True)
    assert not session.gradients["w"][:, 2].any() and session.gradients["w"][:, :2].all()


@pytest.mark.parametrize("per_channel", [False, True])
def test_training_export_and_package(per_channel: bool, tmp_path: Path) -> None:
    model = model_of(per_channel)
    session = ct.TrainSession(model, config())
    packed = ct.TrainSession(ct.make_artifacts(model, tmp_path / "package", config()))
    target = X[:, :3] * np.float32(0.3)
    losses = [session.train_step(X, target).loss for _ in range(20)]
    assert losses == [packed.train_step(X, target).loss for _ in range(20)]
    assert losses[-1] < losses[0] / 2
    session.export(tmp_path / "trained.tflite")
    np.testing.assert_array_equal(ct.InferenceSession(tmp_path / "trained.tflite")(X), session.predict(X))
    peer = pytest.importorskip("onnxruntime")
    session.export(tmp_path / "trained.onnx")
    runner = peer.InferenceSession(str(tmp_path / "trained.onnx"), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(runner.run(None, {"x": X})[0], session.predict(X), rtol=0, atol=1e-5)


def test_integer_weights_learn_as_the_reals_that_they_stand_for() -> None:
    session = ct.TrainSession(model_of(True, stored=True), config())
    assert sorted(session.parameters.trainable()) == ["b", "wq"]
    losses = [session.train_step(X, np.full((6, 3), 3.0)).loss for _ in range(5)]
    assert losses[-1] < losses[0]
