"""Sums and sizes of integers are those of XNNPACK."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_integers import engines, fed, fed16, node_of, plain, values_of

import circle_train as ct
from circle_train import format
from circle_train.backends import native
from circle_train.ir import Buffer, DType, Graph, Module, Node, Quantization, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ir.tensor_type import Array
from circle_train.ops import REGISTRY
from circle_train.ops.attributes import Activation, Padding
from circle_train.runtime.litert import for_litert

pytestmark = pytest.mark.skipif(not native.is_available(), reason="the native engine was not built")


@pytest.mark.parametrize("dtype", [DType.INT8, DType.UINT8])
@pytest.mark.parametrize("name", ["ADD", "SUB"])
@pytest.mark.parametrize(
    "scales", [(0.03, 0.07, 0.09), (0.02, 0.02, 0.04), (0.5, 0.001, 0.7), (1.0, 3.0, 0.5)]
)
def test_sums_are_those_of_xnnpack_for_every_pair_of_bytes(
    name: str, scales: tuple[float, float, float], dtype: DType
) -> None:
    of_a, of_b, of_y = scales
    a, b = fed(dtype, 1, 256, 256, 1, scale=of_a), fed(dtype, 1, 256, 256, 1, scale=of_b, zero=-3)
    a.name, b.name = "a", "b"
    y = Tensor(
        "y", TensorType(dtype, (1, 256, 256, 1)), quantization=fed(dtype, scale=of_y, zero=11).quantization
    )
    for tensor in (a, b, y):
        assert tensor.quantization is not None
        tensor.quantization = Quantization(
            (float(np.float32(tensor.quantization.scale[0])),), tensor.quantization.zero_point
        )
    every = np.arange(256, dtype=np.uint8).view(dtype.numpy)
    pairs = [np.ascontiguousarray(part).reshape(1, 256, 256, 1) for part in np.meshgrid(every, every)]
    graph = Graph("main", [a, b], [y], [Node(REGISTRY[name](), [a, b], [y], 0)])
    found, wanted = by_both(Module([graph], [Buffer()]), *pairs)
    np.testing.assert_array_equal(found, wanted)


def by_both(module: Module, *xs: Array) -> tuple[Array, Array]:
    """Ours and LiteRT's."""
    runtime = pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
    content = format.write(for_litert(module), "TFL3")
    interpreter = runtime.Interpreter(model_content=content, num_threads=1)
    interpreter.allocate_tensors()
    for detail, values in zip(interpreter.get_input_details(), xs, strict=True):
        interpreter.set_tensor(detail["index"], values)
    interpreter.invoke()
    wanted: Array = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    return np.asarray(ct.InferenceSession(content)(*xs)), wanted


@pytest.mark.parametrize("dtype", [DType.INT8, DType.UINT8])
@pytest.mark.parametrize("options", [{}, {"align_corners": True}, {"half_pixel_centers": True}])
@pytest.mark.parametrize("size", [(16, 20), (5, 7), (33, 41)])
def test_pictures_are_resized_as_by_xnnpack(
    size: tuple[int, int], options: dict[str, bool], dtype: DType
) -> None:
    """Halves go up, of which doubling makes thousands; XNNPACK's shares of cells have eleven bits where ours have 24."""
    x, to = fed(dtype, 1, 8, 10, 6, scale=0.0370000004768371), plain(*size)
    y = Tensor("y", TensorType(dtype, (1, *size, 6)), quantization=x.quantization)
    assert to.buffer is not None
    graph = Graph("main", [x], [y], [Node(REGISTRY["RESIZE_BILINEAR"](**options), [x, to], [y], 0)])
    found, wanted = by_both(Module([graph], [Buffer(), to.buffer]), values_of(x))
    apart = np.abs(found.astype(int) - wanted)
    is_exact = size == (16, 20) and "align_corners" not in options
    assert apart.max() <= 1 and (apart > 0).mean() <= (0 if is_exact else 0.03)


def short_weights(shape: tuple[int, ...], axis: int, is_along: bool) -> Tensor:
    count = shape[axis] if is_along else 1
    w = constant(np.random.default_rng([*shape]).integers(-127, 128, shape).astype(np.int8), "w")
    scale = tuple(float(np.float32(0.001 * (1 + i % 20))) for i in range(count))
    w.quantization = Quantization(scale, (0,) * count, axis)
    return w


