"""Scales of shipped weights and biases."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bfloat16_nets import IMAGES
from networks import finish, make, new_input, weight
from test_shipping import one_layer, session

import circle_train as ct
from circle_train.ir import DType, Graph
from circle_train.ir.tensor_type import Array


def test_weights_have_a_scale_for_each_output(tmp_path: Path) -> None:
    session().export(tmp_path / "x.tflite", quantize=ct.Int8(calibration=IMAGES))
    nodes = {node.op.name: node for node in ct.load(tmp_path / "x.tflite").module.main.nodes}
    for name, axis, count in (("CONV_2D", 0, 32), ("DEPTHWISE_CONV_2D", 3, 24), ("FULLY_CONNECTED", 0, 5)):
        x, w, b = nodes[name].inputs
        assert w.quantization.axis == axis
        assert len(w.quantization.scale) == count
        assert set(w.quantization.zero_point) == {0}
        products = np.array(w.quantization.scale, np.float32) * np.float32(x.quantization.scale[0])
        np.testing.assert_allclose(b.quantization.scale, products, rtol=1e-6)
        assert (x.dtype, w.dtype, b.dtype) == (DType.INT8, DType.INT8, DType.INT32)


def test_operators_keep_their_inputs_scale_where_litert_wants_it(tmp_path: Path) -> None:
    session().export(tmp_path / "x.tflite", quantize=ct.Int8(calibration=IMAGES))
    nodes = {node.op.name: node for node in ct.load(tmp_path / "x.tflite").module.main.nodes}
    pool = nodes["MAX_POOL_2D"]
    assert pool.inputs[0].quantization == pool.outputs[0].quantization


def test_fixed_scales_are_litert_s(tmp_path: Path) -> None:
    graph = Graph("net", [new_input("x", 1, 4)])
    parts = [graph.emit(make(name), graph.inputs[0], name=name) for name in ("SOFTMAX", "LOGISTIC", "TANH")]
    joined = graph.emit(make("CONCATENATION", axis=1), *parts, name="all")
    x = np.random.default_rng(0).normal(size=(16, 4)).astype(np.float32)
    net = ct.TrainSession(finish(graph, joined), ct.TrainConfig(batch_size=4, trainable="none"))
    net.export(tmp_path / "x.tflite", quantize=ct.Int8(calibration=x))
    model = ct.load(tmp_path / "x.tflite")
    found = {node.op.name: node.outputs[0].quantization for node in model.module.main.nodes}
    assert [found[n].scale[0] for n in ("SOFTMAX", "LOGISTIC", "TANH")] == [1 / 256, 1 / 256, 1 / 128]
    (concat,) = [node for node in model.module.main.nodes if node.op.name == "CONCATENATION"]
    assert len({tensor.quantization for tensor in (*concat.inputs, *concat.outputs)}) == 1


def test_biases_make_up_for_rounding(tmp_path: Path) -> None:
    """Weights that all round the same way shift the mean, which the bias brings back."""
    w = np.full((3, 64), 0.004, np.float32)
    w[:, 0] = 1.0
    x = 1 + np.random.default_rng(0).uniform(size=(64, 64)).astype(np.float32)
    net = session(one_layer(w))
    errors = {}
    for correct in (False, True):
        settings = ct.Int8(calibration=x, io="float32", correct_bias=correct)
        net.export(tmp_path / "x.tflite", quantize=settings)
        errors[correct] = abs((ct.InferenceSession(tmp_path / "x.tflite")(x) - net.predict(x)).mean())
    assert errors[True] < 0.05 * errors[False]


@pytest.mark.parametrize(
    ("w", "b"),
    [
        (np.zeros((3, 4)), None),
        (np.eye(3, 4) * np.array([[1e-12], [1.0], [0.0]]), np.array([5.0, 1.0, 2.0])),
        (np.full((3, 4), 1e-38), np.array([1.0, 0.0, 0.0])),
    ],
    ids=["zeros", "dead channels", "denormal"],
)
def test_odd_weights_are_shipped_right(w: Array, b: Array | None, tmp_path: Path) -> None:
    net = session(one_layer(w, b))
    x = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)
    net.export(tmp_path / "x.tflite", quantize=ct.Int8(calibration=x, io="float32"))
    found, expected = ct.InferenceSession(tmp_path / "x.tflite")(x), net.predict(x)
    assert np.abs(found - expected).max() <= 0.03 * max(np.abs(expected).max(), 1e-6)


def test_numbers_beyond_all_scales_are_refused(tmp_path: Path) -> None:
    net, x = session(one_layer(np.full((3, 4), 1e35))), np.ones((8, 4), np.float32)
    with pytest.raises(
        ct.ConfigError, match=r"quantize: '.*' would have steps of .*e\+\d\d, expected at most 1e\+\d\d"
    ):
        net.export(tmp_path / "x.tflite", quantize=ct.Int8(calibration=x))
    assert not list(tmp_path.iterdir())


def test_tied_weights_and_constant_inputs(tmp_path: Path) -> None:
    graph = Graph("net", [new_input("x", 1, 4)])
    w, b = weight("w", 4, 4), weight("b", 4)
    y = graph.emit(make("FULLY_CONNECTED"), graph.inputs[0], w, b, name="y")
    z = graph.emit(make("FULLY_CONNECTED"), y, w, b, name="z")
    x = np.ones((8, 4), np.float32)
    net = session(finish(graph, z))
    net.export(tmp_path / "x.tflite", quantize=ct.Int8(calibration=x, io="float32"))
    found, expected = ct.InferenceSession(tmp_path / "x.tflite")(x), net.predict(x)
    assert np.abs(found - expected).max() <= 0.03 * np.abs(expected).max()
