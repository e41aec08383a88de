"""What TensorFlow's quantisation-aware training left in a model: rounded when it runs, looked through when it learns."""

from __future__ import annotations

import numpy as np

import circle_train as ct
from circle_train import format
from circle_train.ir import DType, Graph, Module, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ops import REGISTRY

BITS = {"min": -1.0, "max": 2.0, "num_bits": 4}


def model() -> ct.Model:
    graph = Graph("main", [Tensor("x", TensorType(DType.FLOAT32, (1, 3)))])
    w = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    rounded = graph.emit(REGISTRY["FAKE_QUANT"](**BITS), graph.inputs[0], name="rounded")
    graph.outputs = [graph.emit(REGISTRY["FULLY_CONNECTED"](), rounded, constant(w, "w"), None, name="y")]
    before = graph.emit(REGISTRY["FAKE_QUANT"](**BITS), graph.outputs[0], name="z")
    graph.outputs = [before]
    return ct.load(format.write(Module([graph])))


def test_it_rounds_in_training_and_gradients_pass_between_its_ends() -> None:
    net = model()
    x = np.array([[0.33, -0.25, 1.17], [5.0, 0.0, 0.13]], np.float32)
    config = ct.TrainConfig(loss="mse", optimizer=ct.optimizers.SGD(1.0), batch_size=2)
    session = ct.TrainSession(net, config)
    w = dict(session.parameters)["w"].copy()
    expected = ct.InferenceSession(net)(x)
    np.testing.assert_allclose(session.predict(x), expected, atol=1e-6)
    session.train_step(x, np.zeros((2, 2), np.float32))
    scale = np.float32(3 / 15)
    rounded = np.rint(np.clip(x, -1, 2) / scale) * scale
    open_ = np.abs(rounded @ w.T - 0.5) <= 1.5
    dy = 2 * expected / expected.size * open_
    np.testing.assert_allclose(session.parameters["w"], w - dy.T @ rounded, rtol=1e-4, atol=1e-5)
