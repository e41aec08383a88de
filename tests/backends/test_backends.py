"""The native engine against the specification: every operator, every gradient."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import networks
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from single_operator import examples, is_constant, is_float

from circle_train.backends import native
from circle_train.backends.native import Native
from circle_train.backends.native.engine.abi import Tier
from circle_train.backends.native.engine.library import load
from circle_train.compile.autodiff import add_backward
from circle_train.ir import DType, Graph, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ir.tensor_type import Array
from circle_train.model import Model
from circle_train.ops import REGISTRY, Example
from circle_train.ops.attributes import Activation, Padding
from circle_train.ops.layers.conv import Conv2D, DepthwiseConv2D
from circle_train.ops.layers.linear import BatchMatMul, FullyConnected
from circle_train.ops.layers.pool import AveragePool2D, MaxPool2D
from circle_train.ops.numeric.arithmetic import Mul

pytestmark = pytest.mark.skipif(not native.is_available(), reason="the native engine was not built")


def tiers() -> Iterator[Any]:
    """Those that this machine can run."""
    library = load()
    best = library.ct_best_tier() if library is not None else -1
    for tier in (Tier.PORTABLE, Tier.AVX2, Tier.AVX512):
        reason = f"this processor cannot run {tier.name}"
        yield pytest.param(tier, id=tier.name, marks=pytest.mark.skipif(tier > best, reason=reason))


every_tier = pytest.mark.parametrize("tier", list(tiers()))


# Operators one by one


def run_graph(graph: Graph, values: dict[Tensor, Array], engine: Native, joined: bool) -> tuple[int, float]:
    """Run each node natively on what the specification gave its makers; how many were native, the largest error."""
    known = dict(values)
    count, worst = 0, 0.0
    if joined:
        engine.fuse(graph, graph.outputs)
    for node in graph.nodes:
        inputs = [None if t is None else known.get(t, t.data if t.is_constant else None) for t in node.inputs]
        contiguous = [None if a is None else dense(a) for a in inputs]
        with np.errstate(all="ignore"):
            expected = [dense(a) for a in node.op.compute(contiguous)]
        known.update(zip(node.outputs, expected, strict=True))
        if node.op.view_input is not None:
            continue
        outputs = [np.full_like(a, 77) for a in expected]
        step = engine.bind(node, contiguous, outputs)
        if step is None:
            continue
        step()
        count += 1
        worst = max([worst, *(error(a, b) for a, b in zip(expected, outputs, strict=True))])
    return count, worst


def dense(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(np.shape(array))


def error(expected: Array, found: Array) -> float:
    """The largest difference, in proportion to the largest number."""
    if expected.size == 0:
        return 0.0
    if expected.dtype.kind != "f":
        return float(np.max(expected != found))
    assert (np.isnan(expected) == np.isnan(found)).all()
    with np.errstate(all="ignore"):
        difference = np.nan_to_num(np.abs(expected.astype(np.float64) - found))
    return float(difference.max() / max(np.nan_to_num(np.abs(expected)).max(), 0.1))


def graph_of(example: Example) -> tuple[Graph, dict[Tensor, Array]]:
    """The operator, its output times random factors, and the gradients of the sum of that."""
    graph = Graph("one")
    values: dict[Tensor, Array] = {}
    inputs: list[Tensor | None] = []
    for index, value in enumerate(example.inputs):
        if value is None:
            inputs.append(None)
            continue
        array = np.ascontiguousarray(value, np.float32 if is_float(value) else None).reshape(np.shape(value))
        if is_constant(example, index):
            inputs.append(constant(array))
            continue
        inputs.append(Tensor(f"x{index}", TensorType(DType.of(array.dtype), array.shape)))
        values[inputs[-1]] = array  # type: ignore[index]
    graph.inputs = list(values)
    outputs = graph.emit_all(example.op, *inputs)
    leaves = [
        t for i, t in enumerate(inputs) if t in values and example.op.input_name(i) in example.op.gradients
    ]
    if example.differentiable and leaves and outputs[0].dtype is DType.FLOAT32 and outputs[0].type.size:
        factor = constant(np.random.default_rng(1).normal(size=outputs[0].shape).astype(np.float32))
        weighted = graph.emit(Mul(), outputs[0], factor)
        graph.outputs = [
            *outputs,
            *add_backward(graph, weighted, [t for t in leaves if t is not None]).values(),
        ]
    else:
        graph.outputs = outputs
    return graph, values


@every_tier
@pytest.mark.parametrize("name", list(REGISTRY))
def test_every_operator_and_gradient_is_as_specified(name: str, tier: Tier) -> None:
    """Over the registry's examples; what has no kernel is left to the reference, a formula never is."""
    engine = Native(2, tier)
    native_nodes = 0
    for parameter in examples():
        if parameter.id.rpartition("-")[0] == name:
            example: Example = parameter.values[0]
            for joined in (False, True):
                graph, values = graph_of(example)
                count, worst = run_graph(graph, values, engine, joined)
                native_nodes += count
                assert worst < 4e-5, f"{parameter.id} joined={joined}: {worst}"
    assert native_nodes or not REGISTRY[name].formula, f"{name} has a formula that runs nowhere"
    NATIVE_NODES[name] = NATIVE_NODES.get(name, 0) + native_nodes


NATIVE_NODES: dict[str, int] = {}
"""Of the operators that were run."""


def test_most_of_it_has_kernels() -> None:
    if len(NATIVE_NODES) < len(REGISTRY):
        pytest.skip("not every operator was run here")
    assert sum(NATIVE_NODES.values()) > 1000


Shape = tuple[int, ...]
odd = st.integers(1, 19)


