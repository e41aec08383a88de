"""Products in which both factors are trained: each gradient reads the other weight as it was before the step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import circle_train as ct
from circle_train.backends import native
from circle_train.ir.tensor_type import Array

onnx = pytest.importorskip("onnx")
RATE = 0.25
rng = np.random.default_rng(5)


def weights(*shape: int) -> Array:
    return (rng.normal(size=shape) / 4).astype(np.float32)


@dataclass(frozen=True)
class Case:
    """Nodes that make "w" of the weights, and the same in numpy; the model is x @ w."""

    nodes: tuple[tuple[Any, ...], ...]
    weights: Mapping[str, Array]
    formula: Callable[[Mapping[str, Array]], Array]


CASES = {
    "two": Case(
        (("MatMul", "A B", "w"),), {"A": weights(24, 40), "B": weights(40, 24)}, lambda p: p["A"] @ p["B"]
    ),
    "one twice": Case((("MatMul", "A A", "w"),), {"A": weights(24, 24)}, lambda p: p["A"] @ p["A"]),
    "one and itself transposed": Case(
        (("Gemm", "A A", "w", {"transB": 1}),), {"A": weights(24, 40)}, lambda p: p["A"] @ p["A"].T
    ),
    "two and a bias": Case(
        (("Gemm", "A B c", "w", {"transB": 1}),),
        {"A": weights(24, 40), "B": weights(24, 40), "c": weights(24)},
        lambda p: p["A"] @ p["B"].T + p["c"],
    ),
    "seen as other shapes": Case(
        (("Reshape", "A s", "a"), ("Reshape", "B t", "b"), ("MatMul", "a b", "w")),
        {"A": weights(6, 4, 40), "B": weights(40, 4, 6)},
        lambda p: p["A"].reshape(24, 40) @ p["B"].reshape(40, 24),
    ),
    "a gate": Case(
        (("Sigmoid", "A", "g"), ("Mul", "g B", "w")),
        {"A": weights(24, 24), "B": weights(24, 24)},
        lambda p: p["B"] / (1 + np.exp(-p["A"])),
    ),
}
SHAPES = {"s": np.array([24, 40]), "t": np.array([40, 24])}


def model(case: Case) -> bytes:
    helper, array = onnx.helper, onnx.numpy_helper.from_array
    nodes = [
        helper.make_node(op, inputs.split(), [output], **(options[0] if options else {}))
        for op, inputs, output, *options in (*case.nodes, ("MatMul", "x w", "y"))
    ]
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", 24]) for name in ("x", "y")]
    constants = [array(value, name) for name, value in {**case.weights, **SHAPES}.items()]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], constants)
    raw: bytes = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    ).SerializeToString()
    return raw


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("backend", ["reference", *(["native"] if native.is_available() else [])])
def test_a_step_goes_along_the_gradient(case: Case, backend: str) -> None:
    """Along a random direction, what SGD moved is the float64 difference of the loss."""
    x, y = (rng.normal(size=(16, 24)).astype(np.float32) for _ in range(2))
    config = ct.TrainConfig(loss="mse", optimizer=ct.optimizers.SGD(learning_rate=RATE), batch_size=16)
    session = ct.TrainSession(model(case), config, backend=backend)
    before = {name: np.array(session.parameters[name], np.float64) for name in case.weights}
    session.train_step(x, y)
    direction = {name: rng.normal(size=value.shape) for name, value in before.items()}

    def loss(step: float) -> float:
        moved = {name: value + step * direction[name] for name, value in before.items()}
        return float(np.square(x @ case.formula(moved) - y).mean())

    slope = (loss(1e-5) - loss(-1e-5)) / 2e-5
    moved = sum(np.vdot(direction[name], before[name] - session.parameters[name]) / RATE for name in before)
    assert moved == pytest.approx(slope, rel=2e-4)
