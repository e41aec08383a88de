"""ONNX weights of four bits, and of blocks: computed, trained and written back as the file packs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import circle_train as ct

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
helper, Kind = onnx.helper, onnx.TensorProto
RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 8)).astype(np.float32)


def model(kind: int, block: int, raw: bool = False) -> bytes:
    """x · (weights - zero) · scale, with 8 × 3 weights and a block along the first axis, or a scale for each column."""
    low, high = (0, 16) if kind == Kind.UINT4 else (-8, 8)
    shape = [8 // block, 3] if block else [3]
    values = {name: RNG.integers(low, high, s).reshape(-1) for name, s in (("q", [8, 3]), ("zero", shape))}
    tensors = [helper.make_tensor(n, kind, [8, 3] if n == "q" else shape, v) for n, v in values.items()]
    for tensor, value in zip(tensors if raw else [], values.values(), strict=raw):
        pairs = np.append(value & 15, [0] * (value.size % 2)).astype(np.uint8)
        tensor.ClearField("int32_data")
        tensor.raw_data = (pairs[::2] | pairs[1::2] << 4).tobytes()
    scale = (np.abs(RNG.normal(size=shape)) + 0.1).astype(np.float32)
    attributes: dict[str, Any] = {"axis": 0, "block_size": block} if block else {"axis": 1}
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["w"], **attributes),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    infos = [helper.make_tensor_value_info(n, Kind.FLOAT, ["n", k]) for n, k in (("x", 8), ("y", 3))]
    graph = helper.make_graph(
        nodes, "net", infos[:1], infos[1:], [*tensors, onnx.numpy_helper.from_array(scale, "scale")]
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return bytes(made.SerializeToString())


def theirs(data: bytes | str) -> Any:
    """Without its fusions, which round what comes in too."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(data, options).run(None, {"x": X})[0]


@pytest.mark.parametrize("kind", [Kind.INT4, Kind.UINT4])
@pytest.mark.parametrize("block", [0, 4])
@pytest.mark.parametrize("raw", [False, True])
def test_they_are_computed_trained_and_packed_again(kind: int, block: int, raw: bool, tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(data := model(kind, block, raw))
    np.testing.assert_allclose(ct.InferenceSession(data)(X), theirs(data), atol=1e-5)
    config = ct.TrainConfig(loss="mse", optimizer=ct.optimizers.SGD(0.05), batch_size=4)
    session = ct.TrainSession(tmp_path / "net.onnx", config)
    session.export(tmp_path / "same.onnx")
    np.testing.assert_array_equal(theirs(str(tmp_path / "same.onnx")), theirs(data))
    target = X @ RNG.normal(size=(8, 3)).astype(np.float32)
    losses = [float(session.train_step(X, target).loss) for _ in range(60)]
    session.export(tmp_path / "trained.onnx")
    written = onnx.load(tmp_path / "trained.onnx").graph.initializer[0]
    assert written.data_type == kind
    assert len(written.raw_data) == 12
    found = np.mean((theirs(str(tmp_path / "trained.onnx")) - target) ** 2)
    assert losses[-1] < losses[0] / 2
    assert found < losses[0]


def test_what_comes_in_is_rounded_in_blocks() -> None:
    scale = (np.abs(RNG.normal(size=(4, 2))) / 50 + 0.01).astype(np.float32)
    zero = RNG.integers(-5, 5, (4, 2)).astype(np.int8)
    names = ["scale", "zero"]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", *names], ["q"], axis=1, block_size=4),
        helper.make_node("DequantizeLinear", ["q", *names], ["y"], axis=1, block_size=4),
    ]
    infos = [helper.make_tensor_value_info(n, Kind.FLOAT, [4, 8]) for n in "xy"]
    given = [onnx.numpy_helper.from_array(v, n) for n, v in zip(names, (scale, zero), strict=True)]
    graph = helper.make_graph(nodes, "net", infos[:1], infos[1:], given)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    data = made.SerializeToString()
    np.testing.assert_allclose(ct.InferenceSession(data)(X), theirs(data), atol=1e-6)


def test_a_bias_has_blocks_too() -> None:
    """A vector of eight bits whose scales are fewer than its numbers."""
    stored = {"q": RNG.integers(-100, 100, 8, np.int8), "zero": np.array([3, -2], np.int8)}
    stored["scale"] = np.array([0.1, 0.02], np.float32)
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["w"], axis=0, block_size=4),
        helper.make_node("Add", ["x", "w"], ["y"]),
    ]
    infos = [helper.make_tensor_value_info(name, Kind.FLOAT, ["n", 8]) for name in "xy"]
    constants = [onnx.numpy_helper.from_array(value, name) for name, value in stored.items()]
    graph = helper.make_graph(nodes, "net", infos[:1], infos[1:], constants)
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    wanted = onnx.reference.ReferenceEvaluator(data).run(None, {"x": X})[0]
    np.testing.assert_allclose(ct.InferenceSession(data)(X), wanted, atol=1e-5)
