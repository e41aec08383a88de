"""Networks for tests of bfloat16 activations, and sessions that train them."""

from __future__ import annotations

from typing import Any

import networks
import numpy as np
import pytest
from networks import make, weight

import circle_train as ct
from circle_train.backends import native
from circle_train.backends.native import Native
from circle_train.backends.native.engine.abi import Tier
from circle_train.backends.native.engine.library import load
from circle_train.ir import Graph, Tensor
from circle_train.ir.graph import constant
from circle_train.ir.tensor_type import Array
from circle_train.model import Model
from circle_train.ops.attributes import Activation, Padding

needs_native = pytest.mark.skipif(not native.is_available(), reason="the native engine was not built")
RNG = np.random.default_rng(5)
IMAGES = RNG.normal(size=(8, 16, 16, 3)).astype(np.float32)
WORDS = RNG.normal(size=(8, 24, 32)).astype(np.float32)
LABELS = np.eye(5, dtype=np.float32)[np.arange(8) % 5]


def inverted_residual() -> Model:
    """A convolution of three channels, then one of every kind that knows bfloat16, with a residual and a pool."""
    graph = Graph("net", [networks.new_input("image", 1, 16, 16, 3)])

    def conv(x: Tensor, outputs: int, size: int, stride: int, act: Activation, name: str) -> Tensor:
        op = make(
            "CONV_2D", padding=Padding.SAME, stride_h=stride, stride_w=stride, fused_activation_function=act
        )
        return graph.emit(
            op,
            x,
            weight(f"{name}/w", outputs, size, size, x.shape[3]),
            weight(f"{name}/b", outputs),
            name=name,
        )

    first = conv(graph.inputs[0], 16, 3, 1, Activation.RELU6, "first")
    x = conv(first, 24, 1, 1, Activation.RELU6, "expand")
    op = make("DEPTHWISE_CONV_2D", padding=Padding.SAME, fused_activation_function=Activation.RELU6)
    x = graph.emit(op, x, weight("dw/w", 1, 3, 3, 24), weight("dw/b", 24), name="dw")
    x = graph.emit(make("ADD"), conv(x, 16, 1, 1, Activation.NONE, "project"), first, name="sum")
    x = conv(x, 32, 3, 2, Activation.RELU, "down")
    x = conv(x, 32, 3, 1, Activation.RELU, "same")
    pool = make("MAX_POOL_2D", padding=Padding.VALID, stride_h=2, stride_w=2, filter_height=2, filter_width=2)
    x = graph.emit(pool, x, name="pool")
    x = graph.emit(make("MEAN"), x, constant(np.array([1, 2], np.int32), "axes"), name="mean")
    x = graph.emit(make("FULLY_CONNECTED"), x, weight("fc/w", 5, 32), weight("fc/b", 5), name="fc")
    return networks.finish(graph, x)


def attention() -> Model:
    """One layer of self-attention with two heads, and a feed-forward part with GELU."""
    graph = Graph("attention", [networks.new_input("words", 1, 24, 32)])

    def dense(x: Tensor, outputs: int, name: str) -> Tensor:
        op = make("FULLY_CONNECTED", keep_num_dims=True)
        return graph.emit(
            op, x, weight(f"{name}/w", outputs, x.shape[-1]), weight(f"{name}/b", outputs), name=name
        )

    def moved(x: Tensor, shape: tuple[int, ...], order: tuple[int, ...], first: bool) -> Tensor:
        for is_reshape in (first, not first):
            if is_reshape:
                x = graph.emit(make("RESHAPE"), x, constant(np.array((-1, *shape), np.int32), "shape"))
            else:
                x = graph.emit(make("TRANSPOSE"), x, constant(np.array(order, np.int32), "perm"))
        return x

    words = graph.inputs[0]
    q, k, v = (moved(dense(words, 32, name), (24, 2, 16), (0, 2, 1, 3), True) for name in "qkv")
    scores = graph.emit(make("BATCH_MATMUL", adjoint_rhs=True), q, k, name="scores")
    weights = graph.emit(make("SOFTMAX", beta=0.25), scores, name="weights")
    mixed = graph.emit(make("BATCH_MATMUL"), weights, v, name="mixed")
    mixed = moved(mixed, (24, 32), (0, 2, 1, 3), False)
    x = graph.emit(make("ADD"), dense(mixed, 32, "out"), words, name="sum")
    x = dense(graph.emit(make("GELU"), dense(x, 64, "up"), name="gelu"), 32, "down")
    x = graph.emit(make("MEAN"), x, constant(np.array([1], np.int32), "axes"), name="mean")
    x = graph.emit(make("FULLY_CONNECTED"), x, weight("fc/w", 5, 32), weight("fc/b", 5), name="fc")
    return networks.finish(graph, x)


NETS = {"inverted_residual": (inverted_residual, IMAGES), "attention": (attention, WORDS)}
every_net = pytest.mark.parametrize("net", sorted(NETS))


def config_of(activations: str = "bfloat16", **settings: Any) -> ct.TrainConfig:
    loss = ct.losses.CategoricalCrossentropy(from_logits=True)
    settings = {"optimizer": ct.optimizers.SGD(0.05), "batch_size": 8, **settings}
    return ct.TrainConfig(loss, activations=activations, **settings)


def session_of(net: str, activations: str = "bfloat16", *, backend: str = "auto", threads: int | None = None,
               **settings: Any) -> ct.TrainSession:  # fmt: skip
    return ct.TrainSession(
        NETS[net][0](), config_of(activations, **settings), backend=backend, threads=threads
    )


def gradients_of(session: ct.TrainSession, net: str) -> dict[str, Array]:
    session.train_step(NETS[net][1], LABELS, update=False, accumulate=True)
    return {name: array.copy() for name, array in session.gradients.items()}


def distance(found: dict[str, Array], expected: dict[str, Array]) -> float:
    """Of two sets of gradients, relative to their length."""
    difference = sum(float(np.sum((found[name] - expected[name]) ** 2)) for name in expected)
    return float(np.sqrt(difference / sum(float(np.sum(g**2)) for g in expected.values())))


def normal(*shape: int) -> Array:
    return np.random.default_rng([9, *shape]).normal(size=shape).astype(np.float32)


def engine_of(tier: Tier, threads: int = 3) -> Native:
    library = load()
    if library is None or tier > library.ct_best_tier():
        pytest.skip(f"this processor cannot run {tier.name}")
    return Native(threads, tier)
