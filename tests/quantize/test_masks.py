"""Attention whose masks are next to -infinity, in integers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from networks import finish, make, new_input

import circle_train as ct
from circle_train.ir import Graph
from circle_train.ir.graph import constant
from circle_train.ir.tensor_type import Array
from circle_train.model import Model

ROWS = 8


def attention(masked: float, kind: str) -> Model:
    """Shares of 8 numbers, of which a mask of ones and zeros leaves some out."""
    graph = Graph("net", [new_input("scores", 1, ROWS), new_input("kept", 1, ROWS)])
    scores, kept = graph.inputs
    doubled = graph.emit(make("MUL"), scores, constant(np.array(2, np.float32), "two"))
    if kind == "constant":
        table = constant(np.where(np.arange(ROWS) < 5, 0, masked).astype(np.float32), "mask")
        met = graph.emit(make("ADD"), graph.emit(make("MUL"), doubled, kept), table)
    elif kind == "added":
        absent = graph.emit(make("SUB"), constant(np.array(1, np.float32), "one"), kept)
        mask = graph.emit(make("MUL"), absent, constant(np.array(masked, np.float32), "masked"))
        met = graph.emit(make("ADD"), doubled, mask)
    else:
        is_kept = graph.emit(make("GREATER"), kept, constant(np.array(0.5, np.float32), "half"))
        met = graph.emit(make("SELECT_V2"), is_kept, doubled, constant(np.array(masked, np.float32), "mask"))
    shape = constant(np.array([-1, ROWS], np.int32), "shape")
    y = graph.emit(make("SOFTMAX"), graph.emit(make("RESHAPE"), met, shape), name="y")
    return finish(graph, y)


def in_litert(path: Path, feeds: list[Array]) -> Array:
    runtime = pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
    interpreter = runtime.Interpreter(str(path), num_threads=1)
    details = interpreter.get_input_details()
    for detail, value in zip(details, feeds, strict=True):
        interpreter.resize_tensor_input(detail["index"], value.shape)
    interpreter.allocate_tensors()
    for detail, value in zip(details, feeds, strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    return np.asarray(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))


@pytest.mark.parametrize("ranges", ["minmax", "mse"])
@pytest.mark.parametrize("kind", ["constant", "added", "selected"])
@pytest.mark.parametrize("masked", [-1e4, -1e9, float(np.finfo(np.float32).min)])
def test_what_is_masked_takes_no_part_and_the_others_keep_their_steps(
    masked: float, kind: str, ranges: str, tmp_path: Path
) -> None:
    numbers = np.random.default_rng(0)
    kept = (numbers.random((32, ROWS)) < 0.6).astype(np.float32)
    kept[:, 0] = 1
    feeds = [numbers.normal(0, 2, (32, ROWS)).astype(np.float32), kept]
    net = ct.TrainSession(attention(masked, kind), ct.TrainConfig(loss="mse"))
    expected = net.predict(feeds)
    path = tmp_path / "x.tflite"
    net.export(path, quantize=ct.Int8(calibration=feeds, io="float32", ranges=ranges))
    for found in (ct.InferenceSession(path)(*feeds), in_litert(path, feeds)):
        assert np.abs(found - expected).max() < 0.06
        assert found[expected < 1e-6].max() <= 1 / 256


@pytest.mark.parametrize("ranges", ["minmax", "mse"])
@pytest.mark.parametrize("masked", [-1e4, float(np.finfo(np.float32).min)])
def test_masks_take_no_steps_of_an_onnx_model_either(masked: float, ranges: str, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    node, numbers = onnx.helper.make_node, np.random.default_rng(0)
    held = [
        onnx.numpy_helper.from_array(np.eye(ROWS, dtype=np.float32) * 2, "w"),
        onnx.numpy_helper.from_array(np.array(masked, np.float32), "masked"),
    ]
    nodes = [
        node("MatMul", ["scores", "w"], ["doubled"]),
        node("Mul", ["absent", "masked"], ["mask"]),
        node("Add", ["doubled", "mask"], ["met"]),
        node("Softmax", ["met"], ["y"], axis=-1),
    ]
    infos = [onnx.helper.make_tensor_value_info(name, 1, ["n", ROWS]) for name in ("scores", "absent", "y")]
    graph = onnx.helper.make_graph(nodes, "net", infos[:2], infos[2:], held)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    absent = (numbers.random((32, ROWS)) < 0.4).astype(np.float32)
    absent[:, 0] = 0
    feeds = [numbers.normal(0, 2, (32, ROWS)).astype(np.float32), absent]
    net = ct.TrainSession(model, ct.TrainConfig(loss="mse"))
    net.export(tmp_path / "x.onnx", quantize=ct.Int8(calibration=feeds, ranges=ranges))
    session = runtime.InferenceSession(str(tmp_path / "x.onnx"), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, dict(zip(("scores", "absent"), feeds, strict=True)))
    expected = net.predict(feeds)
    assert np.abs(found - expected).max() < 0.06
    assert found[expected < 1e-6].max() <= 1 / 256
