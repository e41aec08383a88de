"""Operators on bytes by the engine against numpy: at most a step apart, and the same bits whoever computes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from circle_train.backends import native
from circle_train.backends.native import Native
from circle_train.backends.native.engine.abi import Tier
from circle_train.backends.native.engine.library import load
from circle_train.backends.native.fusion.integers import settle, widen_integers
from circle_train.backends.native.fusion.rewriter import Rewriter
from circle_train.ir import DType, Graph, Node, Quantization, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ir.node import known_type
from circle_train.ir.tensor_type import Array
from circle_train.ops import REGISTRY
from circle_train.ops.attributes import Activation, Padding
from circle_train.ops.internal.active_bits import ActiveBits
from circle_train.ops.internal.integers.on_grid import OnGrid
from circle_train.ops.internal.integers.quantized import Quantized
from circle_train.ops.numeric.quantize import Quantize
from circle_train.passes.integers.quantized import run_quantized

pytestmark = pytest.mark.skipif(not native.is_available(), reason="the native engine was not built")

RNG = np.random.default_rng(0)

IMAGE, WIDE = (3, 9, 8, 6), 0.1137


@pytest.fixture(autouse=True)
def by_name(request: pytest.FixtureRequest) -> None:
    """The same numbers for a test whatever ran before it."""
    RNG.bit_generator.state = np.random.default_rng(crc32(request.node.name.encode())).bit_generator.state


def fed(dtype: DType, *shape: int, scale: float = 0.03, zero: int = 7) -> Tensor:
    zero = zero if dtype is DType.INT8 else zero + 100
    return Tensor("x", TensorType(dtype, shape), quantization=Quantization((scale,), (zero,)))


def held(dtype: DType, shape: tuple[int, ...], axis: int | None = None) -> Tensor:
    """Weights: with `axis`, scales for each of its entries; unsigned ones with a zero of their own."""
    limits = np.iinfo(dtype.numpy)
    tensor = constant(RNG.integers(limits.min, limits.max + 1, shape).astype(dtype.numpy), "w")
    count = 1 if axis is None else shape[axis]
    zeros = (117 if dtype is DType.UINT8 else 0,) * count
    tensor.quantization = Quantization(tuple(0.001 * (1 + i) for i in range(count)), zeros, axis or 0)
    return tensor


def bias(count: int) -> Tensor:
    return constant(RNG.integers(-3000, 3000, count).astype(np.int32), "b")


def plain(*values: Any) -> Tensor:
    return constant(np.array(values, np.int32), "n")


def cases() -> Iterator[Any]:
    for dtype in (DType.INT8, DType.UINT8):
        yield from (pytest.param(*case, id=f"{case[0]}-{dtype.name}-{i}") for i, case in enumerate(of(dtype)))


def of(dtype: DType) -> Iterator[tuple[str, dict[str, Any], list[Tensor], Tensor]]:
    x, y = fed(dtype, *IMAGE), fed(dtype, scale=WIDE, zero=-4)
    along = 0 if dtype is DType.INT8 else None
    for options in (
        {}, {"stride_h": 2, "stride_w": 2, "fused_activation_function": Activation.RELU6},
        {"padding": Padding.VALID, "dilation_h_factor": 2, "dilation_w_factor": 3},
    ):  # fmt: skip
        yield "CONV_2D", options, [x, held(dtype, (21, 3, 2, 6), along), bias(21)], y
        depth = None if along is None else 3
        yield "DEPTHWISE_CONV_2D", options, [x, held(dtype, (1, 3, 2, 6), depth), bias(6)], y
    yield "CONV_2D", {}, [x, held(dtype, (70, 1, 1, 6), along)], y
    yield "CONV_2D", {}, [x, held(DType.INT8, (8, 3, 3, 3), 0), bias(8)], y
    yield "DEPTHWISE_CONV_2D", {"depth_multiplier": 3}, [x, held(DType.INT8, (1, 3, 3, 18), 3), bias(18)], y
    wide = fed(dtype, 2, 5, 5, 200)
    yield "DEPTHWISE_CONV_2D", {}, [wide, held(dtype, (1, 5, 5, 200)), bias(200)], fed(dtype, scale=1.4)
    rows = fed(dtype, 5, 33)
    yield "FULLY_CONNECTED", {}, [rows, held(dtype, (17, 33), along), bias(17)], y
    yield "FULLY_CONNECTED", {}, [rows, held(dtype, (130, 33))], y
    other = bias(17)
    other.quantization = Quantization(tuple(0.00002 * (1 + i) for i in range(17)), tuple(range(0, 1700, 100)))
    yield "FULLY_CONNECTED", {}, [rows, held(dtype, (17, 33)), other], y
    for name in ("ADD", "SUB", "MUL"):
        yield name, {}, [x, fed(dtype, *IMAGE, scale=0.07)], y
        yield name, {"fused_activation_function": Activation.RELU}, [x, fed(dtype, 9, 1, 6, scale=0.07)], y
    pool = {"filter_width": 3, "filter_height": 2, "stride_w": 2, "stride_h": 1}
    yield "AVERAGE_POOL_2D", pool, [x], y
    yield "MAX_POOL_2D", pool, [x], fed(dtype)
    yield "MAX_POOL_2D", {**pool, "fused_activation_function": Activation.RELU6}, [wide], fed(dtype)
    yield "AVERAGE_POOL_2D", pool, [wide], y
    yield "MEAN", {}, [x, plain(1, 2)], fed(dtype, scale=0.013)
    yield "MEAN", {"keep_dims": True}, [x, plain(-1)], fed(dtype, scale=0.013)
    yield "SOFTMAX", {}, [fed(dtype, 7, 41)], fed(dtype, scale=1 / 256, zero=-100)
    for name in ("LOGISTIC", "TANH", "HARD_SWISH", "RELU6", "QUANTIZE"):
        yield name, {}, [x], y
    yield "CONCATENATION", {"axis": 2}, [x, fed(dtype, 3, 9, 2, 6, scale=0.05)], fed(dtype)
    yield "RESHAPE", {}, [x, plain(27, 48)], y
    yield "PAD", {}, [x, plain([0, 0], [1, 2], [2, 0], [0, 1])], fed(dtype)
    yield "DEQUANTIZE", {}, [x], Tensor("y", TensorType(DType.FLOAT32, ()))
    yield "QUANTIZE", {}, [Tensor("x", TensorType(DType.FLOAT32, (3, 50)))], y


def node_of(name: str, options: dict[str, Any], inputs: list[Tensor], like: Tensor) -> Node:
    """The operator between these tensors, as it is run; its result is of the last one's kind."""
    op = REGISTRY[name](**options)
    given = [t for t in inputs if not t.is_constant]
    output = Tensor("y", like.type, quantization=like.quantization)
    graph = Graph("main", given, [output], [Node(op, list(inputs), [output], 0)])
    run_quantized(graph)
    (made,) = graph.nodes[0].op.infer_types([known_type(t) for t in inputs])
    output.type = made
    return graph.nodes[0]


