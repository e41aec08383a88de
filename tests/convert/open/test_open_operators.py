"""ONNX operators over open sizes that nobody can pin: at every size what onnxruntime gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import circle_train as ct
from circle_train.ir.tensor_type import Array

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
helper, numpy_helper, FLOAT, INT64 = (
    onnx.helper,
    onnx.numpy_helper,
    onnx.TensorProto.FLOAT,
    onnx.TensorProto.INT64,
)


def sessions(graph: Any, opset: int = 17) -> tuple[ct.InferenceSession, Any]:
    """Of the graph: ours, and onnxruntime's."""
    data = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9
    ).SerializeToString()
    theirs = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    return ct.InferenceSession(data), theirs


def compared(
    nodes: list[Any], inputs: dict[str, list[Any]], *sizes: dict[str, tuple[int, ...]], opset: int = 17
) -> None:
    """The last node's first output at each of the sizes, computed here and by onnxruntime."""
    infos = [helper.make_tensor_value_info(name, FLOAT, dims) for name, dims in inputs.items()]
    out = helper.make_tensor_value_info(nodes[-1].output[0], FLOAT, None)
    graph = helper.make_graph(nodes, "net", infos, [out])
    ours, theirs = sessions(graph, opset)
    for shapes in sizes:
        feeds = {name: numbers(shape) for name, shape in shapes.items()}
        found, wanted = ours.run(None, feeds)[0], theirs.run(None, feeds)[0]
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, atol=1e-5)


def numbers(shape: tuple[int, ...]) -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def whole(name: str, values: list[int]) -> Any:
    array = onnx.numpy_helper.from_array(np.array(values, np.int64))
    return helper.make_node("Constant", [], [name], value=array)


MODES = [
    ("asymmetric", "floor"),
    ("asymmetric", "ceil"),
    ("half_pixel", "round_prefer_floor"),
    ("half_pixel", "round_prefer_ceil"),
]


@pytest.mark.parametrize(("how", "rounding"), MODES)
def test_the_nearest_of_another_tensors_size(how: str, rounding: str) -> None:
    """PaddlePaddle's feature pyramids."""
    attributes = {"mode": "nearest", "coordinate_transformation_mode": how, "nearest_mode": rounding}
    nodes = [
        helper.make_node("Shape", ["like"], ["size"]),
        helper.make_node("Resize", ["x", "", "", "size"], ["y"], **attributes),
    ]
    shapes = [((2, 3, 4, 5), (2, 3, 8, 15)), ((1, 3, 7, 9), (1, 3, 13, 6)), ((1, 3, 10, 3), (1, 3, 15, 3))]
    inputs = {"x": ["n", 3, "h", "w"], "like": ["n", 3, "a", "b"]}
    compared(nodes, inputs, *({"x": x, "like": like} for x, like in shapes))


SCALES = {3: [1.0, 1.0, 1.5], 4: [1.0, 1.0, 2.0, 0.75], 5: [1.0, 1.0, 2.0, 1.0, 1.5]}


@pytest.mark.parametrize("rank", SCALES)
@pytest.mark.parametrize(
    "how", ["half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners", "tf_half_pixel_for_nn"]
)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("by_scale", [True, False])
def test_places_between_elements_of_an_open_size(mode: str, how: str, rank: int, by_scale: bool) -> None:
    """Bicubic images, and what lies along time or in volumes; cubic volumes are nobody's."""
    if (mode == "cubic" and rank != 4) or (how == "align_corners" and by_scale):
        pytest.skip("onnxruntime has none, or no one meaning")
    options: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": how}
    if mode == "cubic":
        options["cubic_coeff_a"] = -0.5
    names = "nchwd"[:2] + "hwd"[: rank - 2]
    inputs = {"x": ["n", 2, *names[2:]], "like": ["n", 2, *(f"{name}2" for name in names[2:])]}
    scales = onnx.numpy_helper.from_array(np.array(SCALES[rank], np.float32))
    nodes = [
        helper.make_node("Shape", ["like"], ["size"]),
        helper.make_node("Constant", [], ["scales"], value=scales),
        helper.make_node("Resize", ["x", "", *(["scales"] if by_scale else ["", "size"])], ["y"], **options),
    ]
    pairs = [((2, 2, 4, 8, 4), (2, 2, 9, 6, 5)), ((1, 2, 12, 4, 6), (1, 2, 8, 11, 3))]
    compared(nodes, inputs, *({"x": x[:rank], "like": like[:rank]} for x, like in pairs))


