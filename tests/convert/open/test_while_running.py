"""Sizes and indices that are known only while running."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_open_operators import FLOAT, INT64, helper, numbers, onnx, sessions


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize(("op", "updates"), [("ScatterElements", (6, 5)), ("ScatterND", (6, 2))])
def test_scattering_by_indices_that_repeat(
    op: str, updates: tuple[int, int], reduction: str, tmp_path: Path
) -> None:
    """The last wins where nothing is said, as in onnxruntime; the .tflite does the same in LiteRT."""
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    indices = (*updates, *([1] if op == "ScatterND" else []))
    info, rng = helper.make_tensor_value_info, np.random.default_rng(len(reduction))
    u_shape = (*updates, 5) if op == "ScatterND" else updates
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "i", "u"], ["y"], reduction=reduction)], "net",
        [info("x", FLOAT, [4, 5]), info("i", INT64, indices), info("u", FLOAT, u_shape)], [info("y", FLOAT, [4, 5])],
    )  # fmt: skip
    ours, theirs = sessions(graph)
    feeds = {"x": numbers((4, 5)), "i": rng.integers(-4, 4, indices), "u": numbers(u_shape)}
    expected = theirs.run(None, feeds)[0]
    np.testing.assert_allclose(ours.run(None, feeds)[0], expected, rtol=1e-5)
    ours.model.save(tmp_path / "net.tflite")
    run = litert.Interpreter(str(tmp_path / "net.tflite"))
    run.allocate_tensors()
    for detail in run.get_input_details():
        run.set_tensor(detail["index"], feeds[detail["name"]])
    run.invoke()
    np.testing.assert_allclose(run.get_tensor(run.get_output_details()[0]["index"]), expected, rtol=1e-5)


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("strides", [1, 2])
def test_layers_over_a_length_that_the_data_decides(rank: int, strides: int) -> None:
    """As a speech model repeats what it says by the durations that it has found."""
    node, info = helper.make_node, helper.make_tensor_value_info
    pads, weight = [1, 2] if rank == 1 else [1, 0, 2, 0], numbers((4, 3, 3) if rank == 1 else (4, 3, 3, 1))
    nodes = [
        node("ReduceMax", ["x"], ["most"], axes=[0, 1, *range(3, 2 + rank)], keepdims=0),
        node("Greater", ["most", "zero"], ["wanted"]),
        node("NonZero", ["wanted"], ["found"]),
        node("Squeeze", ["found", "first"], ["places"]),
        node("Gather", ["x", "places"], ["kept"], axis=2),
        node("Conv", ["kept", "w"], ["c"], pads=pads, strides=[strides] + [1] * (rank - 1)),
        node("Split", ["c", "halves"], ["low", "high"], axis=1),
        node("Mul", ["low", "high"], ["product"]),
        node("Gather", ["product", "ends"], ["y"], axis=2),
    ]  # fmt: skip
    shape = ["B", 3, "N", *([2] if rank == 2 else [])]
    constants = {
        "zero": np.float32(0.4), "first": np.array([0]), "halves": np.array([2, 2]), "ends": np.array([-1, 0]), "w": weight,
    }  # fmt: skip
    graph = helper.make_graph(
        nodes, "net", [info("x", FLOAT, shape)], [info("y", FLOAT, None), info("c", FLOAT, None)],
        [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )  # fmt: skip
    ours, theirs = sessions(graph)
    lengths = set()
    for size in (9, 14):
        x = numbers((2, 3, size, *([2] if rank == 2 else [])))
        for found, expected in zip(ours.run(None, {"x": x}), theirs.run(None, {"x": x}), strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-5)
        lengths.add(expected.shape[2])
    assert len(lengths) > 1


@pytest.mark.parametrize(
    ("op", "weight", "settings"),
    [
        ("AveragePool", None, {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}),
        ("MaxPool", None, {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1]}),
        ("ConvTranspose", (4, 2, 3, 2), {"strides": [2, 1], "output_padding": [1, 0]}),
        ("GridSample", (2, 3, 5, 2), {"align_corners": 1}),
        ("DepthToSpace", None, {"blocksize": 2}),
    ],
)
def test_layers_over_images_whose_height_the_data_decides(
    op: str, weight: tuple[int, ...] | None, settings: dict[str, object]
) -> None:
    node, info = helper.make_node, helper.make_tensor_value_info
    nodes = [
        node("ReduceMax", ["x"], ["most"], axes=[0, 1, 3], keepdims=0),
        node("Greater", ["most", "enough"], ["wanted"]),
        node("NonZero", ["wanted"], ["found"]),
        node("Squeeze", ["found", "first"], ["places"]),
        node("Gather", ["x", "places"], ["kept"], axis=2),
        node(op, ["kept", *(["w"] if weight else [])], ["y"], **settings),
    ]  # fmt: skip
    constants = {"enough": np.float32(0.4), "first": np.array([0])}
    if weight:
        constants["w"] = numbers(weight) / (4 if op == "GridSample" else 1)
    graph = helper.make_graph(
        nodes, "net", [info("x", FLOAT, ["B", 4, "N", 6])], [info("y", FLOAT, None)],
        [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )  # fmt: skip
    ours, theirs = sessions(graph)
    shapes = set()
    for size in (9, 14):
        x = numbers((2, 4, size, 6)) - np.float32(0.8)
        (found,), (expected,) = ours.run(None, {"x": x}), theirs.run(None, {"x": x})
        np.testing.assert_allclose(found, expected, atol=1e-5)
        shapes.add(expected.shape)
    assert len(shapes) > 1 or op == "GridSample"


def test_the_best_of_as_many_as_there_are() -> None:
    """As detectors take the best k boxes, or all where there are fewer."""
    node, info = helper.make_node, helper.make_tensor_value_info
    nodes = [
        node("Greater", ["x", "enough"], ["wanted"]),
        node("NonZero", ["wanted"], ["found"]),
        node("Squeeze", ["found", "first"], ["places"]),
        node("Gather", ["x", "places"], ["kept"], axis=0),
        node("Shape", ["kept"], ["many"]),
        node("Min", ["many", "most"], ["k"]),
        node("TopK", ["kept", "k"], ["y", "at"], axis=0),
        node("ArgMax", ["kept"], ["best"], axis=0, keepdims=1),
        node("GatherND", ["kept", "ends"], ["both"]),
    ]
    constants = {
        "enough": np.float32(0.3),
        "first": np.array([0]),
        "most": np.array([6]),
        "ends": np.array([[-1], [0]]),
    }
    graph = helper.make_graph(
        nodes, "net", [info("x", FLOAT, ["N"])],
        [info("y", FLOAT, None), info("at", INT64, None), info("best", INT64, None), info("both", FLOAT, None)],
        [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )  # fmt: skip
    ours, theirs = sessions(graph)
    shapes = set()
    for size in (6, 40):
        x = numbers((size,))
        for found, expected in zip(ours.run(None, {"x": x}), theirs.run(None, {"x": x}), strict=True):
            np.testing.assert_array_equal(found, expected)
            shapes.add(expected.shape)
    assert len(shapes) == 4


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
def test_the_largest_of_nothing(op: str) -> None:
    """A detector on a picture that shows nothing."""
    node, info = helper.make_node, helper.make_tensor_value_info
    nodes = [
        node("Greater", ["x", "enough"], ["wanted"]),
        node("NonZero", ["wanted"], ["found"]),
        node("Squeeze", ["found", "first"], ["places"]),
        node("Gather", ["x", "places"], ["kept"], axis=0),
        node(op, ["kept"], ["y"], axes=[0], keepdims=0),
    ]  # fmt: skip
    constants = {"enough": np.float32(0.3), "first": np.array([0])}
    graph = helper.make_graph(
        nodes, "net", [info("x", FLOAT, ["N"])], [info("y", FLOAT, None)],
        [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )  # fmt: skip
    ours, theirs = sessions(graph)
    for x in (numbers((9,)), np.zeros(4, np.float32)):
        np.testing.assert_array_equal(ours.run(None, {"x": x})[0], theirs.run(None, {"x": x})[0])
