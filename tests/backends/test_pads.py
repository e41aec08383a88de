"""Zeros around images as the padding of the convolution behind them."""

from __future__ import annotations

import networks
import numpy as np
import pytest
from networks import make, weight
from test_backend_training import Joined, same, trained

import circle_train as ct
from circle_train.backends import native
from circle_train.backends.base import Reference
from circle_train.backends.native import Native
from circle_train.compile.compile import compile, compile_inference
from circle_train.compile.program import Mode
from circle_train.ir import Graph
from circle_train.ir.graph import constant
from circle_train.model import Model
from circle_train.ops.attributes import Activation, Padding

pytestmark = pytest.mark.skipif(not native.is_available(), reason="the native engine was not built")
AROUND = {"both": (1, 1, 1, 1), "one side": (0, 1, 0, 1), "uneven": (2, 0, 1, 3)}


def network(around: tuple[int, ...], kind: str, stride: int = 2, twice: bool = False) -> Model:
    """A padded convolution between two others; `twice`: what is padded is read beside it too."""
    graph = Graph("padded", [networks.new_input("image", 1, 9, 8, 3)])
    valid = {"padding": Padding.VALID, "stride_h": stride, "stride_w": stride}
    x = graph.emit(make("CONV_2D"), graph.inputs[0], weight("a", 16, 1, 1, 3), weight("ab", 16))
    paddings = np.array([[0, 0], around[:2], around[2:], [0, 0]], np.int32)
    padded = graph.emit(make("PAD"), x, constant(paddings, "paddings"))
    shapes = {"CONV_2D": (16, 3, 3, 16), "DEPTHWISE_CONV_2D": (1, 3, 3, 16), "groups": (16, 3, 3, 4)}
    w = weight("w", *shapes[kind])
    op = make("CONV_2D" if kind == "groups" else kind, fused_activation_function=Activation.RELU6, **valid)
    y = graph.emit(op, padded, w, weight("b", 16))
    if twice:
        y = graph.emit(
            make("ADD"), y, graph.emit(make("MAX_POOL_2D", **valid, filter_width=3, filter_height=3), padded)
        )
    y = graph.emit(make("MEAN", keep_dims=False), y, constant(np.array([1, 2], np.int32), "axes"))
    return networks.finish(graph, graph.emit(make("FULLY_CONNECTED"), y, weight("f", 4, 16), weight("fb", 4)))


@pytest.mark.parametrize("trainable", ["all", ("last", 3)])
@pytest.mark.parametrize("kind", ["CONV_2D", "DEPTHWISE_CONV_2D", "groups"])
@pytest.mark.parametrize("around", AROUND)
def test_training_is_as_specified(around: str, kind: str, trainable: str | tuple[str, int]) -> None:
    """Natively, by numpy on the joined graph, and by numpy on the plain one."""
    model = network(AROUND[around], kind)
    config = ct.TrainConfig(loss="categorical_crossentropy", batch_size=5, trainable=trainable)
    engine = Native(2)
    losses, values = trained(model, config, Reference())
    for other in (Joined(engine), engine):
        other_losses, other_values = trained(model, config, other)
        np.testing.assert_allclose(other_losses, losses, rtol=2e-5)
        same(values, other_values, 1e-4)


@pytest.mark.parametrize("twice", [False, True])
def test_nothing_is_copied_unless_others_read_it(twice: bool) -> None:
    model = network(AROUND["both"], "CONV_2D", twice=twice)
    config = ct.TrainConfig(loss="mse", batch_size=4)
    program = compile(model.module.main, config, Mode.TRAIN, 4, Native(2))
    assert ("PAD" in {node.op.name for node in program.graph.nodes}) == twice


def test_pictures_padded_before_they_are_turned_are_turned_first() -> None:
    """As files that came from ONNX have it: channels first, a PAD, and then the convolution's order."""
    graph = Graph("turned", [networks.new_input("image", 2, 3, 9, 8)])
    paddings = constant(np.array([[0, 0], [0, 0], [1, 2], [0, 1]], np.int32), "paddings")
    padded = graph.emit(make("PAD"), graph.inputs[0], paddings)
    turned = graph.emit(make("TRANSPOSE"), padded, constant(np.array([0, 2, 3, 1], np.int32), "order"))
    valid = {"padding": Padding.VALID, "stride_h": 2, "stride_w": 2}
    y = graph.emit(make("CONV_2D", **valid), turned, weight("w", 8, 3, 3, 3), weight("b", 8))
    model = networks.finish(graph, y)
    program = compile_inference(model.module.main, ((2, 3, 9, 8),), Native(1))
    assert program is not None
    assert [node.op.name for node in program.graph.nodes] == ["TRANSPOSE", "PADDED_CONV_2D"]
    x = np.random.default_rng(0).normal(size=(2, 3, 9, 8)).astype(np.float32)
    plain = ct.InferenceSession(model, backend="reference")(x)
    np.testing.assert_allclose(ct.InferenceSession(model, threads=1)(x), plain, atol=1e-5)


def test_zeros_beside_channels_are_no_padding_of_a_convolution() -> None:
    graph = Graph("channels", [networks.new_input("image", 2, 5, 6, 3)])
    paddings = constant(np.array([[0, 0], [1, 1], [1, 1], [0, 1]], np.int32), "paddings")
    padded = graph.emit(make("PAD"), graph.inputs[0], paddings)
    y = graph.emit(make("CONV_2D", padding=Padding.VALID), padded, weight("w", 8, 3, 3, 4), weight("b", 8))
    model = networks.finish(graph, y)
    x = np.random.default_rng(0).normal(size=(2, 5, 6, 3)).astype(np.float32)
    plain = ct.InferenceSession(model, backend="reference")(x)
    np.testing.assert_allclose(ct.InferenceSession(model, threads=1)(x), plain, atol=1e-5)
