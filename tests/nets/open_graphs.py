"""Random ONNX graphs over images of any number, height and width, and what is to hold of them at every size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper
from random_onnx import Net

import circle_train as ct
from circle_train.ir import Graph, Tensor
from circle_train.ir.size import Size, evaluated
from circle_train.ir.tensor_type import Array
from circle_train.ops.open.sizes import input_sizes, open_types

CHANNELS = 3
SIZES = ((1, 12, 20), (2, 17, 31), (3, 40, 24))
Value = tuple[str, int, int]
"""A name, its rank and channels: batch × channels × height × width, or batch × channels × length."""


def grown(net: Net, value: Value) -> Value:
    """One more operator behind a value."""
    return net.choice(*(IMAGE if value[1] == 4 else ROW))(net, *value)


def convolution(net: Net, x: str, rank: int, channels: int) -> Value:
    kernel, stride, wider = net.choice(1, 2, 3, 5), net.choice(1, 1, 2, 3), net.choice(2, 4)
    spatial = rank - 2
    where: dict[str, Any] = net.choice(
        {"auto_pad": "SAME_UPPER"}, {"auto_pad": "SAME_LOWER"}, {"pads": [kernel // 2] * 2 * spatial},
        {"pads": [0] * spatial + [1] * spatial}, {"dilations": [2] * spatial, "pads": [kernel] * 2 * spatial},
    )  # fmt: skip
    weight = net.weight(wider, channels, *(kernel,) * spatial)
    return net.node("Conv", x, weight, strides=[stride] * spatial, **where), rank, wider


def pooled(net: Net, x: str, rank: int, channels: int) -> Value:
    spatial, kernel = rank - 2, net.choice(2, 3)
    options = {"kernel_shape": [kernel] * spatial, "strides": [net.choice(1, 2)] * spatial}
    options["ceil_mode"] = int(net.choice(0, 0, 1))
    return net.node(net.choice("MaxPool", "AveragePool"), x, **options), rank, channels


def resized(net: Net, x: str, rank: int, channels: int) -> Value:
    up = net.constant([1.0, 1.0, 2.0, net.choice(2.0, 3.0)])
    how = net.choice(("nearest", "asymmetric"), ("linear", "half_pixel"))
    options = {"mode": how[0], "coordinate_transformation_mode": how[1], "nearest_mode": "floor"}
    return net.node("Resize", x, "", up, **options), rank, channels


def sliced(net: Net, x: str, rank: int, channels: int) -> Value:
    axis = int(net.rng.integers(2, rank))
    start, end, step = net.choice(
        (1, -1, 1), (0, -2, 2), (-5, 1 << 40, 1), (-1, -(1 << 40), -1), (0, 1 << 40, 3)
    )
    numbers = [net.constant([n], np.int64) for n in (start, end, axis, step)]
    return net.node("Slice", x, *numbers), rank, channels


def padded(net: Net, x: str, rank: int, channels: int) -> Value:
    pads = [0, 0, *net.rng.integers(0, 3, rank - 2).tolist()] * 2
    return (
        net.node("Pad", x, net.constant(pads, np.int64), mode=net.choice("constant", "reflect", "edge")),
        rank,
        channels,
    )


def doubled(net: Net, x: str, rank: int, channels: int) -> Value:
    axis = int(net.rng.integers(1, rank))
    made = net.node("Concat", x, net.node(net.choice("Relu", "Tanh"), x), axis=axis)
    return made, rank, channels * 2 if axis == 1 else channels


def turned(net: Net, x: str, rank: int, channels: int) -> Value:
    return net.node("Transpose", x, perm=[0, 1, 3, 2]), rank, channels


def size_of(net: Net, x: str, axis: int) -> str:
    """A vector of one size, as exporters take it."""
    shape = net.node("Shape", x)
    if net.rng.integers(2):
        return net.node("Gather", shape, net.constant([axis], np.int64), axis=0)
    picked = net.node("Gather", shape, net.constant(axis, np.int64), axis=0)
    return net.node("Unsqueeze", picked, net.constant([0], np.int64))


def flattened(net: Net, x: str, rank: int, channels: int) -> Value:
    """Height and width as one axis, in one of the ways that models do it."""
    how = net.choice("zero", "product", "minus")
    if how == "zero":
        return net.node("Reshape", x, net.constant([0, channels, -1], np.int64)), 3, channels
    batch, width = size_of(net, x, 0), net.constant([channels], np.int64)
    last = (
        net.constant([-1], np.int64)
        if how == "minus"
        else net.node("Mul", size_of(net, x, 2), size_of(net, x, 3))
    )
    return net.node("Reshape", x, net.node("Concat", batch, width, last, axis=0)), 3, channels


def averaged(net: Net, x: str, rank: int, channels: int) -> Value:
    return net.node("ReduceMean", x, net.constant([3], np.int64), keepdims=0), 3, channels


def placed(net: Net, x: str, rank: int, channels: int) -> Value:
    """Something added that depends on the place along the last axis."""
    end = net.node("Squeeze", size_of(net, x, rank - 1), net.constant([0], np.int64))
    if net.rng.integers(2):
        ends = [net.constant(0.0), net.node("Cast", end, to=TensorProto.FLOAT), net.constant(1.0)]
        return net.node("Add", x, net.node("Range", *ends)), rank, channels
    places = net.node("Range", net.constant(0, np.int64), end, net.constant(1, np.int64))
    return net.node("Add", x, net.node("Cast", places, to=TensorProto.FLOAT)), rank, channels


def attended(net: Net, x: str, rank: int, channels: int) -> Value:
    scores = net.node("MatMul", net.node("Transpose", x, perm=[0, 2, 1]), net.node("Tanh", x))
    return net.node("MatMul", x, net.node("Softmax", scores, axis=-1)), rank, channels


def repeated(net: Net, x: str, rank: int, channels: int) -> Value:
    return net.node("Tile", x, net.constant([1] * (rank - 1) + [2], np.int64)), rank, channels


def widened(net: Net, x: str, rank: int, channels: int) -> Value:
    """What broadcasts from one entry to the size of the whole."""
    mean = net.node("ReduceMax", x, net.constant([rank - 1], np.int64), keepdims=1)
    return net.node("Sub", x, net.node("Expand", mean, net.node("Shape", x))), rank, channels


def summed(net: Net, x: str, rank: int, channels: int) -> Value:
    return net.node("CumSum", x, net.constant(rank - 1, np.int64)), rank, channels


def recurred(net: Net, x: str, rank: int, channels: int) -> Value:
    steps = net.node("Transpose", x, perm=[2, 0, 1])
    y = net.node("GRU", steps, net.weight(1, 12, channels), net.weight(1, 12, 4), hidden_size=4)
    y = net.node("Squeeze", y, net.constant([1], np.int64))
    return net.node("Transpose", y, perm=[1, 2, 0]), 3, 4


Step = Callable[[Net, str, int, int], Value]
IMAGE: tuple[Step, ...] = (
    convolution, pooled, resized, sliced, padded, doubled, turned, flattened, averaged, placed, widened,
)  # fmt: skip
ROW: tuple[Step, ...] = (
    convolution, pooled, sliced, doubled, placed, attended, repeated, widened, summed, recurred,
)  # fmt: skip


def graph(seed: int) -> bytes:
    """A model of 2 to 7 such operators."""
    net = Net(np.random.default_rng(seed))
    value: Value = ("x", 4, CHANNELS)
    for _ in range(int(net.rng.integers(2, 8))):
        value = grown(net, value)
    net.nodes.append(helper.make_node("Identity", [value[0]], ["y"]))
    made = helper.make_graph(
        net.nodes, "random", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", CHANNELS, "H", "W"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * value[1])], net.initializers,
    )  # fmt: skip
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    content: bytes = model.SerializeToString()
    return content


def expected(content: bytes) -> list[tuple[Array, Array]]:
    """What onnxruntime makes of the sizes that it takes; nothing where a size is too small for the graph."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = (
        ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    )  # it joins Pad and MaxPool wrongly
    found: list[tuple[Array, Array]] = []
    try:
        session = ort.InferenceSession(content, options)
    except Exception:  # what it joins does not suit its own kernels
        return found
    for batch, height, width in SIZES:
        x = np.random.default_rng(height).normal(size=(batch, CHANNELS, height, width)).astype(np.float32)
        try:
            found.append((x, session.run(None, {"x": x})[0]))
        except Exception:  # its errors have no class in common
            continue
    return [(x, y) for x, y in found if y.size and np.isfinite(y).all()]


