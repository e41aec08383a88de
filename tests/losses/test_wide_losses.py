"""Losses over many classes: their gradient is nowhere in memory, and training is what it was."""

from __future__ import annotations

from typing import Any

import networks
import numpy as np
import pytest
from networks import constant, make, weight

import circle_train as ct
from circle_train.backends import native
from circle_train.backends.native.fusion import wide_losses
from circle_train.ir import DType, Graph
from circle_train.model import Model
from circle_train.ops.internal.fused import Fused

pytestmark = pytest.mark.skipif(not native.is_available(), reason="the native engine was not built")
BATCH, STEPS, WIDTH, WORDS = 3, 40, 24, 9000
TOKENS, LABELS = np.random.default_rng(0).integers(0, WORDS, (2, BATCH, STEPS)).astype(np.int32)
SPARSE = ct.losses.SparseCategoricalCrossentropy(from_logits=True)


def language(tied: bool = False, bias: bool = True, activation: bool = False) -> Model:
    """Tokens, their rows of a table, a layer, and a score for every word."""
    graph = Graph("language", [networks.new_input("tokens", 1, STEPS, dtype=DType.INT32)])
    table, words = weight("table", WORDS, WIDTH), weight("words", WORDS, WIDTH, seed=1)
    dense = make("FULLY_CONNECTED", keep_num_dims=True)
    x = graph.emit(make("GATHER"), table, graph.inputs[0])
    x = graph.emit(make("RELU"), graph.emit(dense, x, weight("w", WIDTH, WIDTH), weight("b", WIDTH)))
    y = graph.emit(dense, x, table if tied else words, *([weight("shift", WORDS)] if bias else []))
    if activation:
        y = graph.emit(make("MUL"), y, constant(np.float32(2), "twice"))
    return networks.finish(graph, y)


def session(model: Model, **settings: Any) -> ct.TrainSession:
    given = {"loss": SPARSE, "optimizer": ct.optimizers.SGD(0.5), "batch_size": BATCH, **settings}
    engine = {"threads": given.pop("threads", 2), "backend": given.pop("backend", "native")}
    made = ct.TrainSession(model, ct.TrainConfig(**given), **engine)
    made.prepare()
    return made


def trained(model: Model, **settings: Any) -> tuple[list[float], np.ndarray]:
    """Three losses, and all parameters."""
    made = session(model, **settings)
    return [made.train_step(TOKENS, LABELS).loss for _ in range(3)], made.parameters.flat()


def kernels(made: ct.TrainSession) -> set[str]:
    return {node.op.kernel for node in made.program.graph.nodes if isinstance(node.op, Fused)}


WIDE = {"fully_connected_x_of_loss", "fully_connected_w_of_loss"}


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_training_is_as_specified(tied: bool, bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with the gradient in memory, and as in numpy."""
    model = language(tied, bias)
    assert kernels(session(model)) >= WIDE
    losses, values = trained(model)
    reference, expected = trained(model, backend="reference")
    np.testing.assert_allclose(losses, reference, rtol=1e-5)
    np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-6)
    monkeypatch.setattr(wide_losses, "WIDE", 1 << 40)
    assert not kernels(session(model)) & WIDE
    same, others = trained(model)
    assert losses == same
    np.testing.assert_allclose(values, others, rtol=1e-5, atol=1e-7)


def test_any_number_of_threads_gives_the_same_bits() -> None:
    one, three = (trained(language(), threads=threads, optimizer="adam")[1] for threads in (1, 3))
    assert one.tobytes() == three.tobytes()


def test_the_gradient_is_not_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = session(language()).program.memory.nbytes
    monkeypatch.setattr(wide_losses, "WIDE", 1 << 40)
    gradient = BATCH * STEPS * WORDS * 4
    assert session(language()).program.memory.nbytes > wide + 0.9 * gradient


def test_what_others_read_stays_in_memory() -> None:
    assert not kernels(session(language(activation=True))) & WIDE


def test_a_label_that_is_no_word_is_refused_as_ever() -> None:
    made = session(language())
    with pytest.raises(ct.DataError, match="9000"):
        made.train_step(TOKENS, np.maximum(LABELS, WORDS * (LABELS.max() == LABELS)))


def test_gradients_that_wait_add_up() -> None:
    """Accumulated twice it is twice the gradient."""
    model = language()
    whole, halves = session(model), session(model)
    whole.train_step(TOKENS, LABELS, update=False, accumulate=True)
    for _ in range(2):
        halves.train_step(TOKENS, LABELS, update=False, accumulate=True)
    key = next(key for key in whole.state.arrays if key.kind == "gradient" and key.owner == "words")
    np.testing.assert_allclose(halves.state.arrays[key], 2 * whole.state.arrays[key], rtol=1e-5, atol=1e-8)
