"""Frozen weights that lie as bytes: products unpack them, and compute what they compute of the floats these stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import circle_train as ct
from circle_train import format
from circle_train.backends import native
from circle_train.backends.native import Native
from circle_train.backends.native.binders import conv
from circle_train.backends.native.binders.products import linear
from circle_train.backends.native.engine.abi import Tier
from circle_train.backends.native.engine.binding import Calls
from circle_train.backends.native.engine.library import load
from circle_train.backends.native.engine.step import NativeStep
from circle_train.ir import Buffer, DType, Graph, Module, Quantization, Tensor, TensorType
from circle_train.ir.coded import Coded
from circle_train.ir.graph import constant
from circle_train.ir.tensor_type import Array
from circle_train.ops import REGISTRY
from circle_train.ops.attributes import Activation, Padding
from circle_train.ops.base import Op
from circle_train.ops.internal.bfloat16 import RoundedConv2D, RoundedFullyConnected
from circle_train.ops.layers.conv import Conv2D, DepthwiseConv2D
from circle_train.ops.layers.linear import FullyConnected
from circle_train.ops.numeric.quantize import dequantize

pytestmark = pytest.mark.skipif(not native.is_available(), reason="the native engine was not built")

RNG = np.random.default_rng(0)


def meaning(count: int, axis: int = 0, zero: int = 0) -> Quantization:
    return Quantization(
        tuple(float(np.float32(0.01 * (1 + i % 7))) for i in range(count)), (zero,) * count, axis
    )


def coded(shape: tuple[int, ...], count: int = 1, axis: int = 0, unsigned: bool = False) -> Coded:
    limits = np.iinfo(np.uint8 if unsigned else np.int8)
    values = RNG.integers(limits.min, limits.max + 1, shape).astype(limits.dtype)
    made = Coded.of(values, meaning(count, axis, 113 if unsigned else 0))
    assert made is not None
    return made


def normal(*shape: int) -> Array:
    return RNG.normal(size=shape).astype(np.float32)


def products() -> Iterator[Any]:
    """Few rows and many, and every way that convolutions have of their own."""
    for op, rows in (
        (FullyConnected(), 1),
        (FullyConnected(), 7),
        (FullyConnected(), 61),
        (RoundedFullyConnected(), 61),
    ):
        yield pytest.param(op, (rows, 131), (45, 131), (rows, 45), id=f"{type(op).__name__}-{rows}")
    for name, op, x, w in (
        ("single cells", Conv2D(), (2, 7, 9, 40), (37, 1, 1, 40)),
        ("winograd", Conv2D(), (1, 14, 14, 64), (64, 3, 3, 64)),
        ("rounded", RoundedConv2D(), (1, 14, 14, 64), (64, 3, 3, 64)),
        ("colours", Conv2D(stride_h=2, stride_w=2), (2, 17, 19, 3), (40, 3, 3, 3)),
        ("few channels", Conv2D(), (2, 12, 16, 8), (16, 3, 3, 8)),
        ("strides", Conv2D(stride_h=2, stride_w=2), (1, 9, 8, 24), (20, 5, 5, 24)),
        ("valid", Conv2D(padding=Padding.VALID, dilation_h_factor=2), (1, 9, 8, 24), (20, 2, 3, 24)),
        ("groups", Conv2D(), (1, 9, 8, 64), (32, 3, 3, 16)),
        ("depthwise", DepthwiseConv2D(), (2, 9, 8, 200), (1, 3, 3, 200)),
        ("multiplied", DepthwiseConv2D(depth_multiplier=2, stride_h=2), (2, 9, 8, 100), (1, 3, 3, 200)),
    ):  # fmt: skip
        y = op.infer(*(TensorType(DType.FLOAT32, shape) for shape in (x, w)))
        yield pytest.param(op, x, w, (y[0] if isinstance(y, (list, tuple)) else y).shape, id=name)


def run(engine: Native, bind: Callable[[Any], Calls], w: Any, y: Array) -> Array:
    calls = bind(w)
    assert calls is not None, "no kernel"
    NativeStep("product", calls, engine.scratch)()
    return y.copy()


@pytest.mark.parametrize("scales", ["one", "each", "unsigned"])
@pytest.mark.parametrize("tier", list(Tier)[1:])
@pytest.mark.parametrize(("op", "fed", "shape", "made"), list(products()))
def test_products_of_bytes_are_those_of_floats(
    op: Op, fed: tuple[int, ...], shape: tuple[int, ...], made: tuple[int, ...], tier: Tier, scales: str
) -> None:
    library = load()
    if library is None or tier > library.ct_best_tier():
        pytest.skip(f"this processor cannot run {tier.name}")
    axis = 3 if isinstance(op, DepthwiseConv2D) else 0
    w = coded(shape, 1 if scales == "one" else shape[axis], axis, scales == "unsigned")
    x, b, y, dx = normal(*fed), normal(shape[axis]), np.zeros(made, np.float32), np.zeros(fed, np.float32)
    of: Any = linear if len(shape) == 2 else conv
    dy = normal(*made)
    ways: list[tuple[Callable[[Any], Calls], Array]] = [
        (lambda w: of.forward(op, {"x": x, "w": w, "b": b}, Activation.RELU, y), y),
        (lambda w: of.input_gradient(op, {"dy": dy, "w": w}, Activation.NONE, dx), dx),
    ]
    for threads in (1, 2):
        engine = Native(threads, tier)
        for bind, out in ways:
            wanted, found = (run(engine, bind, given, out) for given in (w.real, w))
            np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6 * np.abs(wanted).max())
            assert np.abs(wanted).max() > 1


def test_scales_along_another_axis_have_no_kernel() -> None:
    x, y = normal(3, 64), np.zeros((3, 32), np.float32)
    given = {"x": x, "b": None}
    assert (
        linear.forward(FullyConnected(), {**given, "w": coded((32, 64), 64, 1)}, Activation.NONE, y) is None
    )
    assert linear.forward(FullyConnected(), {**given, "w": coded((32, 64), 32, 0)}, Activation.NONE, y)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_the_floats_are_the_same_bits(dtype: type, axis: int) -> None:
    values = RNG.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, (32, 40)).astype(dtype)
    for about in (meaning(1, 0, 5), meaning(values.shape[axis], axis, 5)):
        made = Coded.of(values, about)
        assert made is not None
        np.testing.assert_array_equal(made.real, dequantize(values, about))
        assert not made.real.flags.writeable


def test_what_float32_does_not_say_exactly_is_decoded() -> None:
    values = np.zeros((32, 40), np.int8)
    assert Coded.of(values, Quantization((0.1,), (0,))) is None
    assert Coded.of(values, Quantization((0.5,) * 3, (0,) * 3)) is None
    assert Coded.of(values[:3], Quantization((0.5,), (0,))) is None
    assert Coded.of(values.astype(np.int16), Quantization((0.5,), (0,))) is None
    assert Coded.of(values, Quantization((0.5,), (0,))) is not None


# Sessions


def network(*, is_stored: bool, through: bool = False) -> ct.Model:
    """A convolution, and a dense layer over it; weights as bytes (`through` a DEQUANTIZE), or as what these stand for."""
    rng = np.random.default_rng(1)
    graph = Graph("main", [Tensor("x", TensorType(DType.FLOAT32, (4, 6, 6, 16)))])
    buffers = [Buffer()]
    y, head = graph.inputs[0], rng.normal(size=(5, 64)).astype(np.float32) / 8
    for name, shape in (("CONV_2D", (64, 3, 3, 16)), ("MEAN", ()), ("FULLY_CONNECTED", (48, 64))):
        if name == "MEAN":
            y = graph.emit(REGISTRY[name](), y, constant(np.array([1, 2], np.int32), "axes"), name="mean")
            continue
        stored = rng.integers(-127, 128, shape).astype(np.int8)
        about = meaning(shape[0])
        real = constant(dequantize(stored, about), f"{name}.w")
        y = graph.emit(REGISTRY[name](), y, real, None, name=name)
        if is_stored:
            held = constant(stored, f"{name}.w")
            held.quantization = about
            assert y.producer is not None
            w = graph.emit(REGISTRY["DEQUANTIZE"](), held, name=f"{name}.real") if through else held
            w.type = TensorType(DType.FLOAT32 if through else DType.INT8, shape)
            inputs = [y.producer.inputs[0], w, None]
            graph.reconnect(y.producer, inputs)
    graph.nodes = sorted(graph.nodes, key=lambda node: node.op.name != "DEQUANTIZE")
    y = graph.emit(REGISTRY["FULLY_CONNECTED"](), y, constant(head[:, :48], "head"), None, name="y")
    graph.outputs = [y]
    buffers += [t.buffer for t in graph.all_tensors() if t.buffer is not None]
    return ct.load(format.write(Module([graph], buffers)))


def session(model: ct.Model, backend: str = "auto") -> ct.TrainSession:
    return ct.TrainSession(
        model, ct.TrainConfig(loss="mse", batch_size=4, trainable=["head"]), backend=backend
    )


X, Y = normal(4, 6, 6, 16), normal(4, 5)
BODY = 64 * 3 * 3 * 16 + 48 * 64


@pytest.mark.parametrize("through", [False, True])
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_a_frozen_body_keeps_its_bytes(backend: str, through: bool) -> None:
    ours = session(network(is_stored=True, through=through), backend)
    theirs = session(network(is_stored=False), backend)
    assert theirs.plan.memory["frozen parameters"] == 4 * BODY
    assert ours.plan.memory["frozen parameters"] == BODY
    for _ in range(3):
        found, wanted = (float(one.train_step(X, Y).loss) for one in (ours, theirs))
        assert found == pytest.approx(wanted, rel=1e-6)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-5, atol=1e-5)
    assert len(ours.state.coded) == 2


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_a_weight_that_is_set_is_floats_from_then_on(backend: str, tmp_path: Path) -> None:
    ours, theirs = session(network(is_stored=True), backend), session(network(is_stored=False), backend)
    before = ours.predict(X)
    name = "CONV_2D.w"
    np.testing.assert_array_equal(ours.parameters[name], theirs.parameters[name])
    new = normal(64, 3, 3, 16)
    ours.save_checkpoint(tmp_path / "before.safetensors")
    for one in (ours, theirs):
        one.parameters[name] = new
    np.testing.assert_array_equal(ours.parameters[name], new)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-5, atol=1e-4)
    assert np.abs(ours.predict(X) - before).max() > 1
    ours.load_checkpoint(tmp_path / "before.safetensors")
    np.testing.assert_array_equal(ours.predict(X), before)
    assert len(ours.state.coded) == 2


def test_export_of_what_nobody_trained_is_the_file(tmp_path: Path) -> None:
    network(is_stored=True).save(tmp_path / "in.tflite")
    one = session(ct.load(tmp_path / "in.tflite"))
    one.predict(X)
    one.export(tmp_path / "out.tflite")
    assert (tmp_path / "out.tflite").read_bytes() == (tmp_path / "in.tflite").read_bytes()


def test_another_choice_of_what_is_trained_decodes_that(tmp_path: Path) -> None:
    """It moves as floats do, and is read as what the file will hold of it."""
    one, like = session(network(is_stored=True)), session(network(is_stored=False))
    for each in (one, like):
        each.train_step(X, Y)
        each.set_trainable(["FULLY_CONNECTED.w"], learning_rate=1e-3)
        each.train_step(X, Y)
    assert [key.owner for key in one.state.coded] == ["CONV_2D.w"]
    moved = (each.parameters["FULLY_CONNECTED.w"] for each in (one, like))
    np.testing.assert_allclose(*moved, rtol=1e-5, atol=1e-5)
    one.export(tmp_path / "out.tflite")
    again = session(ct.load(tmp_path / "out.tflite"))
    np.testing.assert_allclose(one.predict(X), again.predict(X), rtol=1e-5, atol=1e-5)