def check(op: Any, *shapes: Shape) -> None:
    """One op on random numbers, natively on three threads."""
    rng = np.random.default_rng([len(shapes), *shapes[0]])
    example = Example(op, tuple(rng.uniform(-2, 2, shape) for shape in shapes))
    for joined in (False, True):
        graph, values = graph_of(example)
        count, worst = run_graph(graph, values, Native(3), joined)
        assert count and worst < 4e-5


@settings(max_examples=25, deadline=None)
@given(odd, odd, st.integers(1, 40), st.integers(1, 150), st.sampled_from([0, 1, 3]))
def test_dense_layers_of_any_size(batch: int, rows: int, outputs: int, inputs: int, act: int) -> None:
    check(FullyConnected(Activation(act)), (batch * rows, inputs), (outputs, inputs), (outputs,))
    check(BatchMatMul(adjoint_rhs=True), (batch, rows, inputs), (batch, outputs, inputs))


@settings(max_examples=25, deadline=None)
@given(odd, odd, st.integers(1, 40), st.integers(1, 40), st.integers(1, 4), st.integers(1, 3), st.booleans())
def test_convolutions_of_any_size(
    h: int, w: int, cin: int, cout: int, k: int, stride: int, same: bool
) -> None:
    padding = Padding.SAME if same or min(h, w) < k else Padding.VALID
    options = {"padding": padding, "stride_h": stride, "stride_w": 1}
    check(Conv2D(**options), (2, h, w, cin), (cout, k, k, cin), (cout,))  # type: ignore[arg-type]
    check(DepthwiseConv2D(**options), (2, h, w, cin), (1, k, k, cin), (cin,))  # type: ignore[arg-type]
    pool = {**options, "filter_height": k, "filter_width": k}
    check(MaxPool2D(**pool), (2, h, w, cin))  # type: ignore[arg-type]
    check(AveragePool2D(**pool), (2, h, w, cin))  # type: ignore[arg-type]


# Networks that others train, too


def residual() -> Model:
    """Blocks as MobileNet's: expand, depthwise, project, add; a pool of an activated convolution first."""
    graph = Graph("residual", [networks.new_input("image", 1, 11, 13, 3)])
    make, weight = networks.make, networks.weight
    relu = {"fused_activation_function": Activation.RELU}
    relu6 = {"fused_activation_function": Activation.RELU6}
    x = graph.emit(make("CONV_2D", **relu), graph.inputs[0], weight("c0", 12, 3, 3, 3), weight("b0", 12))
    x = graph.emit(make("MAX_POOL_2D", stride_h=2, stride_w=2, filter_height=2, filter_width=2), x)
    for i in range(2):
        y = graph.emit(make("CONV_2D", **relu6), x, weight(f"e{i}", 30, 1, 1, 12), weight(f"eb{i}", 30))
        y = graph.emit(
            make("DEPTHWISE_CONV_2D", **relu6), y, weight(f"d{i}", 1, 3, 3, 30), weight(f"db{i}", 30)
        )
        y = graph.emit(make("CONV_2D"), y, weight(f"p{i}", 12, 1, 1, 30), weight(f"pb{i}", 12))
        x = graph.emit(make("ADD"), x, y)
    x = graph.emit(make("MUL"), x, weight("scale", 12))
    x = graph.emit(make("MEAN"), x, constant(np.array([1, 2], np.int32)))
    return networks.finish(graph, graph.emit(make("FULLY_CONNECTED"), x, weight("f", 5, 12), weight("fb", 5)))


def attention() -> Model:
    """An embedding, a layer norm spelled out, one head of attention, GELU."""
    graph = Graph("attention", [networks.new_input("tokens", 2, 6, dtype=DType.INT64)])
    make, weight = networks.make, networks.weight
    axes = constant(np.array([-1], np.int32))
    x = graph.emit(make("GATHER"), weight("table", 20, 8), graph.inputs[0])
    mean = graph.emit(make("MEAN", keep_dims=True), x, axes)
    centred = graph.emit(make("SUB"), x, mean)
    variance = graph.emit(make("MEAN", keep_dims=True), graph.emit(make("SQUARE"), centred), axes)
    shifted = graph.emit(make("ADD"), variance, constant(np.array(1e-3, np.float32)))
    normal = graph.emit(make("MUL"), centred, graph.emit(make("RSQRT"), shifted))
    x = graph.emit(make("ADD"), graph.emit(make("MUL"), normal, weight("gamma", 8)), weight("beta", 8))
    heads = []
    for name in "qkv":
        y = graph.emit(
            make("FULLY_CONNECTED", keep_num_dims=True), x, weight(name, 8, 8), weight(name + "b", 8)
        )
        y = graph.emit(make("RESHAPE", new_shape=(2, 6, 2, 4)), y)
        order = (0, 2, 3, 1) if name == "k" else (0, 2, 1, 3)
        heads.append(graph.emit(make("TRANSPOSE"), y, constant(np.array(order, np.int32))))
    scores = graph.emit(make("BATCH_MATMUL"), heads[0], heads[1])
    scores = graph.emit(make("MUL"), scores, constant(np.array(0.5, np.float32)))
    mixed = graph.emit(make("BATCH_MATMUL"), graph.emit(make("SOFTMAX"), scores), heads[2])
    mixed = graph.emit(make("TRANSPOSE"), mixed, constant(np.array((0, 2, 1, 3), np.int32)))
    x = graph.emit(make("ADD"), graph.emit(make("RESHAPE", new_shape=(2, 6, 8)), mixed), x)
    x = graph.emit(make("GELU"), x)
    x = graph.emit(make("RESHAPE", new_shape=(2, 48)), x)
    return networks.finish(graph, graph.emit(make("FULLY_CONNECTED"), x, weight("out", 3, 48)))
