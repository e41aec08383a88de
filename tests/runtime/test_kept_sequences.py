"""Kept results of sequences."""

from __future__ import annotations

import networks
import numpy as np
import pytest
from networks import make, new_input, weight
from test_kept import data

import circle_train as ct
from circle_train.backends import native
from circle_train.compile import prefix
from circle_train.ir import Graph
from circle_train.ir.graph import constant

needs_native = pytest.mark.skipif(not native.is_available(), reason="the kernels are not compiled")


def attention() -> ct.Model:
    """A sequence folded into rows for dense layers; in each half of it, positions look at each other."""
    graph = Graph("attention", [new_input("x", 1, 6, 8)])
    folded = graph.emit(make("RESHAPE"), graph.inputs[0], constant(np.array([-1, 8], np.int32)))
    rows = graph.emit(make("FULLY_CONNECTED"), folded, weight("q/w", 8, 8), weight("q/b", 8))
    x = graph.emit(make("RESHAPE"), rows, constant(np.array([-1, 2, 3, 8], np.int32)))
    scores = graph.emit(make("BATCH_MATMUL", adjoint_lhs=False, adjoint_rhs=True), x, x)
    looked = graph.emit(
        make("BATCH_MATMUL", adjoint_lhs=False, adjoint_rhs=False),
        graph.emit(make("SOFTMAX", beta=1.0), scores),
        x,
    )
    x = graph.emit(make("CONCATENATION", axis=3), x, looked)
    x = graph.emit(make("RESHAPE"), x, constant(np.array([-1, 16], np.int32)))
    x = graph.emit(make("FULLY_CONNECTED"), x, weight("p/w", 8, 16), weight("p/b", 8))
    x = graph.emit(make("ADD"), x, rows)
    x = graph.emit(make("FULLY_CONNECTED"), x, weight("t/w", 8, 8), weight("t/b", 8))
    x = graph.emit(make("RESHAPE"), x, constant(np.array([-1, 6, 8], np.int32)))
    x = graph.emit(make("MEAN", keep_dims=False), x, constant(np.array([1], np.int32)))
    x = graph.emit(make("FULLY_CONNECTED"), x, weight("g/w", 4, 8), weight("g/b", 4))
    return networks.finish(graph, x)


@needs_native
@pytest.mark.parametrize(("last", "numbers"), [(1, 8), (3, 8), (4, 48), (6, 0)])
@pytest.mark.parametrize("batch_size", [4, 7])
def test_sequences_folded_into_rows(last: int, numbers: int, batch_size: int) -> None:
    """A sample's results may be several rows of a tensor; nothing is kept where computing it again is no work."""
    x, y = data(30, (6, 8))
    found = []
    for wish in (False, "auto"):
        config = ct.TrainConfig("mse", ct.optimizers.Adam(0.01), batch_size, trainable=("last", last))
        session = ct.TrainSession(attention(), config, backend="native")
        history = session.fit(x, y, epochs=3, verbose=0, keep_frozen=wish, validation_split=0.3)
        found.append((history.history, session.parameters.flat().tobytes()))
    assert session.kept_bytes == 30 * numbers * 4
    assert found[0] == found[1]


@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_rows_of_a_few_samples_at_a_time(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen beginning in parts, whose tensors hold several rows for each sample."""
    config = ct.TrainConfig("mse", ct.optimizers.SGD(0.1), 32, trainable=("last", 1))
    x, y = data(32, (6, 8))
    whole = ct.TrainSession(attention(), config, backend=backend)
    expected = [whole.train_step(x, y).loss for _ in range(3)]
    monkeypatch.setattr(prefix, "CACHE_BYTES", 6000)
    parts = ct.TrainSession(attention(), config, backend=backend)
    assert [parts.train_step(x, y).loss for _ in range(3)] == pytest.approx(expected, rel=1e-5)
    assert whole.program.prefix is None and parts.program.prefix is not None
