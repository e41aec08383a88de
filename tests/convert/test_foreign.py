"""ONNX operators that Circle has none for, against onnx's own evaluator and as files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import circle_train as ct

onnx = pytest.importorskip("onnx")
evaluator = pytest.importorskip("onnx.reference")
helper = onnx.helper
RNG = np.random.default_rng(0)


def model(operator: str, arrays: dict[str, Any], outputs: list[tuple[str, int]], **attributes: Any) -> bytes:
    """One node, all of whose inputs are the graph's."""
    kinds = {name: helper.np_dtype_to_tensor_dtype(value.dtype) for name, value in arrays.items()}
    inputs = [helper.make_tensor_value_info(n, kinds[n], v.shape) for n, v in arrays.items()]
    made = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs]
    node = helper.make_node(operator, list(arrays), [name for name, _ in outputs], **attributes)
    graph = helper.make_graph([node], "g", inputs, made)
    return bytes(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9
        ).SerializeToString()
    )


FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
X = RNG.standard_normal((2, 3, 6, 5)).astype(np.float32)
CASES = {
    "NonMaxSuppression": (
        {
            "boxes": np.sort(RNG.random((1, 8, 4)), axis=-1).astype(np.float32),
            "scores": RNG.random((1, 2, 8)).astype(np.float32),
            "most": np.array([3], np.int64), "overlap": np.array([0.4], np.float32), "least": np.array([0.1], np.float32),
        },
        [("y", INT64)], {},
    ),
    "Unique": (
        {"x": np.array([3, 1, 2, 1, 3], np.float32)},
        [("y", FLOAT), *((name, INT64) for name in "abc")], {"sorted": 0},
    ),
    "ScatterElements": (
        {"x": X[0, 0], "i": np.array([[0, 2, 1, 0, -1]], np.int64), "u": X[1, 0, :1]}, [("y", FLOAT)], {"reduction": "mul"},
    ),
    "ScatterND": (
        {"x": X[0, 0], "i": np.array([[1], [1]], np.int64), "u": X[1, 0, :2]}, [("y", FLOAT)], {"reduction": "max"},
    ),
    "Slice": (
        {"x": X, "s": np.array([1, -4], np.int64), "e": np.array([2, 100], np.int64), "a": np.array([1, -1], np.int64)},
        [("y", FLOAT)], {},
    ),
    "Pad": ({"x": X[0, 0], "p": np.array([1, 0, 0, 2], np.int64)}, [("y", FLOAT)], {"mode": "reflect"}),
    "ReduceSum": ({"x": X, "a": np.array([1, 3], np.int64)}, [("y", FLOAT)], {}),
    "Compress": ({"x": X[0, 0], "c": np.array([True, False, True])}, [("y", FLOAT)], {"axis": 0}),
    "Col2Im": (
        {"x": X[:, :, :4, :3].reshape(2, 12, 3)[:, :8], "i": np.array([2, 4], np.int64), "b": np.array([2, 2], np.int64)},
        [("y", FLOAT)], {},
    ),
    "Det": ({"x": X[:, :, :3, :3]}, [("y", FLOAT)], {}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_it_gives_what_the_standards_evaluator_gives(name: str, tmp_path: Path) -> None:
    arrays, outputs, attributes = CASES[name]
    source = model(name, arrays, outputs, **attributes)
    expected = evaluator.ReferenceEvaluator(onnx.load_from_string(source)).run(None, arrays)
    converted = ct.load(source)
    converted.save(tmp_path / "net.circle")
    for loaded in (converted, ct.load(tmp_path / "net.circle")):
        for ours, theirs in zip(ct.InferenceSession(loaded).run(None, arrays), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)


def bits_cast(shape: tuple[int, ...], to: int) -> bytes:
    info = helper.make_tensor_value_info
    node = helper.make_node("BitCast", ["x"], ["y"], to=to)
    graph = helper.make_graph([node], "g", [info("x", FLOAT, shape)], [info("y", to, shape)])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 26)], ir_version=10)
    return bytes(made.SerializeToString())


def test_the_bits_of_a_scalar_are_a_scalar() -> None:
    (found,) = ct.InferenceSession(bits_cast((), onnx.TensorProto.INT32)).run(None, {"x": np.float32(1)})
    assert found.shape == () and found == 0x3F800000