def values_of(tensor: Tensor) -> Array:
    if tensor.is_constant:
        return tensor.data
    if tensor.dtype.is_float:
        return RNG.uniform(-9, 9, tensor.shape).astype(np.float32)
    limits = np.iinfo(tensor.dtype.numpy)
    return RNG.integers(limits.min, limits.max + 1, tensor.shape).astype(tensor.dtype.numpy)


def engines() -> Iterator[Native]:
    library = load()
    best = library.ct_best_tier() if library is not None else -1
    for tier in (Tier.PORTABLE, Tier.AVX2, Tier.AVX512):
        if tier <= best:
            yield from (Native(threads, tier) for threads in (1, 3))


@pytest.mark.parametrize(("name", "options", "inputs", "like"), list(cases()))
def test_as_specified(name: str, options: dict[str, Any], inputs: list[Tensor], like: Tensor) -> None:
    node = node_of(name, options, inputs, like)
    arrays = [values_of(tensor) for tensor in inputs]
    (wanted,) = node.op.compute(arrays)
    found = []
    for engine in engines():
        result = np.full(wanted.shape, 77, wanted.dtype)
        step = engine.bind(node, arrays, [result])
        assert step is not None
        step()
        found.append(result)
    apart = np.abs(found[0].astype(np.float64) - wanted)
    assert apart.max() <= 1 and (apart > 0).mean() <= 0.01
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_what_moves_integers_of_one_meaning_has_no_meaning() -> None:
    """It is a view, or a copy of bytes, also for the specification."""
    node = node_of("RESHAPE", {}, [fed(DType.INT8, *IMAGE), plain(27, 48)], fed(DType.INT8))
    assert node.op.name == "RESHAPE" and node.op.view_input == 0


