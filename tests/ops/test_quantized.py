"""Quantized operators against LiteRT: at most one step of the output's scale apart."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_ops_litert import LiteRT

from circle_train.errors import UnsupportedOpError
from circle_train.format import read, write
from circle_train.ir import Buffer, DType, Graph, Module, Node, Quantization, Tensor, TensorType
from circle_train.ir.node import known_type
from circle_train.ops import REGISTRY, Op
from circle_train.ops.attributes import Activation, Padding
from circle_train.ops.numeric.quantize import dequantize, quantize
from circle_train.passes.integers.quantized import run_quantized
from circle_train.passes.pipelines import before_inference, run

if importlib.util.find_spec("ai_edge_litert") is None:
    pytest.skip("LiteRT (ai-edge-litert) is not installed", allow_module_level=True)

SHARED = Path(__file__).parents[3] / "shared" / "data"
REAL = {DType.INT8: Quantization((0.03,), (7,)), DType.UINT8: Quantization((0.03,), (120,))}
RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def litert() -> Iterator[LiteRT]:
    runner = LiteRT()
    yield runner
    runner.pool.shutdown()


def op(name: str, **options: Any) -> Op:
    return REGISTRY[name](**options)


def activation(dtype: DType, *shape: int, quantization: Quantization | None = None) -> Tensor:
    return Tensor("", TensorType(dtype, shape), quantization=quantization or REAL[dtype])


def stored(dtype: DType, shape: tuple[int, ...], quantization: Quantization, limit: int = 100) -> Tensor:
    """A constant of random integers."""
    numpy_dtype = dtype.numpy
    assert numpy_dtype is not None
    low = 0 if numpy_dtype.kind == "u" else -limit
    values = RNG.integers(low, limit, shape).astype(numpy_dtype)
    buffer = Buffer(values.reshape(-1).view(np.uint8))
    return Tensor("", TensorType(dtype, shape), buffer, quantization=quantization)


def weights(dtype: DType, shape: tuple[int, ...], axis: int, channels: bool) -> tuple[Tensor, Tensor]:
    """Weights and the bias that belongs to them, with one scale or one for each output channel."""
    count = shape[axis]
    scale = tuple(0.004 * (1 + i) for i in range(count)) if channels else (0.01,)
    zero = 110 if dtype is DType.UINT8 else 0
    w = stored(dtype, shape, Quantization(scale, (zero,) * len(scale), axis if channels else 0))
    bias_scale = tuple(REAL[dtype].scale[0] * each for each in scale)
    return w, stored(DType.INT32, (count,), Quantization(bias_scale, (0,) * len(scale)), 500)


def plain(values: Any) -> Tensor:
    array = np.array(values, np.int32)
    return Tensor("", TensorType(DType.INT32, array.shape), Buffer(array.reshape(-1).view(np.uint8)))


def cases() -> Iterator[Any]:
    for dtype, channels in ((DType.INT8, True), (DType.INT8, False), (DType.UINT8, False)):
        image = activation(dtype, 2, 6, 5, 3)
        wide = Quantization((0.09,), REAL[dtype].zero_point)
        narrow = Quantization((1 / 256,), (0 if dtype is DType.UINT8 else -128,))
        kind = f"{dtype.name}-{'channels' if channels else 'tensor'}"
        both = weights(dtype, (4, 3, 3, 3), 0, channels)
        for fused in (Activation.NONE, Activation.RELU6):
            convolution = op("CONV_2D", stride_h=2, fused_activation_function=fused)
            yield pytest.param(convolution, [image, *both], wide, id=f"CONV_2D-{kind}-{fused.name}")
        both = weights(dtype, (1, 3, 3, 6), 3, channels)
        depthwise = op("DEPTHWISE_CONV_2D", padding=Padding.VALID, depth_multiplier=2)
        yield pytest.param(depthwise, [image, *both], wide, id=f"DEPTHWISE_CONV_2D-{kind}")
        flat = activation(dtype, 3, 8)
        both = weights(dtype, (5, 8), 0, channels)
        yield pytest.param(op("FULLY_CONNECTED"), [flat, *both], wide, id=f"FULLY_CONNECTED-{kind}")
        if channels:
            continue
        other = activation(dtype, 2, 6, 5, 3, quantization=wide)
        for name in ("ADD", "SUB", "MUL"):
            yield pytest.param(op(name), [image, other], wide, id=f"{name}-{kind}")
        pool = {"filter_width": 3, "filter_height": 2, "stride_w": 2, "stride_h": 2}
        for name in ("MAX_POOL_2D", "AVERAGE_POOL_2D"):
            yield pytest.param(op(name, **pool), [image], REAL[dtype], id=f"{name}-{kind}")
        yield pytest.param(op("RESHAPE"), [image, plain([2, 90])], REAL[dtype], id=f"RESHAPE-{kind}")
        yield pytest.param(op("SOFTMAX"), [flat], narrow, id=f"SOFTMAX-{kind}")
        yield pytest.param(op("LOGISTIC"), [flat], narrow, id=f"LOGISTIC-{kind}")
        same = [image, activation(dtype, 2, 6, 5, 3)]
        yield pytest.param(op("CONCATENATION", axis=3), same, REAL[dtype], id=f"CONCATENATION-{kind}")
        yield pytest.param(op("QUANTIZE"), [image], wide, id=f"QUANTIZE-{kind}")
        yield pytest.param(op("DEQUANTIZE"), [image], None, id=f"DEQUANTIZE-{kind}")


@pytest.mark.parametrize(("operator", "inputs", "made"), list(cases()))
def test_one_step(operator: Op, inputs: list[Tensor], made: Quantization | None, litert: LiteRT) -> None:
    for i, tensor in enumerate(inputs):
        tensor.name = f"x{i}"
    dtype = inputs[0].dtype if made else DType.FLOAT32
    (shape,) = (t.shape for t in operator.infer_types([_real(t) for t in inputs]))
    output = Tensor("y", TensorType(dtype, shape), quantization=made)
    fed = [tensor for tensor in inputs if tensor.buffer is None]
    graph = Graph("main", fed, [output], [Node(operator, list(inputs), [output], 0)])
    feeds = {t.name: _random(t) for t in fed}
    (expected,) = litert.run(write(Module([graph]), "TFL3"), feeds, ["y"])
    run_quantized(graph)
    node = graph.nodes[0]
    (found,) = node.op.compute([feeds[t.name] if t.buffer is None else t.data for t in inputs])
    assert found.dtype == expected.dtype
    assert node.op.infer_types([known_type(t) for t in inputs])[0] == output.type
    assert np.abs(found.astype(np.float64) - expected).max() <= (1 if made else 1e-6)


def _real(tensor: Tensor) -> TensorType:
    value = tensor.data if tensor.quantization is None else None
    return TensorType(DType.FLOAT32 if value is None else tensor.dtype, tensor.shape, value)


def _random(tensor: Tensor) -> Any:
    numpy_dtype = tensor.dtype.numpy
    assert numpy_dtype is not None
    limits = np.iinfo(numpy_dtype)
    return RNG.integers(limits.min, limits.max, tensor.shape, endpoint=True).astype(numpy_dtype)


def test_reals_become_integers(litert: LiteRT) -> None:
    x = Tensor("x0", TensorType(DType.FLOAT32, (4, 25)))
    y = activation(DType.INT8, 4, 25)
    y.name = "y"
    graph = Graph("main", [x], [y], [Node(op("QUANTIZE"), [x], [y], 0)])
    values = np.linspace(-6, 6, 100, dtype=np.float32).reshape(4, 25)
    (expected,) = litert.run(write(Module([graph]), "TFL3"), {"x0": values}, ["y"])
    run_quantized(graph)
    (found,) = graph.nodes[0].op.compute([values])
    np.testing.assert_array_equal(found, expected)


def test_weights_alone_may_be_integers(litert: LiteRT) -> None:
    """Dynamic range quantization: LiteRT rounds the input too, to 1/255 of its range."""
    w, _ = weights(DType.INT8, (5, 8), 0, False)
    x, y = Tensor("x0", TensorType(DType.FLOAT32, (3, 8))), Tensor("y", TensorType(DType.FLOAT32, (3, 5)))
    w.name = "w"
    graph = Graph("main", [x], [y], [Node(op("FULLY_CONNECTED"), [x, w], [y], 0)])
    values = RNG.uniform(-1, 1, (3, 8)).astype(np.float32)
    (expected,) = litert.run(write(Module([graph]), "TFL3"), {"x0": values}, ["y"])
    run_quantized(graph)
    (found,) = graph.nodes[0].op.compute([values, w.data])
    np.testing.assert_allclose(found, expected, atol=8 / 127)


def test_bias_without_scale_has_that_of_the_product() -> None:
    w, b = weights(DType.INT8, (5, 8), 0, True)
    x, y = activation(DType.INT8, 3, 8), activation(DType.INT8, 3, 5)
    known = b.quantization
    results = []
    for b.quantization in (known, None):
        graph = Graph("main", [x], [y], [Node(op("FULLY_CONNECTED"), [x, w, b], [y], 0)])
        run_quantized(graph)
        results.append(graph.nodes[0].op.compute([np.ones((3, 8), np.int8), w.data, b.data])[0])
    np.testing.assert_array_equal(*results)


def test_packed_weights_are_refused() -> None:
    x, y = activation(DType.INT8, 3, 8), activation(DType.INT8, 3, 5)
    w = Tensor("w", TensorType(DType.INT4, (5, 8)), Buffer(np.zeros(20, np.uint8)))
    graph = Graph("main", [x], [y], [Node(op("FULLY_CONNECTED"), [x, w], [y], 0)])
    with pytest.raises(UnsupportedOpError, match=r"FULLY_CONNECTED.*'w' \(int4 5×8\).*8 bit or float"):
        run_quantized(graph)


def test_real_and_stored_are_inverse() -> None:
    quantization = Quantization((0.1, 0.2, 0.4), (1, -2, 3), 1)
    values = np.arange(-60, 60, dtype=np.int8).reshape(2, 3, 20)
    real = dequantize(values, quantization)
    assert real[1, 2, 3] == np.float32((values[1, 2, 3] - 3) * 0.4)
    np.testing.assert_array_equal(quantize(real, quantization, DType.INT8), values)
    assert quantize(
        np.array([np.nan, np.inf, -np.inf]), Quantization((1.0,), (0,)), DType.UINT8
    ).tolist() == [0, 255, 0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "steps"), [("mlperf_tiny_resnet8_int8", 2), ("face_full_range_sparse_fp16", 1e-4),
                        ("selfie_segmentation_fp16_customop", 1e-4)]
)  # fmt: skip
def test_real_models(name: str, steps: float) -> None:
    path = SHARED / "models" / f"{name}.tflite"
    if not path.exists():
        pytest.skip(f"needs {path}")
    recorded = np.load(SHARED / "refs" / f"{name}.tflite.npz")
    graph = run(before_inference(), read(path).main.copy())
    values: dict[int, Any] = {
        id(graph.inputs[0]): next(recorded[k] for k in recorded.files if k.startswith("in:"))
    }
    for node in graph.nodes:
        given = [None if t is None else values[id(t)] if t.buffer is None else t.data for t in node.inputs]
        values.update(zip(map(id, node.outputs), node.op.compute(given), strict=True))
    for tensor in graph.outputs:
        expected = recorded[f"out:{tensor.name}"]
        limit = steps if steps >= 1 else steps * np.ptp(expected)
        assert np.abs(values[id(tensor)].astype(np.float64) - expected).max() <= limit
