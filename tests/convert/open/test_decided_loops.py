"""Loops whose end only the data decides, against onnxruntime and LiteRT."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import circle_train as ct  # noqa: E402

FLOAT, BOOL, INT = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64


def info(name: str, kind: int, shape: list[Any] | None) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def doubling(most: int, with_stack: bool) -> bytes:
    """y = x·w·2ⁿ, n the least for which its sum is at least `enough`; an unread state, a fixed one, one of another rank."""
    nodes = [
        helper.make_node("Mul", ["state", "factor"], ["state_out"]),
        helper.make_node("ReduceSum", ["state_out"], ["sum"], keepdims=1),
        helper.make_node("Less", ["sum", "enough"], ["less"]),
        helper.make_node("Reshape", ["less", "one"], ["go"]),
        helper.make_node("Mul", ["state_out", "outer"], ["kept_out"]),
    ]
    inputs = [info("i", INT, []), info("c", BOOL, []), info("state", FLOAT, ["N", 3]), info("factor", FLOAT, []),
              info("kept", FLOAT, ["N", 3])]  # fmt: skip
    outputs = [info("go", BOOL, []), info("state_out", FLOAT, ["N", 3]), info("factor", FLOAT, []),
               info("kept_out", FLOAT, ["N", 3])]  # fmt: skip
    if with_stack:
        nodes.append(helper.make_node("Reshape", ["sum", "one"], ["seen"]))
        outputs.append(info("seen", FLOAT, [1]))
    body = helper.make_graph(nodes, "body", inputs, outputs)
    made = ["y", "f", "k", *(["sums"] if with_stack else [])]
    main = [
        helper.make_node("MatMul", ["x", "w"], ["start"]),
        helper.make_node("Neg", ["x"], ["outer"]),
        helper.make_node("Loop", ["most", "yes", "start", "two", "zero"], made, body=body),
    ]
    constants = {
        "w": np.eye(3, dtype=np.float32), "two": np.float32(2), "zero": np.zeros((), np.float32), "yes": np.array(True),
        "most": np.array(most), "enough": np.array([[100]], np.float32), "one": np.array([1]),
    }  # fmt: skip
    graph = helper.make_graph(
        main, "g", [info("x", FLOAT, ["N", 3])], [info(n, FLOAT, None) for n in made if n != "f"],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    content: bytes = model.SerializeToString()
    return content


@pytest.mark.parametrize("with_stack", [False, True])
def test_the_data_decides_how_often(with_stack: bool) -> None:
    content = doubling(1 << 40, with_stack)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    runtime, infer = ort.InferenceSession(content, options), ct.InferenceSession(ct.load(content))
    for batch, scale in ((1, 1.0), (4, 0.1), (2, 60.0)):
        x = np.full((batch, 3), scale, np.float32)
        for ours, theirs in zip(infer.run(None, {"x": x}), runtime.run(None, {"x": x}), strict=True):
            assert ours.shape == theirs.shape
            np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_a_trip_count_ends_it_too() -> None:
    infer = ct.InferenceSession(ct.load(doubling(20_000, False)))
    x = np.zeros((1, 3), np.float32)
    np.testing.assert_array_equal(infer.run(["y"], {"x": x})[0], x)


def test_the_file_runs_in_litert(tmp_path: Path) -> None:
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    model = ct.load(doubling(1 << 40, False))
    model.save(tmp_path / "loop.tflite")
    interpreter = litert.Interpreter(str(tmp_path / "loop.tflite"))
    x = np.full((2, 3), 0.7, np.float32)
    interpreter.resize_tensor_input(interpreter.get_input_details()[0]["index"], x.shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
    interpreter.invoke()
    expected = ct.InferenceSession(model).run(None, {"x": x})
    for detail, ours in zip(interpreter.get_output_details(), expected, strict=True):
        np.testing.assert_allclose(interpreter.get_tensor(detail["index"]), ours, rtol=1e-6)


def test_training_behind_it_is_refused_by_name() -> None:
    session = ct.TrainSession(ct.load(doubling(1 << 40, False)), ct.TrainConfig(loss="mse", batch_size=2))
    with pytest.raises(ct.CircleTrainError, match="WHILE"):
        session.prepare()


def test_a_state_that_changes_its_size_is_refused() -> None:
    nodes = [
        helper.make_node("Concat", ["s", "s"], ["t"], axis=0),
        helper.make_node("ReduceSum", ["t"], ["sum"], keepdims=0),
        helper.make_node("Less", ["sum", "enough"], ["go"]),
    ]
    body = helper.make_graph(
        nodes, "body", [info("i", INT, []), info("c", BOOL, []), info("s", FLOAT, None)],
        [info("go", BOOL, []), info("t", FLOAT, None)], [numpy_helper.from_array(np.float32(9), "enough")],
    )  # fmt: skip
    loop = helper.make_node("Loop", ["", "", "x"], ["y"], body=body)
    graph = helper.make_graph([loop], "g", [info("x", FLOAT, [1, 3])], [info("y", FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    with pytest.raises(
        ct.ConversionError, match="a state is float32 1×3 at first and float32 2×3 after a turn"
    ):
        ct.load(model)
