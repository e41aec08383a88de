"""Batch normalisation in training: joined with what follows it, its gradients from what was normalised alone."""

from __future__ import annotations

from collections.abc import Callable

import networks
import numpy as np
import pytest
from networks import make, weight
from test_backend_training import Joined, same, trained
from test_memory_recompute import batch_normed

import circle_train as ct
from circle_train.backends import native
from circle_train.backends.base import Reference
from circle_train.backends.native import Native
from circle_train.compile.compile import compile
from circle_train.compile.program import Mode
from circle_train.ir import Graph, Tensor
from circle_train.model import Model
from circle_train.ops.attributes import Activation, Padding

pytestmark = pytest.mark.skipif(not native.is_available(), reason="the native engine was not built")
Behind = Callable[[Graph, Tensor, Tensor], Tensor]


def swish(graph: Graph, y: Tensor, x: Tensor) -> Tensor:
    return graph.emit(make("MUL"), y, graph.emit(make("LOGISTIC"), y))


def swish_turned(graph: Graph, y: Tensor, x: Tensor) -> Tensor:
    return graph.emit(make("MUL"), graph.emit(make("LOGISTIC"), y), y)


def twice(graph: Graph, y: Tensor, x: Tensor) -> Tensor:
    """Read before and behind its activation."""
    return graph.emit(make("ADD"), graph.emit(make("RELU"), y), y)


def summed(graph: Graph, y: Tensor, x: Tensor) -> Tensor:
    return graph.emit(make("RELU"), graph.emit(make("ADD"), y, x))


def summed_at_once(graph: Graph, y: Tensor, x: Tensor) -> Tensor:
    return graph.emit(make("ADD", fused_activation_function=Activation.RELU6), x, y)


def alone(name: str) -> Behind:
    return lambda graph, y, x: graph.emit(make(name), y)


BEHIND: dict[str, Behind] = {
    "nothing": lambda graph, y, x: y,
    **{name: alone(name) for name in ("RELU", "RELU6", "RELU_N1_TO_1", "TANH", "HARD_SWISH", "ELU")},
    "swish": swish,
    "swish turned": swish_turned,
    "read twice": twice,
    "sum": summed,
    "sum with its activation": summed_at_once,
    "itself": lambda graph, y, x: graph.emit(make("ADD"), y, y),
}


def network(behind: Behind) -> Model:
    graph = Graph("normed", [networks.new_input("image", 1, 6, 5, 3)])
    same_size = {"padding": Padding.SAME, "stride_h": 1, "stride_w": 1}
    x = graph.emit(make("CONV_2D", **same_size), graph.inputs[0], weight("w", 20, 3, 3, 3), None)
    x = behind(graph, batch_normed(graph, x, "first"), x)
    y = graph.emit(make("CONV_2D", **same_size), x, weight("v", 20, 1, 1, 20), None)
    x = behind(graph, batch_normed(graph, y, "second"), x)
    x = graph.emit(make("RESHAPE", new_shape=(-1, 600)), x)
    return networks.finish(
        graph, graph.emit(make("FULLY_CONNECTED"), x, weight("f", 4, 600), weight("fb", 4))
    )


@pytest.mark.parametrize("trainable", ["all", ("last", 2)])
@pytest.mark.parametrize("name", BEHIND)
def test_training_is_as_specified(name: str, trainable: str | tuple[str, int]) -> None:
    """Natively, by numpy on the joined graph, and by numpy on the plain one."""
    model = network(BEHIND[name])
    config = ct.TrainConfig(
        loss="categorical_crossentropy", batch_size=5, batch_norm="train", trainable=trainable
    )
    engine = Native(2)
    losses, values = trained(model, config, Reference())
    for other in (Joined(engine), engine):
        other_losses, other_values = trained(model, config, other)
        np.testing.assert_allclose(other_losses, losses, rtol=2e-5)
        same(values, other_values, 1e-4)


@pytest.mark.parametrize("name", ["RELU", "swish", "HARD_SWISH", "TANH"])
def test_what_an_activation_reads_is_not_kept(name: str) -> None:
    """Backward it is made again from what was normalised: a node each way, no mask and no result in between."""
    program = compile(
        network(BEHIND[name]).module.main,
        ct.TrainConfig(loss="mse", batch_size=4, batch_norm="train"),
        Mode.TRAIN,
        4,
        Native(2),
    )
    kernels = [getattr(node.op, "kernel", node.op.name) for node in program.graph.nodes]
    assert kernels.count("batch_norm") == kernels.count("batch_norm_gradient") == 2
    assert not {"ACTIVATION_GRADIENT", "PASS_ACTIVE", "RELU", "LOGISTIC", "TANH", "HARD_SWISH"} & {*kernels}


def test_a_profile_of_batch_statistics() -> None:
    """Nodes that stand for none of the file's have a name all the same."""
    session = ct.TrainSession(
        network(BEHIND["RELU"]), ct.TrainConfig(loss="mse", batch_size=4, batch_norm="train")
    )
    assert "batch_norm" in str(session.profile(steps=1))