@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_images_of_any_size_are_sampled_where_a_map_says(mode: str, padding: str, aligned: int) -> None:
    """Spatial transformers: the grid is as large as the image, or as another."""
    attributes = {"mode": mode, "padding_mode": padding, "align_corners": aligned}
    nodes = [
        helper.make_node("Shape", ["like"], ["size"]),
        helper.make_node("AffineGrid", ["theta", "size"], ["grid"], align_corners=aligned),
        helper.make_node("GridSample", ["x", "grid"], ["y"], **attributes),
    ]
    inputs = {"x": ["n", 2, "h", "w"], "theta": ["n", 2, 3], "like": ["n", 2, "h2", "w2"]}
    pairs = [((2, 2, 4, 8), (2, 2, 9, 6)), ((1, 2, 12, 5), (1, 2, 8, 11))]
    sizes = ({"x": x, "theta": (x[0], 2, 3), "like": like} for x, like in pairs)
    compared(nodes, inputs, *sizes, opset=20)


POOLS: list[dict[str, Any]] = [
    {},
    {"pads": [1, 0, 0, 1]},
    {"dilations": [2, 1]},
    {"ceil_mode": 1},
    {"storage_order": 1},
]


@pytest.mark.parametrize("dims", [["n", 3, 8, 11], ["n", 3, "h", "w"]])
@pytest.mark.parametrize("options", POOLS)
def test_where_maxima_stand_among_all_samples(options: dict[str, Any], dims: list[Any]) -> None:
    """Counted through the whole batch, as SegNet's unpooling reads it: one sample's places are not another's."""
    pool = helper.make_node(
        "MaxPool", ["x"], ["top", "places"], kernel_shape=[2, 3], strides=[2, 2], **options
    )
    compared(
        [pool, helper.make_node("Cast", ["places"], ["y"], to=FLOAT)],
        {"x": dims},
        {"x": (1, 3, 8, 11)},
        {"x": (3, 3, 8, 11)},
    )
    back = helper.make_node("MaxUnpool", ["top", "places"], ["y"], kernel_shape=[2, 3], strides=[2, 2])
    if not options:
        compared([pool, back], {"x": dims}, {"x": (2, 3, 8, 11)}, {"x": (3, 3, 8, 11)})


def test_all_axes_of_size_1_are_dropped_when_they_come() -> None:
    nodes = [helper.make_node("Squeeze", ["x"], ["y"])]
    compared(nodes, {"x": ["n", 1, 4]}, {"x": (3, 1, 4)}, {"x": (1, 1, 4)})


