"""Attention as the engine joins it: what it looks like in files, where it must stay apart, and the numbers of both passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import networks
import numpy as np
import pytest
from networks import make, weight
from test_backend_training import Joined, same, trained

import circle_train as ct
from circle_train.backends import native
from circle_train.backends.base import Reference
from circle_train.backends.native import Native
from circle_train.compile.compile import compile
from circle_train.compile.program import Mode
from circle_train.ir import Graph, Tensor
from circle_train.ir.graph import constant
from circle_train.model import Model
from circle_train.ops.internal.fused import Fused

pytestmark = pytest.mark.skipif(not native.is_available(), reason="the native engine was not built")
STEPS, HEADS, DEPTH = 21, 2, 16
WIDTH = HEADS * DEPTH


def number(value: object) -> Tensor:
    return constant(np.asarray(value, np.float32), "number")


@dataclass(frozen=True)
class Form:
    """One way of writing attention: what is done to the scores, whether keys are turned by a TRANSPOSE, what else is read."""

    scores: Callable[[Graph, Tensor], Tensor] = lambda graph, z: z
    beta: float = 1.0
    keys_turned: bool = False
    behind: Callable[[Graph, Tensor], Tensor] = lambda graph, p: p
    """What is done to the probabilities."""
    shows: bool = False
    """Whether the probabilities are read elsewhere too."""
    is_joined: bool = True


def scaled(graph: Graph, z: Tensor) -> Tensor:
    return graph.emit(make("MUL"), z, number(0.25))


def masked(graph: Graph, z: Tensor) -> Tensor:
    return graph.emit(make("ADD"), scaled(graph, z), number(np.triu(np.full((STEPS, STEPS), -1e9), 1)))


def masked_first(graph: Graph, z: Tensor) -> Tensor:
    quotient = graph.emit(make("DIV"), z, number(4.0))
    return graph.emit(
        make("ADD"), number(np.where(np.arange(STEPS) < 3, -1e4, 0).reshape(1, 1, 1, STEPS)), quotient
    )


LATER = np.triu(np.ones((STEPS, STEPS), bool), 1)


def hidden(hides: np.ndarray, by: float) -> Callable[[Graph, Tensor], Tensor]:
    """Scores, or that number where a constant says so."""
    return lambda graph, z: graph.emit(
        make("SELECT_V2"), constant(hides, "hides"), number(by), scaled(graph, z)
    )


def guarded(graph: Graph, p: Tensor) -> Tensor:
    """0 where a probability is no number."""
    return graph.emit(make("SELECT_V2"), graph.emit(make("NOT_EQUAL"), p, p), number(0.0), p)


def biased(graph: Graph, z: Tensor) -> Tensor:
    """A table that is trained: its gradient is that of the scores."""
    return graph.emit(make("ADD"), z, weight("table", 1, HEADS, STEPS, STEPS))


FORMS = {
    "plain": Form(),
    "scaled": Form(scaled),
    "softmax's own scale": Form(beta=0.5),
    "masked": Form(masked, keys_turned=True),
    "a mask of keys, first": Form(masked_first, beta=0.5),
    "keys turned": Form(scaled, keys_turned=True),
    "chosen": Form(hidden(LATER, -1e9)),
    "chosen, the other way": Form(
        lambda graph, z: graph.emit(make("SELECT_V2"), constant(~LATER, "seen"), z, number(-3e38))
    ),
    "chosen and guarded": Form(hidden(LATER, -np.inf), behind=guarded),
    "masked and guarded": Form(masked, behind=guarded),
    "chosen, but seldom by much": Form(hidden(LATER, -1e4), is_joined=False),
    "rows that see nothing": Form(hidden(LATER | (np.arange(STEPS)[:, None] == 3), -1e9), is_joined=False),
    "a guard without a mask": Form(scaled, behind=guarded, is_joined=False),
    "probabilities are read": Form(scaled, shows=True, is_joined=False),
    "a function between": Form(lambda graph, z: graph.emit(make("TANH"), z), is_joined=False),
    "a trained table": Form(biased, is_joined=False),
}


def heads(graph: Graph, x: Tensor, name: str, order: tuple[int, ...]) -> Tensor:
    x = graph.emit(
        make("FULLY_CONNECTED", keep_num_dims=True), x, weight(name, WIDTH, WIDTH), weight(f"{name}b", WIDTH)
    )
    x = graph.emit(make("RESHAPE", new_shape=(-1, STEPS, HEADS, DEPTH)), x)
    return graph.emit(make("TRANSPOSE"), x, constant(np.array(order, np.int32), "perm"))


def network(form: Form) -> Model:
    graph = Graph("attends", [networks.new_input("x", 1, STEPS, WIDTH)])
    x = graph.inputs[0]
    rows = (0, 2, 1, 3)
    q, v = heads(graph, x, "q", rows), heads(graph, x, "v", rows)
    k = heads(graph, x, "k", (0, 2, 3, 1) if form.keys_turned else rows)
    z = graph.emit(make("BATCH_MATMUL", adjoint_rhs=not form.keys_turned), q, k)
    p = form.behind(graph, graph.emit(make("SOFTMAX", beta=form.beta), form.scores(graph, z)))
    y = graph.emit(
        make("TRANSPOSE"), graph.emit(make("BATCH_MATMUL"), p, v), constant(np.array(rows, np.int32), "perm")
    )
    y = graph.emit(make("RESHAPE", new_shape=(-1, STEPS * WIDTH)), y)
    if form.shows:
        seen = graph.emit(make("RESHAPE", new_shape=(-1, HEADS * STEPS * STEPS)), p)
        y = graph.emit(make("CONCATENATION", axis=1), y, seen)
    return networks.finish(
        graph, graph.emit(make("FULLY_CONNECTED"), y, weight("f", 3, y.shape[-1]), weight("fb", 3))
    )


def joined(model: Model, config: ct.TrainConfig) -> list[str]:
    program = compile(model.module.main, config, Mode.TRAIN, 2, Native(1))
    kernels = [node.op.kernel for node in program.graph.nodes if isinstance(node.op, Fused)]
    return sorted(kernel for kernel in kernels if kernel.startswith("attention"))


@pytest.mark.parametrize("name", FORMS)
def test_training_is_as_specified(name: str) -> None:
    """Natively, by numpy on the joined graph, and by numpy on the plain one."""
    model = network(FORMS[name])
    config = ct.TrainConfig(loss="categorical_crossentropy", optimizer=ct.optimizers.SGD(0.1), batch_size=2)
    found = ["attention", "attention_gradient"] if FORMS[name].is_joined else []
    assert joined(model, config) == found
    engine = Native(2)
    losses, values = trained(model, config, Reference())
    for other in (Joined(engine), engine):
        other_losses, other_values = trained(model, config, other)
        np.testing.assert_allclose(other_losses, losses, rtol=1e-5)
        same(values, other_values, 2e-5)


def test_a_quotient_by_nothing_stays_apart() -> None:
    """It has no reciprocal to scale scores by."""
    model = network(Form(lambda graph, z: graph.emit(make("DIV"), z, number(0.0))))
    config = ct.TrainConfig(loss="categorical_crossentropy", batch_size=2)
    assert joined(model, config) == []
