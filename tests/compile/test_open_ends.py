"""Models whose last operators make as much as the data says: what lies before them is trained."""

from __future__ import annotations

import re

import numpy as np
import pytest

import circle_train as ct

onnx = pytest.importorskip("onnx")
RNG = np.random.default_rng(0)
X, W = RNG.normal(size=(4, 6)).astype(np.float32), RNG.normal(size=(6, 3)).astype(np.float32)


def model() -> bytes:
    """The numbers above 0 of x · w."""
    helper = onnx.helper
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["scores"]),
        helper.make_node("Greater", ["scores", "zero"], ["above"]),
        helper.make_node("NonZero", ["above"], ["columns"]),
        helper.make_node("Transpose", ["columns"], ["places"]),
        helper.make_node("GatherND", ["scores", "places"], ["y"]),
    ]
    infos = [
        helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s)
        for n, s in (("x", ["n", 6]), ("y", ["k"]))
    ]
    constants = [
        onnx.numpy_helper.from_array(a, n) for n, a in (("w", W), ("zero", np.zeros((), np.float32)))
    ]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


def test_the_last_floats_of_known_shape_are_named_and_train() -> None:
    scores = X @ W
    np.testing.assert_allclose(ct.InferenceSession(model())(X), scores[scores > 0], rtol=1e-5)
    config = ct.TrainConfig(loss="mse", optimizer=ct.optimizers.SGD(0.1), batch_size=4)
    with pytest.raises(ct.ConfigError, match=r"depend on the values of the data.*trains there") as refusal:
        ct.TrainSession(model(), config).prepare()
    named = re.findall(r"outputs=\['(.*)'\]", str(refusal.value))
    session = ct.TrainSession(model(), config.replace(outputs=named))
    target = RNG.normal(size=(4, 3)).astype(np.float32)
    assert session.train_step(X, target).loss == pytest.approx(np.square(scores - target).mean(), rel=1e-5)
    wanted = W - 0.1 * 2 / 12 * X.T @ (scores - target)
    np.testing.assert_allclose(session.parameters["w"], wanted, rtol=0, atol=1e-5)