def test_as_many_of_the_largest_as_there_are() -> None:
    """How a sequence is sorted by length."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        whole("last", [1]),
        helper.make_node("Gather", ["shape", "last"], ["k"]),
        helper.make_node("TopK", ["x", "k"], ["y", "places"], axis=-1),
    ]
    compared(nodes, {"x": ["n", "length"]}, {"x": (2, 5)}, {"x": (1, 9)})


@pytest.mark.parametrize("has_steps", [False, True])
def test_bounds_that_are_computed_while_running(has_steps: bool) -> None:
    names = ["starts", "ends", *(["steps"] if has_steps else [])]
    infos = [helper.make_tensor_value_info("x", FLOAT, ["n", "m", 4])]
    infos += [helper.make_tensor_value_info(name, INT64, [2]) for name in names]
    node = helper.make_node("Slice", ["x", "starts", "ends", "axes", *names[2:]], ["y"])
    axes = onnx.numpy_helper.from_array(np.array([1, 2]), "axes")
    out = helper.make_tensor_value_info("y", FLOAT, None)
    graph = helper.make_graph([node], "net", infos, [out], [axes])
    ours, theirs = sessions(graph)
    random = np.random.default_rng(0)
    for case in range(30):
        feeds = {
            "x": numbers((2, case % 6 + 1, 4)),
            "starts": random.integers(-8, 8, 2),
            "ends": random.integers(-9, 9, 2),
        }
        feeds["ends"][0] = 2**62 if case % 5 == 0 else feeds["ends"][0]
        if has_steps:
            feeds["steps"] = random.choice([-2, -1, 1, 2], 2)
        np.testing.assert_array_equal(ours.run(None, feeds)[0], theirs.run(None, feeds)[0])


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_elements_are_set_where_the_data_says(axis: int) -> None:
    """As PaddlePaddle writes x[:, n : n + 2] = …, whose length is known only while running."""
    node = helper.make_node
    nodes = [
        whole("two", [2]), whole("axes", [axis]), whole("ones", [1]), whole("none", []),
        whole("along", [-1 if i == axis else 1 for i in range(3)]),
        node("ReduceMax", ["x"], ["most"], keepdims=0),
        node("Mul", ["most", "most"], ["some"]),
        node("Clip", ["some", "", "some"], ["same"]),
        node("Cast", ["same"], ["kept"], to=INT64),
        node("Mod", ["kept", "two"], ["begin"]),
        node("Add", ["begin", "two"], ["end"]),
        node("Slice", ["x", "begin", "end", "axes", "ones"], ["part"]),
        node("Shape", ["part"], ["sizes"]),
        node("Reshape", ["begin", "none"], ["first"]),
        node("Reshape", ["end", "none"], ["last"]),
        node("Reshape", ["ones", "none"], ["step"]),
        node("Range", ["first", "last", "step"], ["places"]),
        node("Reshape", ["places", "along"], ["turned"]),
        node("Expand", ["turned", "sizes"], ["indices"]),
        node("Neg", ["part"], ["updates"]),
        node("ScatterElements", ["x", "indices", "updates"], ["y"], axis=axis),
    ]  # fmt: skip
    compared(nodes, {"x": ["B", 6, 5]}, {"x": (4, 6, 5)}, {"x": (7, 6, 5)})


def test_elements_of_each_sample_by_its_own_indices() -> None:
    nodes = [
        helper.make_node("Cast", ["at"], ["indices"], to=INT64),
        helper.make_node("GatherND", ["x", "indices"], ["y"], batch_dims=1),
    ]
    inputs = {"x": ["B", 4, 3], "at": ["B", "N", 1]}
    compared(nodes, inputs, {"x": (3, 4, 3), "at": (3, 2, 1)}, {"x": (1, 4, 3), "at": (1, 5, 1)})


def test_a_batch_of_a_guessed_size_is_not_taken_apart() -> None:
    """Each sample by itself would have a maximum of its own, where the model takes that of all."""
    node, info = helper.make_node, helper.make_tensor_value_info
    nodes = [
        node("SplitToSequence", ["x"], ["rows"], axis=0, keepdims=1),
        node("ConcatFromSequence", ["rows"], ["whole"], axis=0),
        node("ReduceMax", ["x"], ["most"], keepdims=0),
        node("Mul", ["whole", "most"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "net", [info("x", FLOAT, ["B", 4])], [info("y", FLOAT, None)])
    ours, theirs = sessions(graph)
    one = numbers((1, 4))
    np.testing.assert_allclose(ours.run(None, {"x": one})[0], theirs.run(None, {"x": one})[0], atol=1e-5)
    with pytest.raises(ct.ModelError, match=r"converted for 1 sample .* shapes=\{'x': \(3, 4\)"):
        ours.run(None, {"x": numbers((3, 4))})


def test_a_number_for_each_sample_is_none_for_all() -> None:
    """Where the batch had to be guessed, a constant for one sample would fit any batch, and be wrong."""
    node, info = helper.make_node, helper.make_tensor_value_info
    nodes = [
        node("SplitToSequence", ["x"], ["rows"], axis=0, keepdims=1),
        node("ConcatFromSequence", ["rows"], ["whole"], axis=0),
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["count"]),
        node("Range", ["zero", "count", "one"], ["places"]),
        node("Cast", ["places"], ["floats"], to=FLOAT),
        node("Unsqueeze", ["floats", "axes"], ["column"]),
        node("Add", ["whole", "column"], ["y"]),
    ]
    constants = {"zero": 0, "one": 1, "axes": [1]}
    graph = helper.make_graph(
        nodes, "net", [info("x", FLOAT, ["B", 4])], [info("y", FLOAT, None)],
        [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in constants.items()],
    )  # fmt: skip
    ours, theirs = sessions(graph)
    one = numbers((1, 4))
    np.testing.assert_allclose(ours.run(None, {"x": one})[0], theirs.run(None, {"x": one})[0], atol=1e-5)
    with pytest.raises(ct.ModelError, match="at another batch it has other operators or constants"):
        ours.run(None, {"x": numbers((3, 4))})


def test_why_another_batch_is_refused_reaches_who_asks_for_it() -> None:
    node, info = helper.make_node, helper.make_tensor_value_info
    nodes = [
        node("SplitToSequence", ["x"], ["rows"], axis=0, keepdims=1),
        node("ConcatFromSequence", ["rows"], ["whole"], axis=0),
        node("Squeeze", ["whole", "axes"], ["y"]),
    ]
    axes = numpy_helper.from_array(np.array([0], np.int64), "axes")
    graph = helper.make_graph(nodes, "net", [info("x", FLOAT, ["B", 4])], [info("y", FLOAT, None)], [axes])
    ours, theirs = sessions(graph)
    one = numbers((1, 4))
    np.testing.assert_array_equal(ours.run(None, {"x": one})[0], theirs.run(None, {"x": one})[0])
    with pytest.raises(
        ct.ModelError, match=r"at another batch it cannot be converted \(.*Squeeze 'y' .*have not size 1\)"
    ):
        ours.run(None, {"x": numbers((3, 4))})
