"""LSTM, GRU and RNN over sequences of any length: as onnxruntime has them, trained, and exported as loops that LiteRT runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import circle_train as ct  # noqa: E402
from circle_train.format.metadata import hints  # noqa: E402
from circle_train.ir.tensor_type import Array  # noqa: E402

UNITS, FEATURES = 4, 3
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
CASES: list[tuple[str, dict[str, Any], str]] = [
    ("LSTM", {}, ""),
    ("LSTM", {"direction": "bidirectional"}, "state"),
    ("LSTM", {"direction": "reverse", "clip": 0.4, "input_forget": 1}, "state peepholes"),
    ("GRU", {}, "state"),
    ("GRU", {"linear_before_reset": 1, "direction": "bidirectional"}, ""),
    ("GRU", {"direction": "reverse"}, "lengths"),
    ("RNN", {"direction": "bidirectional"}, "state lengths"),
    ("RNN", {"activations": ["Relu"]}, ""),
]

UNROLLED: list[tuple[str, dict[str, Any], str]] = [
    ("LSTM", {"activations": ["HardSigmoid", "Softsign", "ScaledTanh"], "activation_alpha": [0.3, 1.2],
              "activation_beta": [0.4, 0.8]}, "state peepholes lengths"),
    ("LSTM", {"activations": ["Sigmoid", "LeakyRelu", "Tanh", "HardSigmoid", "Elu", "ThresholdedRelu"],
              "activation_alpha": [0.1, 0.3, 0.7, 0.2], "activation_beta": [0.45], "direction": "bidirectional",
              "input_forget": 1, "clip": 0.4}, "state"),
    ("GRU", {"activations": ["Affine", "Tanh", "HardSigmoid", "Softplus"], "activation_alpha": [0.5, 0.25],
             "activation_beta": [0.1, 0.4], "direction": "bidirectional", "linear_before_reset": 1}, "lengths"),
    ("GRU", {"activations": ["HardSigmoid", "Softsign"], "direction": "reverse"}, "state"),
    ("RNN", {"activations": ["Elu", "ScaledTanh"], "activation_alpha": [0.6, 1.1], "activation_beta": [0.9],
             "direction": "bidirectional"}, "state lengths"),
    ("RNN", {"activations": ["LeakyRelu"]}, ""),
]  # fmt: skip
"""By functions that the operators of sequences have not."""


def network(kind: str, options: dict[str, Any], what: str, seed: int = 0) -> bytes:
    rng = np.random.default_rng(seed)
    directions = 2 if options.get("direction") == "bidirectional" else 1
    rows = GATES[kind] * UNITS
    shapes = {"w": (directions, rows, FEATURES), "r": (directions, rows, UNITS), "b": (directions, 2 * rows)}
    if "peepholes" in what:
        shapes["p"] = (directions, 3 * UNITS)
    arrays = {n: (rng.normal(size=s) * 0.5).astype(np.float32) for n, s in shapes.items()}
    info = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["T", "B", FEATURES])]
    names = ["x", "w", "r", "b", ""]
    if "lengths" in what:
        names[4] = "lengths"
        info.append(helper.make_tensor_value_info("lengths", TensorProto.INT32, ["B"]))
    states = ["h", "c"] if kind == "LSTM" else ["h"]
    if "state" in what:
        info += [
            helper.make_tensor_value_info(n, TensorProto.FLOAT, [directions, "B", UNITS]) for n in states
        ]
        names += states
    if "peepholes" in what:
        names += ["p"]
    outputs = ["y", *(f"last_{name}" for name in states)]
    node = helper.make_node(kind, names, outputs, hidden_size=UNITS, **options)
    graph = helper.make_graph(
        [node], "g", info, [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )  # fmt: skip
    content: bytes = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8
    ).SerializeToString()
    return content


def feeds(loaded: ct.Model, steps: int, batch: int) -> dict[str, Array]:
    rng = np.random.default_rng(steps)
    found: dict[str, Array] = {}
    for tensor in loaded.inputs:
        if tensor.name == "lengths":
            found["lengths"] = np.array([steps, *[max(steps - 2, 1)] * (batch - 1)], np.int32)
        else:
            shape = (steps, batch, FEATURES) if tensor.name == "x" else (tensor.shape[0], batch, UNITS)
            found[tensor.name] = rng.normal(size=shape).astype(np.float32)
    return found


@pytest.mark.parametrize(("kind", "options", "what"), CASES)
def test_any_length_is_computed_as_onnxruntime_does(kind: str, options: dict[str, Any], what: str) -> None:
    content = network(kind, options, what)
    loaded = ct.load(content)
    assert loaded.inputs[0].shape == (-1, -1, FEATURES)
    infer, referee = ct.InferenceSession(loaded), ort.InferenceSession(content)
    for steps, batch in ((1, 1), (7, 3), (20, 2)):
        given = feeds(loaded, steps, batch)
        for ours, theirs in zip(infer.run(None, given), referee.run(None, given), strict=True):
            assert ours.shape == theirs.shape
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("kind", "options", "what"), UNROLLED)
def test_steps_by_other_functions_are_written_out(kind: str, options: dict[str, Any], what: str) -> None:
    content = network(kind, options, what)
    steps, batch = 4, 3
    fixed = ct.load(content, shapes={"x": (steps, batch, FEATURES)})
    given = feeds(fixed, steps, batch)
    theirs = ort.InferenceSession(content).run(None, given)
    for ours, expected in zip(ct.InferenceSession(fixed).run(None, given), theirs, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("kind", "options", "what"), CASES)
def test_files_hold_a_loop_that_runs_elsewhere(
    kind: str, options: dict[str, Any], what: str, tmp_path: Path
) -> None:
    """LiteRT resizes its inputs; without the note of what the loop stands for it is run as a loop."""
    interpreters = pytest.importorskip("ai_edge_litert.interpreter")
    content = network(kind, options, what)
    loaded = ct.load(content)
    loaded.save(tmp_path / "net.tflite")
    again = ct.load(tmp_path / "net.tflite")
    assert [t.shape for t in again.inputs] == [t.shape for t in loaded.inputs]
    plain = ct.load(tmp_path / "net.tflite")
    for node in plain.module.main.nodes:
        node.hint = None
    interpreter = interpreters.Interpreter(str(tmp_path / "net.tflite"))
    details = interpreter.get_input_details()
    for steps, batch in ((5, 2), (9, 3)):
        given = feeds(loaded, steps, batch)
        expected = ort.InferenceSession(content).run(None, given)
        for detail in details:
            interpreter.resize_tensor_input(detail["index"], given[detail["name"]].shape)
        interpreter.allocate_tensors()
        for detail in details:
            interpreter.set_tensor(detail["index"], given[detail["name"]])
        interpreter.invoke()
        theirs = {d["name"]: interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()}
        for name, wanted, swept, looped in zip(
            [t.name for t in loaded.outputs], expected, ct.InferenceSession(again).run(None, given),
            ct.InferenceSession(plain).run(None, given), strict=True,
        ):  # fmt: skip
            for found in (swept, looped, theirs[name]):
                np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_converted_file_is_trained_as_its_source(tmp_path: Path) -> None:
    """The loop in the file is one sweep in a program, whose weights are the file's."""
    content = network("GRU", {"direction": "bidirectional"}, "state")
    ct.load(content).save(tmp_path / "net.circle")
    config = ct.TrainConfig(loss="mse", optimizer="sgd", batch_size=2)
    sessions = [ct.TrainSession(source, config) for source in (content, tmp_path / "net.circle")]
    for steps in (4, 6):
        given = feeds(ct.load(content), steps, 2)
        labels = [np.zeros((steps, 2, 2, UNITS), np.float32), np.zeros((2, 2, UNITS), np.float32)]
        losses = [session.train_step(given, labels).loss for session in sessions]
        assert losses[0] == losses[1]
    values = [list(dict(session.parameters.items()).values()) for session in sessions]
    assert len(values[0]) == 3
    for one, two in zip(*values, strict=True):
        np.testing.assert_array_equal(one, two)
    sessions[1].export(tmp_path / "trained.tflite")
    assert hints.collect(ct.load(tmp_path / "trained.tflite").module.main)["sweep"]
