"""Convolutions of few channels joined with the max pool over them: where, what it saves, and that they learn the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from networks import finish, make, new_input, weight
from test_backends import every_tier
from test_memory_sharing import trained

import circle_train as ct
from circle_train.backends import native
from circle_train.backends.base import Reference
from circle_train.backends.native import Native, joining
from circle_train.backends.native.engine.abi import Tier
from circle_train.backends.native.fusion import pooled
from circle_train.compile.compile import compile
from circle_train.compile.program import Mode, Program
from circle_train.ir import Graph
from circle_train.ir.graph import constant
from circle_train.model import Model
from circle_train.ops.attributes import Activation, Padding

pytestmark = pytest.mark.skipif(not native.is_available(), reason="the native engine was not built")
BATCH = 3
JOINED = ["convolution_pool", "convolution_pool_w"]


def network(
    channels: int = 1,
    outputs: int = 16,
    kernel: int = 3,
    size: int = 13,
    pool: int = 2,
    stride: int = 2,
    **more: Any,
) -> Model:
    """A convolution, perhaps an activation, a max pool, the mean of each channel, a dense layer."""
    padding, kind = more.get("padding", Padding.SAME), more.get("kind", Activation.RELU)
    graph = Graph("pooled", [new_input("image", 1, size, size + 2, channels)])
    conv = make(
        "CONV_2D", padding=padding, stride_h=1, stride_w=more.get("step", 1), fused_activation_function=kind
    )
    w, b = weight("c/w", outputs, kernel, kernel, channels), weight("c/b", outputs)
    between = x = graph.emit(conv, graph.inputs[0], w, b, name="c")
    if more.get("alone"):
        between = x = graph.emit(make("RELU6"), x)
    windows = make(
        "MAX_POOL_2D",
        padding=padding,
        stride_h=stride,
        stride_w=stride,
        filter_height=pool,
        filter_width=pool,
    )
    axes = constant(np.array([1, 2], np.int32), "axes")
    x = graph.emit(make("MEAN", keep_dims=False), graph.emit(windows, x), axes)
    if more.get("read_twice"):
        x = graph.emit(make("ADD"), x, graph.emit(make("MEAN", keep_dims=False), between, axes))
    return finish(graph, graph.emit(make("FULLY_CONNECTED"), x, weight("f/w", 4, outputs), weight("f/b", 4)))


def program_of(model: Model, engine: Native) -> tuple[ct.TrainConfig, Program]:
    config = ct.TrainConfig(loss="mse", optimizer=ct.optimizers.Adam(0.01), batch_size=BATCH)
    return config, compile(model.module.main, config, Mode.TRAIN, BATCH, engine)


def joined(program: Program) -> list[str]:
    """The kernels of this kind, in order."""
    kernels = [getattr(node.op, "kernel", "") for node in program.graph.nodes]
    return [kernel for kernel in kernels if kernel in JOINED]


NETWORKS: dict[str, dict[str, Any]] = {
    "one channel": {},
    "no padding, rows and columns under no window": {"padding": Padding.VALID, "size": 12},
    "padded windows of the pool": {"size": 16, "pool": 3, "stride": 3},
    "sums kernel row by kernel row": {"channels": 3, "kernel": 5, "outputs": 48},
    "strides": {"channels": 4, "kernel": 2, "step": 2, "size": 14},
    "an activation that stood alone": {"kind": Activation.NONE, "alone": True},
    "no activation": {"kind": Activation.NONE},
    "bounds on both sides": {"kind": Activation.RELU_N1_TO_1},
}


@every_tier
@pytest.mark.parametrize("name", NETWORKS)
def test_joined_ones_learn_the_same(name: str, tier: Tier) -> None:
    """Three steps, as the reference takes them, and to the bit at any number of threads."""
    found = []
    for threads in (1, 2, 3, 8):
        config, program = program_of(network(**NETWORKS[name]), Native(threads, tier))
        assert joined(program) == JOINED
        found.append(trained(program, config, Native(threads, tier)))
    expected, states = trained(program, config, Reference())
    for seen, arrays in found:
        for one, other, first in zip(seen, expected, found[0][0], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
            np.testing.assert_array_equal(one, first)
        for key, array in states.items():
            np.testing.assert_allclose(arrays[key], array, rtol=2e-3, atol=1e-4, err_msg=str(key))
            np.testing.assert_array_equal(arrays[key], found[0][1][key], err_msg=str(key))


@pytest.mark.parametrize(
    "changes",
    [
        {"channels": 5},
        {"outputs": 24},
        {"kernel": 1},
        {"kind": Activation.TANH},
        {"pool": 3},
        {"read_twice": True},
    ],
)
def test_others_stay_apart(changes: dict[str, Any]) -> None:
    _, program = program_of(network(**changes), Native(1))
    assert joined(program) == []


def test_no_image_of_all_outputs_is_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    model = network(size=30, outputs=32)
    _, program = program_of(model, Native(1))
    passes = (pooled.join_pools, pooled.join_pooled_gradients)
    monkeypatch.setattr(joining, "PASSES", tuple(p for p in joining.PASSES if p not in passes))
    _, apart = program_of(model, Native(1))
    assert joined(apart) == []
    assert apart.arena_bytes - program.arena_bytes > 0.7 * BATCH * 30 * 32 * 32 * 4
