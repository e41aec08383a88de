"""Sizes that a file lost, found by running it."""

from __future__ import annotations

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
from onnx import helper  # noqa: E402
from test_open_sizes import agrees, model, weights  # noqa: E402

import circle_train as ct  # noqa: E402

HEADS = """
    (float[B, T, 8] x) => (float[L, M, N, K] y) {
        apart = Constant <value: tensor = int64[4] {-1, 4, 4, 2}> ()
        own = Constant <value: tensor = int64[4] {0, 0, 4, 2}> ()
        shape = Shape <start: int = 0, end: int = 1> (x)
        count = Constant <value: tensor = int64[1] {4}> ()
        n = Mul (shape, count)
        two = Constant <value: tensor = int64[1] {2}> ()
        target = Concat <axis: int = 0> (count, n, two)
        turned = Transpose <perm: ints = [1, 0, 2]> (x)
        joined = Reshape (turned, target)
        first = Transpose <perm: ints = [1, 0, 2]> (joined)
        k = Reshape (first, apart)
        ready = Transpose <perm: ints = [0, 1, 3, 2]> (k)
        split = Reshape (x, own)
        q = Transpose <perm: ints = [0, 2, 1, 3]> (split)
        y = MatMul (q, ready)
    }
"""


def test_a_length_that_an_exporter_left_in_the_shapes_is_found() -> None:
    """torch.onnx.export of nn.MultiheadAttention with an open batch and length: the length is the example's."""
    made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g {HEADS}')
    content = made.SerializeToString()
    loaded = ct.load(content)
    assert loaded.inputs[0].shape == (-1, 4, 8)
    for batch in (1, 3):
        agrees(content, {"x": weights(batch, 4, 8)}, loaded)


@pytest.mark.parametrize("places", [36, 25])
def test_sizes_that_only_the_exporter_knew_are_found(places: int) -> None:
    """Height and width are open in name; what the file reshapes to fits few of them, which are computed."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["cells"], strides=[16, 16]),
        helper.make_node("Reshape", ["cells", "rows"], ["tokens"]),
        helper.make_node("Add", ["tokens", "places"], ["y"]),
    ]
    constants = {"w": weights(8, 3, 16, 16) / 30, "places": weights(8, places)}
    content = model(nodes, {"x": ["N", 3, "H", "W"]}, constants | {"rows": np.array([0, 8, places])})
    loaded, size = ct.load(content), 16 * int(places**0.5)
    for sizes in ((size, size), (size + 5, size), (16, 16 * places)):
        agrees(content, {"x": weights(2, 3, *sizes)}, loaded)
    with pytest.raises(ct.CircleTrainError, match="elements"):
        ct.InferenceSession(loaded)(weights(2, 3, 224, 224))


def test_a_size_of_which_nothing_is_said_is_looked_for_among_usual_ones() -> None:
    """What is added has the places of pictures of 640 × 640."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["cells"], strides=[16, 16]),
        helper.make_node("Reshape", ["cells", "rows"], ["tokens"]),
        helper.make_node("Add", ["tokens", "places"], ["y"]),
    ]
    constants = {"w": weights(8, 3, 16, 16) / 30, "places": weights(8, 1600), "rows": np.array([0, 8, -1])}
    content = model(nodes, {"x": ["N", 3, "H", "W"]}, constants)
    loaded = ct.load(content)
    assert loaded.inputs[0].shape in ((-1, 3, -1, -1), (-1, 3, 640, 640))
    agrees(content, {"x": weights(2, 3, 640, 640)}, loaded)


def test_sizes_that_constants_and_features_speak_of_are_found_together() -> None:
    """A network of sounds, all of whose sizes are open: what is added has 80 × 3, and a product takes 10 maps."""
    nodes = [
        helper.make_node("Add", ["x", "means"], ["centred"]),
        helper.make_node("Transpose", ["centred"], ["turned"], perm=[2, 0, 1]),
        helper.make_node("Unsqueeze", ["turned", "zero"], ["image"]),
        helper.make_node("Conv", ["image", "w"], ["maps"]),
        helper.make_node("Squeeze", ["maps", "zero"], ["flat"]),
        helper.make_node("Transpose", ["flat"], ["steps"], perm=[1, 0, 2]),
        helper.make_node("Reshape", ["steps", "rows"], ["features"]),
        helper.make_node("MatMul", ["features", "v"], ["y"]),
    ]
    constants = {"means": weights(80, 3), "w": weights(10, 3, 35, 3) / 20, "v": weights(780, 4) / 30}
    constants |= {"zero": np.array([0]), "rows": np.array([-1, 780])}
    content = model(nodes, {"x": ["T", "F", "C"]}, constants)
    loaded = ct.load(content)
    for length in (50, 35):
        agrees(content, {"x": weights(length, 80, 3)}, loaded)