def findings(seed: int) -> list[str] | None:
    """Where ours differs from onnxruntime, or a size from the run's; None where onnxruntime takes none of the sizes."""
    content = graph(seed)
    pairs = expected(content)
    if not pairs:
        return None
    try:
        model = ct.load(content)
    except ct.CircleTrainError as error:
        return [f"seed {seed}: it does not load: {error}"]
    infer, found = ct.InferenceSession(model), []
    for x, y in pairs:
        try:
            ours = infer(x)
        except ct.CircleTrainError as error:
            found.append(f"seed {seed} at {x.shape}: {error}")
            continue
        if ours.shape != y.shape or not np.allclose(
            ours, y, rtol=1e-3, atol=1e-3 * max(np.abs(y).max(), 1e-3)
        ):
            found.append(f"seed {seed} at {x.shape}: {ours.shape} and {y.shape}")
        found += [f"seed {seed} at {x.shape}: {one}" for one in wrong_sizes(model.module.main, x)]
    return found


def wrong_sizes(main: Graph, x: Array) -> list[str]:
    """Tensors whose derived sizes are not those of a run on this input."""
    shapes = input_sizes(main)
    symbols = {
        s.symbol: n for s, n in zip(shapes[0], x.shape, strict=True) if isinstance(s, Size) and s.symbol
    }
    types, values = open_types(main, shapes), {main.inputs[0]: x}
    found = []
    for node in main.nodes:
        given = [None if t is None else values[t] if t in values else t.data for t in node.inputs]
        for tensor, made in zip(node.outputs, map(np.asarray, node.op.compute(given)), strict=True):
            values[tensor] = made
            sizes = types[tensor].shape if tensor in types else made.shape
            known = [n for n in sizes if not isinstance(n, Size) or n.is_written]
            actual = [
                m for n, m in zip(sizes, made.shape, strict=True) if not isinstance(n, Size) or n.is_written
            ]
            if [evaluated(n, symbols) for n in known] != actual or not _static_holds(
                tensor, made, tensor in types
            ):
                found.append(f"{node} made {made.shape}, derived {sizes}")
    return found


def _static_holds(tensor: Tensor, made: Array, is_open: bool) -> bool:
    """Whether a size that the file does not leave open is the run's."""
    return is_open or tensor.shape == made.shape
