"""Recurrent operators against LiteRT, whose states are variable tensors that start as zeros."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from single_operator import computed, single
from test_ops_litert import LiteRT

import circle_train as ct
from circle_train.format import write
from circle_train.ir import DType, Graph, Module, Node, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ops import REGISTRY, Example

if importlib.util.find_spec("ai_edge_litert") is None:
    pytest.skip("LiteRT (ai-edge-litert) is not installed", allow_module_level=True)

STATES = {"h": 4, "c": 4, "fw_h": 4, "fw_c": 4, "bw_h": 4, "bw_c": 4, "state": 20}
"""Elements of a state that the example leaves out."""
OPERATORS = (
    "UNIDIRECTIONAL_SEQUENCE_LSTM",
    "BIDIRECTIONAL_SEQUENCE_LSTM",
    "UNIDIRECTIONAL_SEQUENCE_RNN",
    "BIDIRECTIONAL_SEQUENCE_RNN",
    "RNN",
    "LSTM",
    "SVDF",
)


@pytest.fixture(scope="module")
def litert() -> Iterator[LiteRT]:
    runner = LiteRT()
    yield runner
    runner.pool.shutdown()


def state_of(name: str, value: Any) -> Tensor:
    shape = (2, STATES[name]) if value is None else value.shape
    return Tensor(name, TensorType(DType.FLOAT32, shape), is_variable=True)


def tensors(example: Example) -> tuple[list[Tensor | None], list[Any]]:
    """The node's inputs, and the values that the reference gets: no states."""
    op, values = example.op, example.op.pad(single(example))
    inputs: list[Tensor | None] = [Tensor("x0", TensorType(DType.FLOAT32, values[0].shape))]
    given = [values[0]]
    for spec, value in list(zip(op.inputs, values, strict=True))[1:]:
        is_state = spec.name in STATES
        given.append(None if is_state else value)
        inputs.append(
            state_of(spec.name, value) if is_state else None if value is None else constant(value, spec.name)
        )
    if op.name.removeprefix("UNIDIRECTIONAL_SEQUENCE_") == "LSTM" and "n_f" not in {
        t.name for t in inputs if t is not None
    }:
        inputs = inputs[:20]
    return inputs, given


def merges_by_sample(op: Any) -> bool:
    """LiteRT steps from sample to sample of the state by the merged width, which is twice the state's."""
    return op.name == "BIDIRECTIONAL_SEQUENCE_LSTM" and op.merge_outputs and not op.time_major


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(example, id=f"{name}-{number}")
        for name in OPERATORS
        for number, example in enumerate(REGISTRY[name].examples())
        if type(example.op) is REGISTRY[name]
    ],
)
def test_forward_is_litert(example: Example, litert: LiteRT) -> None:
    inputs, given = tensors(example)
    expected = computed(example.op, given)
    outputs = [Tensor(f"y{i}", TensorType(DType.FLOAT32, y.shape)) for i, y in enumerate(expected)]
    assert inputs[0] is not None
    module = Module([Graph("main", [inputs[0]], outputs, [Node(example.op, inputs, outputs, 0)])])
    results = litert.run(write(module, "TFL3"), {"x0": given[0]}, [tensor.name for tensor in outputs])
    for result, own in zip(results, expected, strict=True):
        compared = np.s_[:1] if merges_by_sample(example.op) else np.s_[:]
        np.testing.assert_allclose(result[compared], own[compared], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["UNIDIRECTIONAL_SEQUENCE_LSTM", "UNIDIRECTIONAL_SEQUENCE_RNN", "SVDF"])
def test_trains_and_exports(name: str, litert: LiteRT, tmp_path: Path) -> None:
    """A model with state tensors learns, and LiteRT computes what was learned."""
    example = next(iter(REGISTRY[name].examples()))
    inputs, given = tensors(example)
    x = inputs[0]
    assert x is not None
    (y,) = computed(example.op, given)
    output = Tensor("y0", TensorType(DType.FLOAT32, y.shape))
    model = write(Module([Graph("main", [x], [output], [Node(example.op, inputs, [output], 0)])]), "TFL3")
    config = ct.TrainConfig(
        loss="mean_squared_error", optimizer=ct.optimizers.Adam(learning_rate=1e-2), batch_size=2
    )
    session = ct.TrainSession(model, config)
    losses = [session.train_step(given[0], y / 2).loss for _ in range(10)]
    assert losses[-1] < 0.7 * losses[0]
    session.export(tmp_path / "learned.tflite")
    (result,) = litert.run((tmp_path / "learned.tflite").read_bytes(), {"x0": given[0]}, ["y0"])
    np.testing.assert_allclose(result, session.predict(given[0]), rtol=1e-5, atol=1e-6)
