"""Open sizes are derived from what operators say of them, not from examples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import circle_train as ct  # noqa: E402
from circle_train.ir.tensor_type import Array  # noqa: E402

RNG = np.random.default_rng(0)


def weights(*shape: int) -> Array:
    return RNG.normal(size=shape).astype(np.float32)


def model(
    nodes: list[Any], inputs: dict[str, list[Any]], initializers: dict[str, Array], outputs: str = "y"
) -> bytes:
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in inputs.items()]
    graph = helper.make_graph(
        nodes, "g", info, [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
        [numpy_helper.from_array(array, name) for name, array in initializers.items()],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    content: bytes = made.SerializeToString()
    return content


def agrees(content: bytes, feeds: dict[str, Array], loaded: ct.Model | None = None) -> None:
    """Ours and onnxruntime's outputs are equal, shapes included."""
    expected = ort.InferenceSession(content).run(None, feeds)
    found = ct.InferenceSession(loaded or ct.load(content)).run(None, feeds)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_stride_longer_than_the_examples_leaves_the_length_open() -> None:
    """Every length near the examples gives one frame; that is no reason to fix it to one."""
    node = helper.make_node("Conv", ["x", "w"], ["y"], strides=[64])
    content = model([node], {"x": ["B", 1, "N"]}, {"w": weights(4, 1, 2)})
    loaded = ct.load(content)
    assert loaded.outputs[0].shape == (-1, 4, -1)
    for batch, length in ((2, 200), (1, 64), (3, 1025)):
        agrees(content, {"x": weights(batch, 1, length)}, loaded)


@pytest.mark.parametrize("padding", ["SAME_UPPER", "SAME_LOWER"])
def test_padding_that_depends_on_the_size_is_right_at_odd_and_even_ones(padding: str) -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], strides=[2, 2], auto_pad=padding)
    content = model([node], {"x": ["B", 3, "H", "W"]}, {"w": weights(4, 3, 3, 3)})
    loaded = ct.load(content)
    for height, width in ((8, 9), (9, 8), (7, 7)):
        agrees(content, {"x": weights(1, 3, height, width)}, loaded)


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("options", [{}, {"pads": [1, 1, 1, 1]}], ids=["plain", "padded"])
def test_pools_that_round_up_are_right_at_every_size(kind: str, options: dict[str, Any]) -> None:
    node = helper.make_node(kind, ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1, **options)
    content = model([node], {"x": ["B", 3, "H", "W"]}, {})
    loaded = ct.load(content)
    for height, width in ((8, 9), (10, 7), (12, 12)):
        agrees(content, {"x": weights(2, 3, height, width)}, loaded)


def test_weights_decide_features_that_are_open() -> None:
    content = model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": ["T", "B", "F"]}, {"w": weights(24, 5)}
    )
    loaded = ct.load(content)
    assert loaded.inputs[0].shape == (-1, -1, 24)
    agrees(content, {"x": weights(3, 2, 24)}, loaded)


@pytest.mark.parametrize("kind", ["MatMul", "Gemm"])
def test_the_columns_of_a_first_layer_are_what_its_weights_take(kind: str) -> None:
    """Rows of as many columns as are a multiple would fit the operator, but not the model."""
    content = model([helper.make_node(kind, ["x", "w"], ["y"])], {"x": ["B", "F"]}, {"w": weights(15, 3)})
    loaded = ct.load(content)
    assert loaded.inputs[0].shape == (-1, 15)
    agrees(content, {"x": weights(4, 15)}, loaded)


def test_unnamed_sizes_that_must_be_equal_are_one() -> None:
    """The state's second axis is the batch, though nothing names either."""
    nodes = [
        helper.make_node("Split", ["state"], ["a", "b"], axis=0, num_outputs=2),
        helper.make_node("Squeeze", ["a", "zero"], ["a0"]),
        helper.make_node("Concat", ["x", "a0"], ["y"], axis=1),
        helper.make_node("Identity", ["b"], ["z"]),
    ]
    content = model(
        nodes, {"x": [None, 4], "state": [2, None, 6]}, {"zero": np.array([0], np.int64)}, outputs="yz"
    )
    loaded = ct.load(content)
    assert [t.shape for t in loaded.inputs] == [(-1, 4), (2, -1, 6)]
    agrees(content, {"x": weights(5, 4), "state": weights(2, 5, 6)}, loaded)


