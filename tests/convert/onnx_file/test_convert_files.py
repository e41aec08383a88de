"""Where weights lie in ONNX files: initializers of any type, Constant nodes, other files; and the way back."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

import circle_train as ct  # noqa: E402

RANDOM = np.random.default_rng(3)
W = RANDOM.standard_normal((4, 4)).astype(np.float32)
X = RANDOM.standard_normal((2, 4)).astype(np.float32)
TO_FLOAT, PRODUCT = (
    helper.make_node("Cast", ["w"], ["u"], to=1),
    helper.make_node("MatMul", ["x", "u"], ["y"]),
)


def save(path: Path, nodes: list[Any], *initializers: Any) -> Path:
    info = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4])  # noqa: E731
    graph = helper.make_graph(nodes, "g", [info("x")], [info("y")], list(initializers))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def step_and_back(path: Path, weight: str, tolerance: float = 1e-6) -> onnx.ModelProto:
    """One step of training changes this weight, and the file that is written computes what the session does."""
    session = ct.TrainSession(
        path, ct.TrainConfig(loss="mse", optimizer="sgd", batch_size=2, trainable=lambda name: name == weight)
    )
    np.testing.assert_allclose(
        session.predict(X), ReferenceEvaluator(onnx.load(path)).run(None, {"x": X})[0], atol=1e-6
    )
    before = session.parameters[weight].copy()
    session.train_step(X, np.zeros((2, 4), np.float32))
    assert (session.parameters[weight] != before).any()
    out = path.with_name("trained.onnx")
    session.export(out)
    (found,) = ReferenceEvaluator(str(out)).run(None, {"x": X})
    np.testing.assert_allclose(found, session.predict(X), atol=tolerance)
    return onnx.load(out, load_external_data=False)


def test_weights_in_constant_nodes_are_trained_where_there_are_no_others(tmp_path: Path) -> None:
    nodes = [helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(W)), TO_FLOAT, PRODUCT]
    trained = step_and_back(save(tmp_path / "net.onnx", nodes), "w")
    assert [node.op_type for node in trained.graph.node] == ["Constant", "Cast", "MatMul"]
    assert not trained.graph.initializer


def test_a_vector_in_a_constant_node_is_a_number_of_the_formula_beside_initializers(tmp_path: Path) -> None:
    mean = helper.make_node("Constant", [], ["mean"], value=numpy_helper.from_array(W[0]))
    nodes = [
        mean,
        helper.make_node("Sub", ["x", "mean"], ["a"]),
        helper.make_node("MatMul", ["a", "w"], ["y"]),
    ]
    session = ct.TrainSession(
        save(tmp_path / "net.onnx", nodes, numpy_helper.from_array(W, "w")), ct.TrainConfig(loss="mse")
    )
    assert list(session.parameters) == ["w"]


def test_a_scalar_comes_back_as_a_scalar(tmp_path: Path) -> None:
    nodes = [helper.make_node("Mul", ["x", "s"], ["y"])]
    path = save(tmp_path / "net.onnx", nodes, numpy_helper.from_array(np.float32(2), "s"))
    assert list(step_and_back(path, "s").graph.initializer[0].dims) == []


def bfloat16(raw: bool) -> Any:
    bits = (W.view(np.uint32) >> 16).astype(np.uint16)
    tensor = TensorProto(name="w", data_type=TensorProto.BFLOAT16, dims=[4, 4])
    if raw:
        tensor.raw_data = bits.tobytes()
    else:
        tensor.int32_data.extend(bits.reshape(-1).tolist())
    return tensor


@pytest.mark.parametrize("raw", [True, False])
def test_bfloat16_weights_are_computed_as_floats(raw: bool, tmp_path: Path) -> None:
    trained = step_and_back(save(tmp_path / "net.onnx", [TO_FLOAT, PRODUCT], bfloat16(raw)), "w", 0.05)
    assert trained.graph.initializer[0].data_type == TensorProto.BFLOAT16


def test_types_that_circle_does_not_compute_are_named(tmp_path: Path) -> None:
    made = helper.make_tensor("w", TensorProto.FLOAT8E4M3FN, [4, 4], bytes(16), raw=True)
    with pytest.raises(
        ct.ConversionError, match="'w' has element type float8_e4m3fn, which Circle does not compute"
    ):
        ct.load(save(tmp_path / "net.onnx", [TO_FLOAT, PRODUCT], made))


def external(location: str, kind: int = TensorProto.FLOAT, **facts: Any) -> Any:
    tensor = TensorProto(name="w", data_type=kind, dims=[4, 4], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **facts}.items():
        entry = tensor.external_data.add()
        entry.key, entry.value = key, str(value)
    return tensor


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.BFLOAT16])
def test_external_data_stays_external(kind: int, tmp_path: Path) -> None:
    data = W if kind == TensorProto.FLOAT else (W.view(np.uint32) >> 16).astype(np.uint16)
    (tmp_path / "w.bin").write_bytes(data.tobytes())
    trained = step_and_back(
        save(tmp_path / "net.onnx", [TO_FLOAT, PRODUCT], external("w.bin", kind)), "w", 0.05
    )
    (tensor,) = trained.graph.initializer
    assert tensor.data_location == TensorProto.EXTERNAL and not tensor.raw_data
    assert (tmp_path / "w.bin").read_bytes() == data.tobytes()


@pytest.mark.parametrize(
    ("location", "facts", "message"),
    [
        ("../secret", {}, "lies outside the model's folder"),
        ("/etc/passwd", {}, "lies outside the model's folder"),
        ("a/../../secret", {}, "lies outside the model's folder"),
        ("link", {}, "lies outside the model's folder"),
        ("missing", {}, "which is missing; put the file beside"),
        ("", {}, "which is missing; put the file beside"),
        ("w.bin", {"offset": 4}, "which is shorter; put the file beside"),
        ("w.bin", {"offset": -4}, "needs 64 bytes at -4"),
        ("w.bin", {"offset": "x"}, "the file is damaged"),
        ("w.bin", {"length": 8}, "has 8 bytes in .* takes 64; export the model again"),
    ],
)
def test_external_data_that_is_not_there_or_not_ours_is_refused(
    location: str, facts: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(W.tobytes())
    (folder / "w.bin").write_bytes(W.tobytes())
    (folder / "link").symlink_to(tmp_path / "secret")
    graph = helper.make_graph([TO_FLOAT, PRODUCT], "g", [], [], [external(location, **facts)])
    graph.input.add().CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4]))
    graph.output.add().CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4]))
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    (folder / "net.onnx").write_bytes(made.SerializeToString())
    with pytest.raises(ct.ConversionError, match=message):
        ct.load(folder / "net.onnx")


def test_bytes_and_file_objects_are_told_apart_by_one_rule(tmp_path: Path) -> None:
    """Protocol Buffers allow fields in any order: a model may begin with any of them."""
    path = save(tmp_path / "net.onnx", [PRODUCT], numpy_helper.from_array(W, "u"))
    whole = onnx.load(path)
    whole.producer_name, whole.domain, whole.doc_string, whole.model_version = "p", "d", "s", 3
    parts = []
    for field, _ in whole.ListFields():
        part = onnx.ModelProto()
        part.CopyFrom(whole)
        for other, _ in whole.ListFields():
            if other.name != field.name:
                part.ClearField(other.name)
        parts.append(part.SerializeToString())
    ct.load(path).save(tmp_path / "net.circle")
    circle = (tmp_path / "net.circle").read_bytes()
    turned = [b"".join([*parts[start:], *parts[:start]]) for start in range(len(parts))]
    assert len(turned) > 6
    for data, is_onnx in [*((data, True) for data in turned), (circle, False)]:
        for source in (data, bytearray(data), memoryview(data), io.BytesIO(data)):
            assert (ct.load(source).provenance is not None) == is_onnx
    stranger = tmp_path / "x.bin"
    stranger.write_bytes(b"neither an ONNX model nor a Circle file")
    with stranger.open("rb") as file, pytest.raises(ct.ModelError, match=r"x\.bin: .*this is no such model"):
        ct.load(file)