SHORT_PRODUCTS: list[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ("CONV_2D", (3, 9, 8, 6), (21, 3, 2, 6), {"fused_activation_function": Activation.RELU6}),
    ("CONV_2D", (2, 9, 8, 6), (21, 3, 3, 6), {"dilation_w_factor": 2, "dilation_h_factor": 2}),
    ("CONV_2D", (1, 5, 6, 300), (17, 3, 3, 300), {"stride_h": 2, "padding": Padding.VALID}),
    ("CONV_2D", (1, 5, 6, 32), (40, 1, 1, 32), {}),
    ("DEPTHWISE_CONV_2D", (2, 9, 8, 70), (1, 3, 2, 70), {"stride_w": 2, "stride_h": 2}),
    ("DEPTHWISE_CONV_2D", (2, 9, 8, 6), (1, 3, 3, 12), {"depth_multiplier": 2}),
    ("DEPTHWISE_CONV_2D", (1, 30, 28, 3), (1, 24, 25, 3), {}),
    ("FULLY_CONNECTED", (5, 33), (21, 33), {"fused_activation_function": Activation.RELU}),
    ("FULLY_CONNECTED", (5, 1500), (3, 1500), {}),
]


@pytest.mark.parametrize("is_along", [True, False])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize(("name", "shape", "weights", "options"), SHORT_PRODUCTS)
def test_products_of_int16_are_those_of_litert(
    name: str,
    shape: tuple[int, ...],
    weights: tuple[int, ...],
    options: dict[str, Any],
    has_bias: bool,
    is_along: bool,
) -> None:
    """Bit for bit: sums in 64 bits, LiteRT's factors of 15 bits, or 31."""
    rng = np.random.default_rng([*shape, *weights])
    axis = 3 if name == "DEPTHWISE_CONV_2D" else 0
    w, x = short_weights(weights, axis, is_along), fed16(*shape)
    inputs, buffers = [x, w], [Buffer(), w.buffer]
    if has_bias:
        inputs.append(constant(rng.integers(-(1 << 24), 1 << 24, weights[axis]), "b"))
        buffers.append(inputs[-1].buffer)
        assert w.quantization is not None and x.quantization is not None
        scale = tuple(float(np.float32(x.quantization.scale[0] * s)) for s in w.quantization.scale)
        inputs[-1].quantization = Quantization(scale, (0,) * len(scale), 0)
    op = REGISTRY[name](**options)
    (real,) = op.infer_types([TensorType(DType.FLOAT32, t.shape) for t in inputs])
    y = Tensor("y", TensorType(DType.INT16, real.shape), quantization=fed16(scale=0.0131417).quantization)
    graph = Graph("main", [x], [y], [Node(op, list(inputs), [y], 0)])
    values = rng.integers(-32768, 32768, shape).astype(np.int16)
    found, wanted = by_both(Module([graph], [b for b in buffers if b is not None]), values)
    np.testing.assert_array_equal(found, wanted)
    for engine in engines():
        node = node_of(name, options, inputs, y)
        result = np.full(wanted.shape, 77, np.int16)
        step = engine.bind(node, [values, *(t.data for t in inputs[1:])], [result])
        assert step is not None
        step()
        np.testing.assert_array_equal(result, wanted)


POWERS = [2.0**-12, 2.0**-11, 2.0**-10, 2.0**-13, 1.0006 * 2.0**-12, 0.9992 * 2.0**-11]
"""Of two, or less than a thousandth from one: for some of them LiteRT has an arithmetic of its own."""


@pytest.mark.parametrize("scale", [0.0007, 0.0001, 0.00033, 0.003, 1e-6, 0.5, *POWERS])
@pytest.mark.parametrize("name", ["SOFTMAX", "LOGISTIC", "TANH"])
def test_functions_of_int16_are_those_of_litert(name: str, scale: float) -> None:
    """To the bit; LOGISTIC and TANH by numpy too."""
    x = fed16(64, 1024, scale=scale)
    y = Tensor("y", x.type, quantization=Quantization((1 / 32768,), (0,)))
    graph = Graph("main", [x], [y], [Node(REGISTRY[name](), [x], [y], 0)])
    values = np.arange(-32768, 32768).astype(np.int16).reshape(1024, 64).T
    values = np.ascontiguousarray(values)
    found, wanted = by_both(Module([graph], [Buffer()]), values)
    np.testing.assert_array_equal(found, wanted)
    assert len(np.unique(found)) > 1
    if name != "SOFTMAX":
        (specified,) = node_of(name, {}, [x], y).op.compute([values])
        np.testing.assert_array_equal(specified, wanted)