@pytest.mark.parametrize("to", [INT64, onnx.TensorProto.BOOL])
def test_bits_are_not_cast_to_another_width(to: int) -> None:
    with pytest.raises(
        ct.ConversionError, match=r"BitCast.*FLOAT32 to \w+, expected a type of the same width"
    ):
        ct.load(bits_cast((2, 3), to))


def test_no_tflite_file_is_written_of_what_no_runtime_computes(tmp_path: Path) -> None:
    arrays, outputs, attributes = CASES["Unique"]
    with pytest.raises(ct.UnsupportedOpError, match=r"ONNX's own.*save as \.circle"):
        ct.load(model("Unique", arrays, outputs, **attributes)).save(tmp_path / "net.tflite")
    assert not (tmp_path / "net.tflite").exists()


def scanned(length: int) -> bytes:
    """The running sum of rows, and each row times two."""
    f = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Add", ["s", "x"], ["s2"]),
            helper.make_node("Mul", ["x", "two"], ["y"]),
        ],
        "body", [f("s", FLOAT, [2]), f("x", FLOAT, [2])], [f("s2", FLOAT, [2]), f("y", FLOAT, [2])],
    )  # fmt: skip
    node = helper.make_node(
        "Scan", ["s0", "xs"], ["last", "ys"], body=body, num_scan_inputs=1, scan_output_directions=[1]
    )
    two = onnx.numpy_helper.from_array(np.array([2, 3], np.float32), "two")
    graph = helper.make_graph(
        [node],
        "g",
        [f("s0", FLOAT, [2]), f("xs", FLOAT, [length, 2])],
        [f("last", FLOAT, [2]), f("ys", FLOAT, [length, 2])],
        [two],
    )
    return bytes(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
        ).SerializeToString()
    )


def test_a_scan_of_known_length_is_written_out() -> None:
    source = scanned(4)
    feeds = {"s0": np.array([1, 2], np.float32), "xs": np.arange(8, dtype=np.float32).reshape(4, 2)}
    last, rows = ct.InferenceSession(source).run(None, feeds)
    np.testing.assert_allclose(last, feeds["s0"] + feeds["xs"].sum(0))
    np.testing.assert_allclose(rows, (feeds["xs"] * [2, 3])[::-1])


def looped(trips: int, stop_at: int) -> bytes:
    """v = 2 v + i, as long as i < stop_at; every v."""
    f = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Cast", ["i"], ["fi"], to=FLOAT),
            helper.make_node("Add", ["v", "v"], ["twice"]),
            helper.make_node("Add", ["twice", "fi"], ["v2"]),
            helper.make_node("Less", ["i", "end"], ["go"]),
            helper.make_node("Identity", ["v2"], ["each"]),
        ],
        "body", [f("i", INT64, []), f("c", onnx.TensorProto.BOOL, []), f("v", FLOAT, [3])],
        [f("go", onnx.TensorProto.BOOL, []), f("v2", FLOAT, [3]), f("each", FLOAT, [3])],
    )  # fmt: skip
    node = helper.make_node("Loop", ["trips", "", "x"], ["y", "all"], body=body)
    numbers = [
        onnx.numpy_helper.from_array(np.array(n, np.int64), name)
        for name, n in (("trips", trips), ("end", stop_at))
    ]
    graph = helper.make_graph(
        [node], "g", [f("x", FLOAT, [3])], [f("y", FLOAT, [3]), f("all", FLOAT, None)], numbers
    )
    return bytes(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
        ).SerializeToString()
    )


@pytest.mark.parametrize(("trips", "stop_at"), [(1, 9), (5, 9), (5, 2)])
def test_a_loop_whose_end_is_known_is_written_out(trips: int, stop_at: int) -> None:
    source = looped(trips, stop_at)
    feeds = {"x": np.array([1, -2, 0.5], np.float32)}
    expected = [feeds["x"]]
    for number in range(min(trips, stop_at + 1)):
        expected.append(2 * expected[-1] + number)
    last, every = ct.InferenceSession(source).run(None, feeds)
    np.testing.assert_allclose(last, expected[-1])
    np.testing.assert_allclose(every, expected[1:])
