"""Weights in integers between floats: computed as what they stand for, trained, and written back as integers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

import circle_train as ct
from circle_train import format
from circle_train.ir import Buffer, DType, Graph, Module, Quantization, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ops import REGISTRY


def model() -> tuple[ct.Model, np.ndarray]:
    graph = Graph("main", [Tensor("x", TensorType(DType.FLOAT32, (1, 3)))])
    codes = np.arange(-6, 6, dtype=np.int8).reshape(4, 3) * 10
    w = constant(codes, "w")
    real = constant(codes.astype(np.float32), "w")
    y = graph.emit(REGISTRY["FULLY_CONNECTED"](), graph.inputs[0], real, None, name="y")
    w.quantization = Quantization((0.1,), (0,))
    assert y.producer is not None
    graph.reconnect(y.producer, [graph.inputs[0], w, None])
    graph.outputs = [y]
    made = Module([graph], [Buffer(), w.buffer or Buffer()])
    return ct.load(format.write(replace(made))), codes


def test_integer_weights_between_floats_are_trained(tmp_path: Path) -> None:
    net, codes = model()
    x = np.eye(3, dtype=np.float32)
    np.testing.assert_allclose(ct.InferenceSession(net)(x), codes.T * np.float32(0.1), rtol=1e-6)
    session = ct.TrainSession(net, ct.TrainConfig(loss="mse", batch_size=3, optimizer=ct.optimizers.SGD(1.0)))
    losses = [float(session.train_step(x, np.zeros((3, 4), np.float32)).loss) for _ in range(3)]
    assert losses == sorted(losses, reverse=True)
    session.export(tmp_path / "net.circle")
    again = format.read(tmp_path / "net.circle").main
    (w,) = (t for t in again.all_tensors() if t.is_constant)
    assert w.dtype is DType.INT8 and np.abs(w.data).sum() < np.abs(codes).sum()