def test_a_network_with_skips_takes_what_its_strides_divide() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("ConvTranspose", ["a", "u"], ["b"], strides=[2, 2]),
        helper.make_node("Concat", ["b", "x"], ["y"], axis=1),
    ]
    content = model(nodes, {"x": ["B", 3, "H", "W"]}, {"w": weights(4, 3, 3, 3), "u": weights(4, 3, 2, 2)})
    loaded = ct.load(content)
    for height, width in ((8, 6), (32, 64)):
        agrees(content, {"x": weights(1, 3, height, width)}, loaded)


def test_lines_of_text_are_of_any_height_that_comes_down_to_one_row() -> None:
    """As PP-OCR's recognisers: the height is open, and what follows holds for those alone that leave one row."""
    constants = {"axis": np.array([3]), "batch": np.array([0])}
    nodes = [
        helper.make_node("MaxPool", ["x"], ["few"], kernel_shape=[16, 4], strides=[16, 4]),
        helper.make_node("AveragePool", ["few"], ["row"], kernel_shape=[3, 2], strides=[3, 2]),
        helper.make_node("Shape", ["row"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "axis"], ["long"]),
        helper.make_node("Concat", ["batch", "long"], ["wanted"], axis=0),
        helper.make_node("Reshape", ["row", "wanted"], ["y"]),
    ]
    content = model(nodes, {"x": ["B", 1, "H", "W"]}, constants)
    loaded = ct.load(content)
    assert loaded.inputs[0].shape == (-1, 1, -1, -1)
    for batch, height, width in ((1, 48, 320), (3, 64, 96), (2, 80, 40)):
        agrees(content, {"x": weights(batch, 1, height, width)}, loaded)


