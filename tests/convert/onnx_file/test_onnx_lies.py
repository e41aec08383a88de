"""ONNX files that are well formed and say what cannot be: a sentence each. And what few files hold, sparse initializers."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import circle_train as ct  # noqa: E402

WEIGHT = np.array([[0, 2, 0], [0, 0, 3]], np.float32)


def model(kind: int = TensorProto.FLOAT) -> Any:
    x, y = (helper.make_tensor_value_info(n, kind, ["N", s]) for n, s in (("x", 2), ("y", 3)))
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", [x], [y], [numpy_helper.from_array(WEIGHT, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def sparse(proto: Any, indices: np.ndarray, dims: Sequence[int] = (2, 3)) -> Any:
    del proto.graph.initializer[:]
    values = numpy_helper.from_array(np.array([2, 3], np.float32), "w")
    places = numpy_helper.from_array(indices, "places")
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, dims))
    return proto


def no_shape(proto: Any) -> None:
    proto.graph.input[0].type.tensor_type.ClearField("shape")


def a_sequence(proto: Any) -> None:
    element = helper.make_tensor_type_proto(TensorProto.FLOAT, [2])
    proto.graph.input[0].type.CopyFrom(helper.make_sequence_type_proto(element))


def external(kind: int) -> Callable[[Any], None]:
    def lie(proto: Any) -> None:
        tensor = proto.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_type, tensor.data_location = kind, TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="w.data")

    return lie


LIES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "no graph": (lambda p: p.ClearField("graph"), "found no graph or no opset"),
    "no opset": (lambda p: p.ClearField("opset_import"), "found no graph or no opset"),
    "an input without a shape": (no_shape, "input 'x' has no shape"),
    "an input that is a list": (
        a_sequence,
        "input 'x' is of sequence_type, expected a tensor|input 'x' is of",
    ),
    "an input of words": (
        lambda p: setattr(p.graph.input[0].type.tensor_type, "elem_type", TensorProto.STRING),
        "input 'x' has element type STRING",
    ),
    "an input of no type that there is": (
        lambda p: setattr(p.graph.input[0].type.tensor_type, "elem_type", 77),
        "input 'x' has element type number 77",
    ),
    "elements in a file beside bytes": (
        external(TensorProto.FLOAT),
        "lies in the file 'w.data'; load the model",
    ),
    "sparse places beyond the shape": (
        lambda p: sparse(p, np.array([[0, 1], [5, 2]], np.int64)),
        "initializer 'w' do not fill",
    ),
    "a sparse place counted from the end": (
        lambda p: sparse(p, np.array([0, -1], np.int64)),
        "no rising places of their own",
    ),
    "one sparse place for two values": (
        lambda p: sparse(p, np.array([1], np.int64)),
        "no rising places of their own",
    ),
    "a sparse place twice": (
        lambda p: sparse(p, np.array([[0, 1], [0, 1]], np.int64)),
        "no rising places of their own",
    ),
    "two values in the zeros of a million": (
        lambda p: sparse(p, np.array([0, 1], np.int64), [20_000, 20_000]),
        "whose zeros take too much memory",
    ),
}


@pytest.mark.parametrize("name", LIES)
def test_a_lie_is_told_by_its_name(name: str) -> None:
    lie, message = LIES[name]
    proto = model()
    lie(proto)
    with pytest.raises(ct.ConversionError, match=message):
        ct.load(proto.SerializeToString())


def test_a_type_that_nothing_computes_in_is_named(tmp_path: Any) -> None:
    proto = model()
    external(TensorProto.FLOAT8E4M3FN)(proto)
    (tmp_path / "w.data").write_bytes(bytes(64))
    (tmp_path / "a.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(ct.ConversionError, match="'w' has element type FLOAT8E4M3FN"):
        ct.load(tmp_path / "a.onnx")


def test_a_folder_is_no_model(tmp_path: Any) -> None:
    (tmp_path / "a.onnx").mkdir()
    with pytest.raises(ct.CircleTrainError, match=r"a\.onnx"):
        ct.load(tmp_path / "a.onnx")


@pytest.mark.parametrize("indices", [[1, 5], [[0, 1], [1, 2]]], ids=["counted through", "by axes"])
def test_sparse_initializers_are_weights(indices: Any) -> None:
    x = np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32)
    data = sparse(model(), np.array(indices, np.int64)).SerializeToString()
    np.testing.assert_allclose(ct.InferenceSession(data)(x), x @ WEIGHT, rtol=1e-6)
    session = ct.TrainSession(
        data, ct.TrainConfig(loss="mse", optimizer="sgd", batch_size=4, trainable="all")
    )
    assert np.isfinite(session.train_step(x, np.zeros((4, 3), np.float32)).loss)


def test_an_open_file_is_read() -> None:
    x = np.ones((1, 2), np.float32)
    np.testing.assert_allclose(
        ct.InferenceSession(ct.load(io.BytesIO(model().SerializeToString())))(x), x @ WEIGHT
    )


def test_nodes_stand_in_any_order() -> None:
    """As float16 converters leave them, whose casts come last; also within a branch."""
    names = ["product", "above", "twice"]
    nodes = [
        helper.make_node("MatMul", ["cast", "w"], names[:1]),
        helper.make_node("Abs", ["twice"], ["size"]),
        helper.make_node("Add", ["product", "above"], ["twice"]),
        helper.make_node("Relu", ["product"], ["above"]),
    ]
    inner = helper.make_graph(nodes, "inner", [], [helper.make_tensor_value_info("size", 1, ["N", 3])])
    proto = model()
    proto.graph.ClearField("node")
    proto.graph.initializer.append(numpy_helper.from_array(np.array(True), "always"))
    outer = helper.make_node("If", ["always"], ["chosen"], then_branch=inner, else_branch=inner)
    cast = helper.make_node("Cast", ["x"], ["cast"], to=TensorProto.FLOAT)
    proto.graph.node.extend([helper.make_node("Neg", ["chosen"], ["y"]), outer, cast])
    x = np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32)
    wanted = -np.abs(x @ WEIGHT + np.maximum(x @ WEIGHT, 0))
    np.testing.assert_allclose(ct.InferenceSession(proto.SerializeToString())(x), wanted, rtol=1e-6)
