"""What a .tflite file holds runs in LiteRT: biases, operators that only Circle has, element types, signatures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import circle_train as ct
from circle_train import format
from circle_train.ir import Buffer, DType, Graph, Module, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.model import Model
from circle_train.ops import REGISTRY
from circle_train.passes.litert.bias import OUTPUTS
from circle_train.passes.litert.spelling import SPELLINGS
from circle_train.runtime.litert import for_litert

litert = pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT (ai-edge-litert) is not installed")


def model_of(graph: Graph) -> Model:
    constants = dict.fromkeys(t.buffer for t in graph.all_tensors() if t.buffer is not None)
    return Model(Module([graph], [Buffer(), *constants]))


def of_example(
    name: str, convert: Callable[[Any], Any] = lambda value: value, number: int = 0
) -> tuple[Model, list[Any]]:
    """One operator on its example's inputs: the floats, or else the first, are the graph's inputs."""
    example = [e for e in REGISTRY[name].examples() if e.op.activation.name == "NONE"][number]
    values = [None if value is None else np.asarray(value) for value in example.inputs]
    kind = values[0].dtype if values[0] is not None else np.dtype(np.float64)
    values = [None if v is None else convert(v) if v.dtype == kind else v for v in values]
    graph, feeds, operands = Graph("main"), [], []
    for index, value in enumerate(values):
        if value is None or index in example.constant or (index and value.dtype != values[0].dtype):
            operands.append(None if value is None else constant(value))
            continue
        tensor = Tensor(f"x{index}", TensorType(DType.of(value.dtype), value.shape))
        graph.inputs.append(tensor)
        operands.append(tensor)
        feeds.append(value)
    graph.outputs = graph.emit_all(example.op, *operands)
    return model_of(graph), feeds


def run(path: Path, feeds: list[Any]) -> list[Any]:
    interpreter = litert.Interpreter(str(path), num_threads=1)
    details = interpreter.get_input_details()
    interpreter.allocate_tensors()
    for detail, value in zip(details, feeds, strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


def check(model: Model, feeds: list[Any], path: Path, tolerance: float = 1e-5) -> None:
    """LiteRT computes from the saved file what we compute from the model."""
    expected = ct.InferenceSession(model, backend="reference").run(
        None, dict(zip([i.name for i in model.inputs], feeds, strict=True))
    )
    model.save(path)
    for ours, theirs in zip(expected, run(path, feeds), strict=True):
        assert theirs.dtype == ours.dtype
        np.testing.assert_allclose(
            theirs.astype(np.float64), ours.astype(np.float64), atol=tolerance, rtol=tolerance
        )


def in_float32(value: Any) -> Any:
    return value.astype(np.float32)


@pytest.mark.parametrize("name", [*OUTPUTS, "TRANSPOSE_CONV"])
@pytest.mark.parametrize("is_left_out", [False, True])
def test_a_convolution_without_a_bias_runs_in_litert(name: str, is_left_out: bool, tmp_path: Path) -> None:
    place = 3 if name == "TRANSPOSE_CONV" else 2
    example = next(iter(REGISTRY[name].examples()))
    graph = Graph("main")
    values = [
        v.astype(np.float32) if v.dtype.kind == "f" else v for v in map(np.asarray, example.inputs[:place])
    ]
    at = next(i for i, v in enumerate(values) if v.dtype.kind == "f" and v.ndim == values[-1].ndim and i != 1)
    x = Tensor("x", TensorType(DType.FLOAT32, values[at].shape))
    operands = [x if i == at else constant(v, f"w{i}") for i, v in enumerate(values)]
    graph.inputs = [x]
    graph.outputs = graph.emit_all(example.op, *operands, *([] if is_left_out else [None]))
    check(model_of(graph), [values[at]], tmp_path / "net.tflite", 1e-4)
    again = ct.TrainSession(tmp_path / "net.tflite", ct.TrainConfig(loss="mse"))
    assert not any("bias" in name for name in again.parameters.trainable())


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize("number", [0, 1])
def test_operators_of_circle_alone_are_spelt_out(name: str, number: int, tmp_path: Path) -> None:
    check(*of_example(name, in_float32, number), tmp_path / "net.tflite")


CASES = [(name, dtype) for name, op in REGISTRY.items() for dtype in sorted(op.litert_lacks)]


@pytest.mark.parametrize(("name", "dtype"), CASES, ids=lambda case: getattr(case, "name", case))
def test_integers_that_litert_lacks_are_computed_as_others(name: str, dtype: DType, tmp_path: Path) -> None:
    def convert(value: Any) -> Any:
        positive = np.abs(np.nan_to_num(value.astype(np.float64), posinf=3) * 3).round() % 97 + 1
        return (positive > 2 if dtype is DType.BOOL else positive % 5 + 1).astype(dtype.numpy)

    try:
        model, feeds = of_example(name, convert)
        check(model, feeds, tmp_path / "net.tflite")
    except ct.ModelError:
        pytest.skip("the operator has no such type")


def test_pools_of_integers_are_computed_in_floats(tmp_path: Path) -> None:
    model, feeds = of_example("MAX_POOL_2D", lambda value: (value * 50).astype(np.int32))
    check(model, feeds, tmp_path / "net.tflite")


@pytest.mark.parametrize("kind", [np.float16, np.float64])
def test_halves_and_doubles_are_computed_in_floats(kind: Any, tmp_path: Path) -> None:
    graph = Graph("main")
    x = Tensor("x", TensorType(DType.of(kind), (2, 3)))
    w = constant(np.linspace(-1, 1, 12).reshape(4, 3).astype(kind), "w")
    graph.inputs = [x]
    product = graph.emit(REGISTRY["FULLY_CONNECTED"](), x, w, None)
    graph.outputs = [graph.emit(REGISTRY["RELU"](), product), product]
    values = np.arange(6, dtype=kind).reshape(2, 3) / 4
    check(model_of(graph), [values], tmp_path / "net.tflite", 2e-3)
    held = [t for t in format.read(tmp_path / "net.tflite").main.all_tensors() if t.is_constant]
    assert [t.dtype for t in held] == [DType.FLOAT16 if kind is np.float16 else DType.FLOAT32]


def test_a_converted_model_has_a_signature(tmp_path: Path) -> None:
    model, feeds = of_example("RELU", in_float32)
    model.save(tmp_path / "net.tflite")
    interpreter = litert.Interpreter(str(tmp_path / "net.tflite"))
    (name,) = [t.name for t in model.outputs]
    found = interpreter.get_signature_runner()(x0=feeds[0])
    np.testing.assert_allclose(found[name], np.maximum(feeds[0], 0))


def test_a_loaded_tflite_file_is_left_as_it_is(tmp_path: Path) -> None:
    model, _ = of_example("CONV_2D", in_float32)
    model.save(tmp_path / "net.tflite")
    loaded = format.read(tmp_path / "net.tflite")
    assert for_litert(loaded) is loaded


def test_a_circle_file_becomes_one_of_the_version_that_litert_reads(tmp_path: Path) -> None:
    ct.load("tests/data/mlp.circle").save(tmp_path / "net.tflite")
    x = np.ones((1, 6), np.float32)
    np.testing.assert_allclose(
        run(tmp_path / "net.tflite", [x])[0], ct.InferenceSession("tests/data/mlp.circle")(x), rtol=1e-5
    )


def test_a_recurrence_of_halves_runs_in_litert(tmp_path: Path) -> None:
    """The loop's graphs carry floats, as LiteRT computes, and stand in the file once."""
    onnx = pytest.importorskip("onnx")
    helper, half, rng = onnx.helper, onnx.TensorProto.FLOAT16, np.random.default_rng(0)
    arrays = {name: (rng.normal(size=(1, 15, n)) / 2).astype(np.float16) for name, n in (("w", 4), ("r", 5))}
    node = helper.make_node("GRU", ["x", "w", "r"], ["y", ""], hidden_size=5)
    infos = [
        helper.make_tensor_value_info(n, half, s) for n, s in (("x", ["t", "n", 4]), ("y", ["t", 1, "n", 5]))
    ]
    constants = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph([node], "g", infos[:1], infos[1:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "net.onnx")
    model = ct.load(tmp_path / "net.onnx")
    assert "WHILE" in {operator.name for operator in model.operators}
    model.save(tmp_path / "net.tflite")
    assert len(ct.load(tmp_path / "net.tflite").module.graphs) == len(model.module.graphs)
    runtime = pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
    interpreter = runtime.Interpreter(str(tmp_path / "net.tflite"), num_threads=1)
    (given,), (made,) = interpreter.get_input_details(), interpreter.get_output_details()
    for shape in ((6, 2, 4), (9, 1, 4)):
        x = rng.normal(size=shape).astype(np.float16)
        interpreter.resize_tensor_input(given["index"], shape)
        interpreter.allocate_tensors()
        interpreter.set_tensor(given["index"], x)
        interpreter.invoke()
        found = interpreter.get_tensor(made["index"])
        np.testing.assert_allclose(found, ct.InferenceSession(model)(x), rtol=0, atol=2e-3)