def test_weights_that_are_computed_are_left_to_numpy() -> None:
    """Kernels of integers hold their weights packed."""
    x, w = fed(DType.INT8, 5, 33), fed(DType.INT8, 17, 33, zero=0)
    node = node_of("FULLY_CONNECTED", {}, [x, w], fed(DType.INT8, scale=WIDE))
    arrays = [values_of(x), values_of(w)]
    assert Native(1).bind(node, arrays, [np.empty((5, 17), np.int8)]) is None


def test_a_bias_that_leaves_no_room_for_sums_is_left_to_numpy() -> None:
    b = constant(np.array([2**31 - 1, -(2**31), 5], np.int32), "b")
    x = fed(DType.INT8, 5, 33)
    node = node_of("FULLY_CONNECTED", {}, [x, held(DType.INT8, (3, 33)), b], fed(DType.INT8, scale=WIDE))
    arrays = [values_of(tensor) for tensor in (x, node.inputs[1], b)]
    assert Native(1).bind(node, arrays, [np.empty((5, 3), np.int8)]) is None


def test_a_bias_near_the_end_of_32_bits_is_added_where_sums_leave_room() -> None:
    """TensorFlow's converter writes 2**30 where a channel's scale is nearly 0."""
    b = constant(np.array([(1 << 30) + 128, -(1 << 30) - 128, 5], np.int32), "b")
    x, w = fed(DType.INT8, 5, 33), held(DType.INT8, (3, 33), 0)
    w.quantization = Quantization((2e-9, 3e-9, 0.001), (0, 0, 0))
    node = node_of("FULLY_CONNECTED", {}, [x, w, b], fed(DType.INT8, scale=WIDE))
    arrays = [values_of(tensor) for tensor in (x, w, b)]
    (wanted,) = node.op.compute(arrays)
    for engine in engines():
        found = np.empty((5, 3), np.int8)
        step = engine.bind(node, arrays, [found])
        assert step is not None
        step()
        assert np.abs(found.astype(int) - wanted).max() <= 1


@pytest.mark.parametrize(("zero", "dtype"), [(0, DType.INT8), (-128, DType.INT8), (131, DType.UINT8)])
def test_a_grid_is_settled_in_one_pass_with_the_bits_of_numpy(zero: int, dtype: DType) -> None:
    """What lies on it, where gradients pass, and the bytes that wait."""
    limits = np.iinfo(dtype.numpy)
    grid = OnGrid(0.0123, float(zero), float(limits.min), float(limits.max) - 7)
    x, y = (Tensor(name, TensorType(DType.FLOAT32, (3, 7, 1001))) for name in "xy")
    mask = ActiveBits(*grid.inside)
    bits = Tensor("bits", mask.infer(x.type))
    meaning = Quantization((grid.scale,), (zero,))
    stored = Tensor("stored", TensorType(dtype, x.shape), quantization=meaning)
    narrow = Quantized(Quantize(), (None,), ((dtype, meaning),))
    nodes = [Node(grid, [x], [y]), Node(mask, [x], [bits]), Node(narrow, [y], [stored])]
    graph = Graph("main", [x], [y, bits, stored], nodes)
    settle(Rewriter(graph, graph.outputs))
    (node,) = graph.nodes
    values = RNG.uniform(-4, 4, x.shape).astype(np.float32)
    values.reshape(-1)[:3] = np.nan, np.inf, -np.inf
    wanted = dict(zip(node.outputs, node.op.compute([values]), strict=True))
    wanted[stored].reshape(-1)[0] = 0  # of what is not a number no byte is asked
    for engine in engines():
        found = [np.full_like(wanted[t], 77) for t in node.outputs]
        step = engine.bind(node, [values], found)
        assert step is not None
        step()
        for tensor, array in zip(node.outputs, found, strict=True):
            if tensor is stored:
                array.reshape(-1)[0] = 0
            np.testing.assert_array_equal(array, wanted[tensor], err_msg=tensor.name)


