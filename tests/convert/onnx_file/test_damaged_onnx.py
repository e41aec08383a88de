"""Damaged and refused ONNX files."""

from __future__ import annotations

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper  # noqa: E402
from test_convert import array, model, node  # noqa: E402

from circle_train import convert  # noqa: E402
from circle_train.errors import CircleTrainError, ConversionError  # noqa: E402


def test_all_refusals_in_one_message() -> None:
    nodes = [node("MelWeightMatrix", "x", "i"), node("ImageDecoder", "x", "d"), node("Relu", "x", "y")]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 2])],
    )  # fmt: skip
    raw = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("com.example", 1), helper.make_opsetid("", 20)]
    )
    raw.graph.node.append(helper.make_node("Strange", ["x"], ["z"], name="odd", domain="com.example"))
    with pytest.raises(ConversionError) as caught:
        convert.load_onnx(raw.SerializeToString())
    message = str(caught.value)
    assert "3 nodes" in message
    assert "MelWeightMatrix 'n_i' (node 0)" in message
    assert "ImageDecoder 'n_d' (node 1)" in message
    assert "com.example.Strange" in message


def test_damaged_bytes_are_no_model() -> None:
    with pytest.raises(ConversionError, match=r"no ONNX model|found no graph"):
        convert.load_onnx(b"\x08\x07\xff\xff\xff garbage")
    raw = model([node("Relu", "x", "y")], {"x": [1]}, {"y": [1]})
    old = onnx.load_from_string(raw)
    old.opset_import[0].version = 3
    with pytest.raises(ConversionError, match=r"opset 3, expected 6 to"):
        convert.load_onnx(old.SerializeToString())


def test_damage_is_refused_or_harmless() -> None:
    """A byte changed anywhere, or the end cut off: a model still, or one of our errors."""
    nodes = [
        node("Conv", "x w b", "a", pads=[1, 1, 1, 1]),
        node("Relu", "a", "r"),
        node("Flatten", "r", "f"),
        node("Gemm", "f v", "y"),
    ]
    raw = model(
        nodes, {"x": ["n", 2, 4, 4]}, {"y": ["n", 3]}, w=array(2, 2, 3, 3), b=array(2), v=array(32, 3)
    )
    random = np.random.default_rng(8)
    refused = 0
    for _ in range(300):
        damaged = bytearray(raw)
        damaged[random.integers(len(raw))] = random.integers(256)
        damaged = damaged[: random.integers(len(raw))] if random.random() < 0.1 else damaged
        try:
            convert.load_onnx(bytes(damaged))
        except CircleTrainError:
            refused += 1
    assert 50 < refused < 300