@pytest.mark.parametrize("length", ["N", 50])
def test_windows_of_a_signal_as_tensorflow_frames_it(length: Any) -> None:
    """As tf.signal.frame: what no block holds is cut off, and windows are counted by integers that may fall below 0.

    Rows of them are collected by a loop over the batch, whose results must have a size that is known outside it.
    """
    block, frame, step = 8, 24, 16
    integers = {
        "0": 0, "1": 1, "block": block, "frame": frame, "step": step,
        "first": [0], "second": [1], "per": [step // block],
        "parts": [list(range(frame // block))], "flat": [-1, frame],
    }  # fmt: skip
    node = helper.make_node
    body = [
        node("Gather", ["x", "turn"], ["row"], axis=0),
        node("Shape", ["row"], ["sizes"]),
        node("Squeeze", ["sizes", "first"], ["long"]),
        node("Sub", ["long", "frame"], ["after"]),
        node("Div", ["after", "step"], ["more"]),
        node("Add", ["more", "1"], ["counted"]),
        node("Max", ["counted", "0"], ["frames"]),
        node("Range", ["0", "frames", "1"], ["numbers"]),
        node("Unsqueeze", ["numbers", "second"], ["column"]),
        node("Mul", ["column", "per"], ["begins"]),
        node("Add", ["begins", "parts"], ["chosen"]),
        node("Div", ["long", "block"], ["blocks"]),
        node("Mul", ["blocks", "block"], ["kept"]),
        node("Unsqueeze", ["kept", "first"], ["end"]),
        node("Slice", ["row", "first", "end", "first"], ["cut"]),
        node("Unsqueeze", ["blocks", "first"], ["rows"]),
        node("Unsqueeze", ["block", "first"], ["columns"]),
        node("Concat", ["rows", "columns"], ["blocked"], axis=0),
        node("Reshape", ["cut", "blocked"], ["in_blocks"]),
        node("Gather", ["in_blocks", "chosen"], ["taken"], axis=0),
        node("Reshape", ["taken", "flat"], ["framed"]),
        node("Identity", ["going"], ["goes_on"]),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        body, "body", [info("turn", TensorProto.INT64, []), info("going", TensorProto.BOOL, [])],
        [info("goes_on", TensorProto.BOOL, []), info("framed", TensorProto.FLOAT, None)],
    )  # fmt: skip
    nodes = [
        node("Shape", ["x"], ["shape"], end=1),
        node("Squeeze", ["shape"], ["batch"]),
        node("Loop", ["batch", ""], ["y"], body=graph),
    ]
    constants = {name: np.array(value) for name, value in integers.items()}
    content = model(nodes, {"x": ["B", length]}, constants)
    loaded = ct.load(content)
    assert loaded.inputs[0].shape == (-1, -1 if length == "N" else length)
    for batch, many in ((2, 50), (3, 131), (1, 24)) if length == "N" else ((2, 50), (1, 50)):
        agrees(content, {"x": weights(batch, many)}, loaded)


def test_the_first_axis_may_be_time() -> None:
    """Frames × bands, as madmom's networks take them: two frames, as one would give a batch, are less than a window."""
    nodes = [
        helper.make_node("Unsqueeze", ["x", "axes"], ["image"]),
        helper.make_node("Conv", ["image", "w"], ["filtered"]),
        helper.make_node("MaxPool", ["filtered"], ["pooled"], kernel_shape=[1, 3], strides=[1, 3]),
        helper.make_node("Conv", ["pooled", "v"], ["z"]),
        helper.make_node("Squeeze", ["z", "axis"], ["y"]),
    ]
    constants = {
        "w": weights(4, 1, 3, 3),
        "v": weights(5, 4, 3, 8),
        "axes": np.array([0, 1]),
        "axis": np.array([0]),
    }
    content = model(nodes, {"x": ["T", "F"]}, constants)
    loaded = ct.load(content)
    for frames, bands in ((20, 30), (5, 26), (64, 41)):
        agrees(content, {"x": weights(frames, bands)}, loaded)


def test_an_edge_of_one_row_is_no_size_that_grows() -> None:
    """The last five rows, if there are so many, and their edges: the file states a height of 1, and slices one row."""
    nodes = [
        helper.make_node("Slice", ["x", "begin", "end", "axis"], ["rows"]),
        helper.make_node("Pad", ["rows", "pads"], ["y"], mode="edge"),
    ]
    constants = {
        "begin": np.array([-5]), "end": np.array([1 << 40]), "axis": np.array([2]),
        "pads": np.array([0, 0, 2, 2, 0, 0, 2, 2]),
    }  # fmt: skip
    content = model(nodes, {"x": ["N", 3, "H", "W"]}, constants)
    loaded = ct.load(content)
    for shape in ((1, 3, 12, 20), (2, 3, 4, 6), (1, 3, 1, 1)):
        agrees(content, {"x": weights(*shape)}, loaded)


def test_halves_of_one_row_that_something_is_divided_by() -> None:
    """Images are cropped to even sizes and divided by half of them; the smallest image that a file could state has no half."""
    nodes = [
        helper.make_node("Shape", ["x"], ["height"], start=1, end=2),
        helper.make_node("Div", ["height", "two"], ["half"]),
        helper.make_node("Div", ["height", "half"], ["times"]),
        helper.make_node("Cast", ["times"], ["factor"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["x", "factor"], ["y"]),
    ]
    content = model(nodes, {"x": ["N", "H"]}, {"two": np.array([2])})
    loaded = ct.load(content)
    for shape in ((2, 12), (1, 9), (3, 2)):
        agrees(content, {"x": weights(*shape)}, loaded)


def test_an_example_at_which_something_is_divided_by_zero_is_not_the_only_one() -> None:
    """Two samples stand for the batch at first; two less is nothing, by which sixty are divided."""
    nodes = [
        helper.make_node("Shape", ["x"], ["samples"], start=0, end=1),
        helper.make_node("Sub", ["samples", "two"], ["fewer"]),
        helper.make_node("Div", ["sixty", "fewer"], ["share"]),
        helper.make_node("Cast", ["share"], ["factor"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["x", "factor"], ["y"]),
    ]
    content = model(nodes, {"x": ["N", 4]}, {"two": np.array([2]), "sixty": np.array([60])})
    loaded = ct.load(content)
    for samples in (5, 12):
        agrees(content, {"x": weights(samples, 4)}, loaded)