@pytest.mark.parametrize("name", ["RESIZE_NEAREST_NEIGHBOR", "TRANSPOSE_CONV", "PRELU"])
def test_what_has_no_kernel_of_bytes_runs_by_those_of_floats(name: str) -> None:
    x, like = fed(DType.INT8, *IMAGE), fed(DType.INT8, scale=WIDE)
    size = plain(18, 16)
    inputs = {
        "RESIZE_NEAREST_NEIGHBOR": [x, size],
        "TRANSPOSE_CONV": [plain(3, 18, 16, 4), held(DType.INT8, (4, 3, 3, 6), 0), x],
        "PRELU": [x, held(DType.INT8, (1, 1, 6))],
    }[name]
    options = {"stride_h": 2, "stride_w": 2} if name == "TRANSPOSE_CONV" else {}
    if name == "RESIZE_NEAREST_NEIGHBOR":
        like = fed(DType.INT8)
    node = node_of(name, options, inputs, like)
    arrays = [values_of(tensor) for tensor in inputs]
    (wanted,) = node.op.compute(arrays)
    graph = Graph("main", [x], list(node.outputs), [node])
    widen_integers(Rewriter(graph, graph.outputs))
    assert len(graph.nodes) == 3
    for result in by_kernels(graph, dict(zip(inputs, arrays, strict=True))):
        apart = np.abs(result.astype(np.float64) - wanted)
        assert apart.max() <= 1 and (apart > 0).mean() <= 0.01


def by_kernels(graph: Graph, fed: dict[Tensor | None, Array]) -> Iterator[Array]:
    """What a graph's nodes give, every one by a kernel."""
    for engine in engines():
        known = dict(fed)
        for step_of in graph.nodes:
            given = [t.data if t.is_constant and t not in known else known[t] for t in step_of.inputs]
            made = [np.zeros(t.shape, t.dtype.numpy) for t in step_of.outputs]
            step = engine.bind(step_of, given, made)
            assert step is not None, step_of
            step()
            known |= dict(zip(step_of.outputs, made, strict=True))
        yield known[graph.outputs[0]]


def fed16(*shape: int, scale: float = 0.00071828) -> Tensor:
    meaning = Quantization((float(np.float32(scale)),), (0,))
    return Tensor("x", TensorType(DType.INT16, shape), quantization=meaning)


def wide() -> Iterator[tuple[str, dict[str, Any], list[Tensor], Tensor]]:
    """Operators on int16 that are computed by the kernels of floats."""
    x, y = fed16(*IMAGE), fed16(scale=0.0031417)
    for name in ("ADD", "SUB", "MUL"):
        yield name, {}, [x, fed16(9, 1, 6, scale=0.0003)], y
    yield "AVERAGE_POOL_2D", {"filter_width": 3, "filter_height": 2}, [x], y
    yield "MAX_POOL_2D", {"filter_width": 3, "filter_height": 2}, [x], fed16()
    yield "MEAN", {}, [x, plain(1, 2)], y
    for name in ("HARD_SWISH", "LEAKY_RELU"):
        yield name, {}, [x], fed16(scale=1 / 32768)
    yield "CONCATENATION", {"axis": 2}, [x, fed16(3, 9, 2, 6, scale=0.002)], y
    yield "QUANTIZE", {}, [x], y
    yield "QUANTIZE", {}, [x], fed(DType.INT8, scale=0.1)
    yield "QUANTIZE", {}, [Tensor("x", TensorType(DType.FLOAT32, (3, 50)))], y
    yield "DEQUANTIZE", {}, [x], Tensor("y", TensorType(DType.FLOAT32, ()))


@pytest.mark.parametrize(
    ("name", "options", "inputs", "like"), [pytest.param(*c, id=f"{c[0]}-{i}") for i, c in enumerate(wide())]
)
def test_int16_runs_by_kernels(
    name: str, options: dict[str, Any], inputs: list[Tensor], like: Tensor
) -> None:
    node = node_of(name, options, inputs, like)
    arrays = [values_of(tensor) for tensor in inputs]
    (wanted,) = node.op.compute(arrays)
    graph = Graph("main", [t for t in inputs if not t.is_constant], list(node.outputs), [node])
    widen_integers(Rewriter(graph, graph.outputs))
    for result in by_kernels(graph, dict(zip(inputs, arrays, strict=True))):
        apart = np.abs(result.astype(np.float64) - wanted)
        assert apart.max() <= 1 and (apart > 0).mean() <= 0.01
