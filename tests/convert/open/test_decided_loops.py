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
from circle_train.ops.control.learning import LearningLoop  # noqa: E402

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


def recurring(step: list[Any], numbers: dict[str, Any]) -> bytes:
    """h = x·w, then h = step(h) until its sum is at least `enough`; y = 2 h."""
    nodes = [
        *step,
        helper.make_node("ReduceSum", ["t"], ["sum"], keepdims=0),
        helper.make_node("Less", ["sum", "enough"], ["go"]),
    ]
    body = helper.make_graph(
        nodes, "body", [info("i", INT, []), info("c", BOOL, []), info("s", FLOAT, ["N", 3])],
        [info("go", BOOL, []), info("t", FLOAT, ["N", 3])],
    )  # fmt: skip
    main = [
        helper.make_node("MatMul", ["x", "w"], ["start"]),
        helper.make_node("Loop", ["", "yes", "start"], ["h"], body=body),
        helper.make_node("Mul", ["h", "two"], ["y"]),
    ]
    numbers = {"w": np.eye(3, dtype=np.float32), "yes": np.array(True), "two": np.float32(2), **numbers}
    graph = helper.make_graph(
        main, "g", [info("x", FLOAT, ["N", 3])], [info("y", FLOAT, ["N", 3])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in numbers.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    content: bytes = model.SerializeToString()
    return content


def cell(enough: float = 40.0, pull: float = 0.1) -> bytes:
    """s = s + pull · tanh(s·v + b), whose weights are the loop's own."""
    step = [
        helper.make_node("Gemm", ["s", "v", "b"], ["g"]),
        helper.make_node("Tanh", ["g"], ["th"]),
        helper.make_node("Mul", ["th", "pull"], ["small"]),
        helper.make_node("Add", ["s", "small"], ["t"]),
    ]
    rng = np.random.default_rng(3)
    v = (np.eye(3) + 0.2 * rng.random((3, 3))).astype(np.float32)
    return recurring(
        step,
        {"v": v, "b": np.full(3, 0.3, np.float32), "pull": np.float32(pull), "enough": np.float32(enough)},
    )


def by_torch(
    session: ct.TrainSession, x: Any, enough: float, pull: float
) -> tuple[float, dict[str, Any], int]:
    """The loss of mean squares, its gradients, and how often the loop turned."""
    torch = pytest.importorskip("torch")
    w, v, b = (
        torch.tensor(session.parameters[name], dtype=torch.float64, requires_grad=True) for name in "wvb"
    )
    h, turns = torch.tensor(x, dtype=torch.float64) @ w, 0
    while turns == 0 or h.sum() < enough:
        h, turns = h + pull * torch.tanh(h @ v + b), turns + 1
    loss = ((2 * h) ** 2).mean()
    loss.backward()
    return float(loss.detach()), {"w": w.grad.numpy(), "v": v.grad.numpy(), "b": b.grad.numpy()}, turns


@pytest.mark.parametrize("backend", ["reference", "native"])
def test_gradients_go_back_through_as_many_turns_as_the_data_decides(backend: str) -> None:
    config = ct.TrainConfig(loss="mse", optimizer=ct.optimizers.SGD(learning_rate=1.0), batch_size=2)
    session = ct.TrainSession(ct.load(cell()), config, backend=backend)
    seen = set()
    for scale in (0.4, 3.0, 9.0):
        x = np.random.default_rng(1).random((2, 3)).astype(np.float32) * scale
        expected, gradients, turns = by_torch(session, x, 40.0, 0.1)
        before = {name: session.parameters[name].copy() for name in gradients}
        found = session.train_step(x, np.zeros((2, 3), np.float32))
        np.testing.assert_allclose(float(found.loss), expected, rtol=1e-5)
        for name, gradient in gradients.items():
            moved = before[name] - session.parameters[name]
            np.testing.assert_allclose(moved, gradient, rtol=1e-4, atol=2e-4 * np.abs(gradient).max())
            session.parameters[name] = before[name]
        seen.add(turns)
    assert len(seen) == 3 and max(seen) > 64, "several programs' worth of turns, more than are kept"


def test_gradients_through_a_loop_are_finite_differences() -> None:
    graphs = ct.load(cell(8.0)).module.main
    op = next(node.op for node in graphs.nodes if node.op.name == "WHILE")
    loop = LearningLoop(graphs=op.graphs)
    rng = np.random.default_rng(0)
    given = [np.asarray(t.data) if t.is_constant else rng.random((2, 3)) for t in loop_inputs(graphs)]
    state = next(i for i, value in enumerate(given) if value.dtype == np.float64)
    direction, weight = rng.standard_normal((2, 3, 2)).transpose(2, 0, 1)

    def at(step: float) -> float:
        values = [value + step * direction if i == state else value for i, value in enumerate(given)]
        return float((loop.forward(*values)[state] * weight).sum())

    dys = [np.zeros_like(value) for value in given]
    dys[state] = weight
    slope = float((loop.grads(dys, given)["xs"][state] * direction).sum())
    np.testing.assert_allclose(slope, (at(1e-6) - at(-1e-6)) / 2e-6, rtol=1e-5)


def loop_inputs(graph: Any) -> list[Any]:
    return list(next(node for node in graph.nodes if node.op.name == "WHILE").inputs)


def test_what_a_loop_has_learned_is_in_the_files(tmp_path: Path) -> None:
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    session = ct.TrainSession(ct.load(cell()), ct.TrainConfig(loss="mse", optimizer="adam", batch_size=2))
    x = np.random.default_rng(2).random((2, 3)).astype(np.float32)
    before = session.parameters["v"].copy()
    for _ in range(3):
        session.train_step(x, np.zeros((2, 3), np.float32))
    assert (session.parameters["v"] != before).all()
    ours = session.predict(x)
    session.export(tmp_path / "loop.onnx")
    session.export(tmp_path / "loop.tflite")
    runtime = ort.InferenceSession(str(tmp_path / "loop.onnx"))
    np.testing.assert_allclose(runtime.run(None, {"x": x})[0], ours, rtol=1e-5)
    interpreter = litert.Interpreter(str(tmp_path / "loop.tflite"))
    interpreter.resize_tensor_input(interpreter.get_input_details()[0]["index"], x.shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
    interpreter.invoke()
    np.testing.assert_allclose(
        interpreter.get_tensor(interpreter.get_output_details()[0]["index"]), ours, rtol=1e-5
    )


def test_checkpoints_hold_the_loops_weights_or_refuse(tmp_path: Path) -> None:
    config = ct.TrainConfig(loss="mse", optimizer="adam", batch_size=2)
    session, resumed = (ct.TrainSession(ct.load(cell()), config) for _ in range(2))
    x, y = np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)
    session.train_step(x, y)
    with pytest.raises(ct.CheckpointError, match="parameter 'v' belongs to a graph within the model's own"):
        session.save_checkpoint(tmp_path / "loop.ckpt")
    assert not (tmp_path / "loop.ckpt").exists()
    session.save_checkpoint(tmp_path / "loop.safetensors")
    resumed.load_checkpoint(tmp_path / "loop.safetensors")
    assert session.train_step(x, y).loss == resumed.train_step(x, y).loss
    np.testing.assert_array_equal(session.parameters["v"], resumed.parameters["v"])


def test_a_weight_that_the_loop_shares_is_one() -> None:
    step = [
        helper.make_node("MatMul", ["s", "w"], ["g"]),
        helper.make_node("Add", ["g", "b"], ["t"]),
    ]
    numbers = {"b": np.ones(3, np.float32), "enough": np.float32(30)}
    config = ct.TrainConfig(loss="mse", optimizer=ct.optimizers.SGD(learning_rate=1e-4), batch_size=2)
    session = ct.TrainSession(ct.load(recurring(step, numbers)), config)
    x = np.ones((2, 3), np.float32)
    # s = 1, then + 1 a turn until 6 s ≥ 30: four turns, y = 10; dL/dw of five products of a matrix of equal rows
    before = session.parameters["w"].copy()
    session.train_step(x, np.zeros((2, 3), np.float32))
    torch = pytest.importorskip("torch")
    w = torch.eye(3, requires_grad=True)
    h = torch.ones(2, 3) @ w
    for _ in range(4):
        h = h @ w + 1
    ((2 * h) ** 2).mean().backward()
    np.testing.assert_allclose((before - session.parameters["w"]) / 1e-4, w.grad.numpy(), rtol=1e-2)


def test_a_loop_without_gradients_is_refused_by_name() -> None:
    step = [
        helper.make_node("Unique", ["s"], ["u"], sorted=1),
        helper.make_node("ReduceSum", ["u"], ["all"], keepdims=0),
        helper.make_node("Add", ["s", "all"], ["t"]),
    ]
    model = ct.load(recurring(step, {"enough": np.float32(9)}))
    session = ct.TrainSession(model, ct.TrainConfig(loss="mse", batch_size=2))
    with pytest.raises(
        ct.CircleTrainError, match=r"WHILE .* has no gradient for xs, for .* 'u' has no gradient"
    ):
        session.prepare()


def test_a_budget_cannot_be_promised() -> None:
    config = ct.TrainConfig(loss="mse", batch_size=2, memory_budget="200MB")
    with pytest.raises(ct.ConfigError, match=r"memory_budget: how often operator \d+ \(WHILE\) turns"):
        ct.TrainSession(ct.load(cell()), config).prepare()


def test_names_are_unique_in_the_file() -> None:
    """Over all graphs: AI Edge Quantizer refuses others."""
    graphs = ct.load(doubling(1 << 40, True)).module.graphs
    names = [tensor.name for graph in graphs for tensor in graph.all_tensors()]
    assert len(graphs) > 1 and len(names) == len(set(names))


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
