"""Quantized operators against LiteRT: at most one step of the output's scale apart."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_ops_litert import LiteRT

import circle_train as ct
from circle_train.errors import ModelError, UnsupportedOpError
from circle_train.format import read, write
from circle_train.ir import Buffer, DType, Graph, Module, Node, Quantization, Tensor, TensorType
from circle_train.ir.node import known_type
from circle_train.ops import REGISTRY, Op
from circle_train.ops.attributes import Activation, Padding
from circle_train.ops.numeric.quantize import densify, dequantize, quantize
from circle_train.passes import before_inference, run
from circle_train.passes.integers.quantized import run_quantized

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


SPARSE = {
    "traversal_order": np.array([0, 1, 2, 3]),
    "block_map": np.array([0, 1]),
    "dim_metadata": [
        {"dense_size": 2},
        {
            "format": 1,
            "array_segments": {"values": np.array([0, 1, 2])},
            "array_indices": {"values": np.array([1, 0])},
        },
        {"dense_size": 2},
        {"dense_size": 2},
    ],
}


def test_blocks_become_dense() -> None:
    """The 2×2 blocks at (0, 1) and (1, 0) of a 4×4 matrix, as TFLite's format description lays them out."""
    dense = densify(np.arange(1, 9, dtype=np.float32), SPARSE, (4, 4))
    np.testing.assert_array_equal(dense, [[0, 0, 1, 2], [0, 0, 3, 4], [5, 6, 0, 0], [7, 8, 0, 0]])


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("traversal_order", np.array([0, 1, 2, 2]), "traversal order"),
        ("block_map", np.array([0, 7]), "block map"),
        ("dim_metadata", SPARSE["dim_metadata"][:3], "3 dimensions"),
        (
            "dim_metadata",
            [{"dense_size": 1 << 30}, *SPARSE["dim_metadata"][1:]],
            "level 0 is dense with size",
        ),
        ("dim_metadata", [*SPARSE["dim_metadata"][:3], {"dense_size": 3}], "blocks of 3"),
        (
            "dim_metadata",
            [SPARSE["dim_metadata"][0], {"format": 1}, *SPARSE["dim_metadata"][2:]],
            "0 segments",
        ),
    ],
)
def test_damaged_sparsity_is_refused(field: str, value: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        densify(np.arange(1, 9, dtype=np.float32), {**SPARSE, field: value}, (4, 4))


def test_other_number_of_elements_is_refused() -> None:
    with pytest.raises(ModelError, match="describes 8 elements, the buffer holds 7"):
        densify(np.arange(7, dtype=np.float32), SPARSE, (4, 4))


def vector(*numbers: int) -> dict[str, Any]:
    return {"values": np.array(numbers, np.int32)}


def encoded(
    name: str, stored_values: Any, shape: tuple[int, ...], quantization: Quantization | None
) -> Tensor:
    array = np.asarray(stored_values)
    type_ = TensorType(DType.of(array.dtype), shape)
    return Tensor(name, type_, Buffer(array.reshape(-1).view(np.uint8)), quantization=quantization)


def sparse_weights() -> Tensor:
    """Four rows of four, of which the stored elements are four."""
    tensor = encoded("w", np.array([1, 2, 3, 4], np.float16), (4, 4), None)
    rows = {"format": 1, "array_segments_type": 1, "array_segments": vector(0, 1, 1, 3, 4)}
    rows |= {"array_indices_type": 1, "array_indices": vector(2, 0, 3, 1)}
    levels = [{"dense_size": 4}, rows]
    order = np.array([0, 1], np.int32)
    tensor.carried["fields"] = {"sparsity": {"traversal_order": order, "dim_metadata": levels}}
    return tensor


def trained(module: Module, tmp_path: Path) -> tuple[ct.TrainSession, Path]:
    config = ct.TrainConfig(
        loss="mean_squared_error", optimizer=ct.optimizers.SGD(learning_rate=0.25), batch_size=1
    )
    session = ct.TrainSession(write(module, "TFL3"), config)
    losses = [
        session.train_step(np.ones((1, 4), np.float32), np.zeros((1, 4), np.float32)).loss for _ in range(4)
    ]
    assert losses[-1] < losses[0] / 2
    session.export(tmp_path / "trained.tflite")
    return session, tmp_path / "trained.tflite"


def test_sparse_weights_train_within_their_pattern(litert: LiteRT, tmp_path: Path) -> None:
    w, x, y = sparse_weights(), *(Tensor(name, TensorType(DType.FLOAT32, (1, 4))) for name in ("x0", "y"))
    half = Tensor("half", TensorType(DType.FLOAT16, (4, 4)))
    dense = Tensor("dense", TensorType(DType.FLOAT32, (4, 4)))
    nodes = [
        Node(op("DENSIFY"), [w], [half], 0),
        Node(op("DEQUANTIZE"), [half], [dense], 1),
        Node(op("FULLY_CONNECTED"), [x, dense], [y], 2),
    ]
    session, path = trained(Module([Graph("main", [x], [y], nodes)]), tmp_path)
    saved = next(tensor for tensor in read(path).main.tensors if tensor.name == "w")
    assert saved.buffer is not None
    np.testing.assert_array_equal(
        saved.buffer.bytes.view(np.float16), session.parameters["w"].astype(np.float16)
    )
    feed = np.arange(4, dtype=np.float32).reshape(1, 4)
    (result,) = litert.run(path.read_bytes(), {"x0": feed}, ["y"])
    np.testing.assert_allclose(result, session.predict(feed), rtol=2e-3, atol=2e-3)


def test_integer_weights_are_written_back_by_their_scale(tmp_path: Path) -> None:
    scale = Quantization((0.1, 0.2, 0.4, 0.8), (0, 0, 0, 0), 0)
    w = encoded("w", np.arange(-8, 8, dtype=np.int8), (4, 4), scale)
    x, y = (Tensor(name, TensorType(DType.FLOAT32, (1, 4))) for name in ("x0", "y"))
    dense = Tensor("dense", TensorType(DType.FLOAT32, (4, 4)))
    nodes = [Node(op("DEQUANTIZE"), [w], [dense], 0), Node(op("FULLY_CONNECTED"), [x, dense], [y], 1)]
    session, path = trained(Module([Graph("main", [x], [y], nodes)]), tmp_path)
    saved = next(tensor for tensor in read(path).main.tensors if tensor.name == "w")
    real = dequantize(saved.data, scale)
    assert (np.abs(real - session.parameters["w"]) <= np.array(scale.scale)[:, None] / 2 + 1e-6).all()


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
