"""Scan over a length that is open: a loop that counts to it, computed, trained and exported at every length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import circle_train as ct
from circle_train.ir.tensor_type import Array

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
helper, FLOAT = onnx.helper, onnx.TensorProto.FLOAT
W = np.linspace(-0.6, 0.7, 9, dtype=np.float32).reshape(3, 3)
RNG = np.random.default_rng(0)


def scan(axis: int, turned: int, batch: Any = "n", time: Any = "time") -> bytes:
    """h = tanh(x[t] + h · w), and the sum of each state."""

    def info(name: str, shape: list[Any]) -> Any:
        return helper.make_tensor_value_info(name, FLOAT, shape)

    nodes = [
        helper.make_node("MatMul", ["h", "w"], ["product"]),
        helper.make_node("Add", ["product", "row"], ["sum"]),
        helper.make_node("Tanh", ["sum"], ["state"]),
        helper.make_node("ReduceMean", ["state"], ["made"], axes=[1], keepdims=1),
    ]
    row, own = [batch, 3], [batch, 1]
    body = helper.make_graph(
        nodes, "body", [info("h", row), info("row", row)], [info("state", row), info("made", own)]
    )
    ways = {
        f"scan_{end}_{what}": [n]
        for end in ("input", "output")
        for what, n in (("axes", axis), ("directions", turned))
    }
    node = helper.make_node("Scan", ["h0", "x"], ["last", "y"], body=body, num_scan_inputs=1, **ways)
    shape = [batch, time, 3] if axis else [time, batch, 3]
    graph = helper.make_graph(
        [node], "net", [info("h0", row), info("x", shape)], [info("last", row), info("y", [None] * 3)],
        [onnx.numpy_helper.from_array(W, "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def feeds(axis: int, batch: int, time: int) -> dict[str, Array]:
    shape = (batch, time, 3) if axis else (time, batch, 3)
    return {
        "h0": RNG.normal(size=(batch, 3)).astype(np.float32),
        "x": RNG.normal(size=shape).astype(np.float32),
    }


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("turned", [0, 1])
def test_any_length_is_computed_trained_and_exported(axis: int, turned: int, tmp_path: Path) -> None:
    runtime = pytest.importorskip("ai_edge_litert.interpreter")
    data = scan(axis, turned)
    theirs, ours = onnxruntime.InferenceSession(data), ct.InferenceSession(data)
    ct.load(data).save(tmp_path / "net.tflite")
    it = runtime.Interpreter(str(tmp_path / "net.tflite"), num_threads=1)
    sgd = ct.optimizers.SGD(0.1)
    session = ct.TrainSession(ct.load(data), ct.TrainConfig(loss="mse", optimizer=sgd, batch_size=2))
    for time in (4, 9):
        given = feeds(axis, 2, time)
        wanted = theirs.run(None, given)
        for one, two in zip(ours.run(None, given), wanted, strict=True):
            np.testing.assert_allclose(one, two, atol=1e-6)
        for detail in it.get_input_details():
            it.resize_tensor_input(detail["index"], given[detail["name"]].shape)
        it.allocate_tensors()
        for detail in it.get_input_details():
            it.set_tensor(detail["index"], given[detail["name"]])
        it.invoke()
        found = {detail["name"]: it.get_tensor(detail["index"]) for detail in it.get_output_details()}
        np.testing.assert_allclose(found["y"], wanted[1], atol=1e-5)
        fixed = ct.load(scan(axis, turned, 2, time))
        alone = ct.TrainSession(fixed, ct.TrainConfig(loss="mse", optimizer=sgd, batch_size=2))
        alone.parameters["w"] = session.parameters["w"]
        targets = [np.zeros_like(one) for one in wanted]
        losses = [one.train_step([given["h0"], given["x"]], targets).loss for one in (session, alone)]
        np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
        np.testing.assert_allclose(session.parameters["w"], alone.parameters["w"], atol=1e-6)
