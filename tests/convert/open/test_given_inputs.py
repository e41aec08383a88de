"""Inputs that are no samples are given once: `inputs=` at load and session, `--fix` on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import circle_train as ct  # noqa: E402
from circle_train.cli.main import main  # noqa: E402
from circle_train.ir.tensor_type import Array  # noqa: E402

WEIGHT = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)


def branch(name: str, width: int) -> Any:
    """y = x[:, :width] @ w[:width], of another shape within for each rate."""
    constants = [
        numpy_helper.from_array(np.array(values), f"{name}_{part}")
        for part, values in (("from", [0]), ("to", [width]), ("axis", [1]), ("rows", [0]))
    ]
    nodes = [
        helper.make_node("Slice", ["x", f"{name}_from", f"{name}_to", f"{name}_axis"], [f"{name}_x"]),
        helper.make_node("Slice", ["w", f"{name}_from", f"{name}_to", f"{name}_rows"], [f"{name}_w"]),
        helper.make_node("MatMul", [f"{name}_x", f"{name}_w"], [f"{name}_y"]),
        helper.make_node("Concat", [f"{name}_y"] * (width // 2), [f"{name}_out"], axis=1),
    ]
    outputs = [helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, None)]
    return helper.make_graph(nodes, name, [], outputs, constants)


def streaming(path: Path) -> Path:
    """(x | branch by rate) + state, and the next state; x: (batch, 4), state: (2, batch, 4), rate: a scalar."""
    nodes = [
        helper.make_node("Equal", ["sr", "rate"], ["is_16k"]),
        helper.make_node(
            "If", ["is_16k"], ["z"], then_branch=branch("wide", 4), else_branch=branch("slim", 2)
        ),
        helper.make_node("Split", ["state"], ["h0", "c0"], axis=0, num_outputs=2),
        helper.make_node("Squeeze", ["h0", "zero"], ["h"]),
        helper.make_node("Concat", ["z", "h"], ["y"], axis=1),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 4]),
        helper.make_tensor_value_info("state", TensorProto.FLOAT, [2, None, 4]),
        helper.make_tensor_value_info("sr", TensorProto.INT64, []),
    ]
    constants = {"w": WEIGHT, "rate": np.array(16000), "zero": np.array([0])}
    graph = helper.make_graph(
        nodes, "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.save(model, path)
    return path


def expected(x: Array, state: float) -> Array:
    z = x @ WEIGHT
    return np.concatenate([z, z, np.full((len(x), 4), state, np.float32)], 1)


def test_a_condition_on_a_given_input_is_decided_and_sizes_stay_open(tmp_path: Path) -> None:
    path = streaming(tmp_path / "net.onnx")
    with pytest.raises(ct.ConversionError, match=r"say so: inputs=\{'sr': …\}"):
        ct.load(path)
    model = ct.load(path, inputs={"sr": [16000], "state": 0.5})
    assert [(info.name, info.shape) for info in model.inputs] == [("x", (-1, 4))]
    for batch in (1, 3):
        x = np.random.default_rng(batch).normal(size=(batch, 4)).astype(np.float32)
        np.testing.assert_allclose(ct.InferenceSession(model)(x), expected(x, 0.5), rtol=1e-5)


def test_a_session_takes_values_and_training_asks_for_samples_alone(tmp_path: Path) -> None:
    path = streaming(tmp_path / "net.onnx")
    given = {"sr": 16000, "state": np.zeros((2, 1, 4), np.float32)}
    config = ct.TrainConfig(loss="mse", batch_size=3, trainable=["w"])
    session = ct.TrainSession(path, config, inputs=given)
    x, y = np.ones((3, 4), np.float32), np.zeros((3, 12), np.float32)
    first = session.train_step(x, y).loss
    assert session.train_step(x, y).loss < first
    session.export(tmp_path / "out.tflite")
    x = np.ones((2, 4), np.float32)
    np.testing.assert_allclose(ct.InferenceSession(tmp_path / "out.tflite")(x), session.predict(x), rtol=1e-5)


def test_inputs_of_circle_and_loaded_models_are_given_too(tmp_path: Path) -> None:
    path = "tests/data/mlp.circle"
    wanted = ct.InferenceSession(path)(np.full((1, 6), 2, np.float32))
    model = ct.load(path, inputs={"x": 2})
    assert model.inputs == []
    np.testing.assert_allclose(ct.InferenceSession(model)(), wanted, rtol=1e-6)
    np.testing.assert_allclose(
        ct.InferenceSession(ct.load(path), inputs={"x": [[2] * 6]})(), wanted, rtol=1e-6
    )
    model.save(tmp_path / "fixed.circle")
    np.testing.assert_allclose(ct.InferenceSession(tmp_path / "fixed.circle")(), wanted, rtol=1e-6)


def test_sizes_that_a_file_calls_the_same_by_mistake() -> None:
    """As RobustVideoMatting's states are called: 'H', though the first ones are one pixel for a picture of any height."""
    ort = pytest.importorskip("onnxruntime")
    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Shape", ["x"], ["sizes"]),
        helper.make_node("Expand", ["state", "sizes"], ["before"]),
        helper.make_node("Add", ["x", "before"], ["y"]),
    ]
    inputs = [
        info("x", TensorProto.FLOAT, ["B", 3, "H"]),
        info("state", TensorProto.FLOAT, ["B", "C", "H"]),
    ]
    graph = helper.make_graph(nodes, "g", inputs, [info("y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    x, state = np.random.default_rng(0).random((2, 3, 8), np.float32), np.full((1, 1, 1), 2, np.float32)
    ours = ct.InferenceSession(ct.load(model, shapes={"x": (2, 3, 8), "state": (1, 1, 1)}))
    wanted = ort.InferenceSession(model.SerializeToString()).run(None, {"x": x, "state": state})
    np.testing.assert_allclose(ours.run(None, {"x": x, "state": state})[0], wanted[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"rate": 1}, "inputs gives 'rate' a value, the model's inputs are x, state, sr"),
        ({"sr": 0.5}, "inputs gives 'sr' numbers that INT64 cannot hold"),
        ({"sr": "16 kHz"}, "inputs gives 'sr' as str, expected numbers: INT64"),
        ({"state": np.zeros((3, 1, 4))}, "inputs gives 'state' as 3×1×4, expected 2×any×4, or one number"),
    ],
)
def test_values_that_do_not_fit_are_refused(tmp_path: Path, inputs: dict[str, Any], said: str) -> None:
    with pytest.raises(ct.ConfigError, match=said):
        ct.load(streaming(tmp_path / "net.onnx"), inputs=inputs)


def test_the_command_line_fixes_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(streaming(tmp_path / "net.onnx"))
    np.save(tmp_path / "state.npy", np.zeros((2, 1, 4), np.float32))
    fixed = ["--fix", "sr=16000", "--fix", f"state={tmp_path / 'state.npy'}"]
    assert main(["info", path, *fixed]) == 0
    assert "x" in capsys.readouterr().out
    assert main(["info", path, "--fix", "sr=fast"]) == 1
    assert "--fix is 'sr=fast', expected an input's name and a number" in capsys.readouterr().err
