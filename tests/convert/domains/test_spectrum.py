"""The magnitudes of a real Fourier transform, of a file that TensorFlow's converter wrote."""

from __future__ import annotations

import numpy as np
import pytest

import circle_train as ct


def test_magnitudes_are_those_of_the_transform() -> None:
    x = np.random.default_rng(0).normal(size=(2, 64)).astype(np.float32)
    found = ct.InferenceSession("tests/data/control/rfft.tflite")(x)
    np.testing.assert_allclose(found, np.abs(np.fft.rfft(x)), rtol=1e-4, atol=1e-4)


def test_the_triangles_of_a_mel_scale() -> None:
    """Numbers of a formula: computed when the model is read."""
    onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    helper = onnx.helper
    numbers = {
        "bins": np.array(6),
        "length": np.array(32),
        "rate": np.array(8192),
        "low": np.float32(100),
        "high": np.float32(4000),
    }
    nodes = [
        helper.make_node("MelWeightMatrix", list(numbers), ["w"]),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    given = [onnx.numpy_helper.from_array(np.asarray(v), n) for n, v in numbers.items()]
    infos = [
        helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["n", k]) for n, k in (("x", 17), ("y", 6))
    ]
    graph = helper.make_graph(nodes, "net", infos[:1], infos[1:], given)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    data = model.SerializeToString()
    x = np.random.default_rng(0).random((3, 17), np.float32)
    wanted = onnxruntime.InferenceSession(data).run(None, {"x": x})[0]
    np.testing.assert_allclose(ct.InferenceSession(data)(x), wanted, atol=1e-6)
