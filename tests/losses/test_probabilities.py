"""from_logits=None: probabilities are known through whatever changes no value, and by their looks where the graph is silent."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import networks
import numpy as np
import pytest

import circle_train as ct
from circle_train.ir import DType, Graph, Node, Quantization, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.model import Model

torch = pytest.importorskip("torch")
functional = torch.nn.functional

CLASSES = 4
RNG = np.random.default_rng(2)
X = (3 * RNG.normal(size=(8, 6))).astype(np.float32)
LABELS = RNG.integers(0, CLASSES, 8)
BITS = (RNG.random((8, CLASSES)) > 0.5).astype(np.float32)
Tail = Callable[[Graph, Tensor], Tensor]


def number(*values: float) -> Tensor:
    return constant(np.array(values, np.float32), "number")


def numbers(*values: int) -> Tensor:
    return constant(np.array(values, np.int32), "numbers")


def emit(graph: Graph, name: str, *inputs: Tensor | None, **options: object) -> Tensor:
    return graph.emit(networks.make(name, **options), *inputs)


def softmax(graph: Graph, x: Tensor) -> Tensor:
    return emit(graph, "SOFTMAX", x, beta=1.0)


def clipped(graph: Graph, p: Tensor) -> Tensor:
    return emit(graph, "MINIMUM", emit(graph, "MAXIMUM", p, number(1e-7)), number(1 - 1e-7))


def in_halves(graph: Graph, p: Tensor) -> Tensor:
    parts = graph.emit_all(networks.make("SPLIT", num_splits=2), numbers(1), p)
    return emit(graph, "CONCATENATION", *parts, axis=1)


def by_sum(graph: Graph, x: Tensor) -> Tensor:
    return emit(graph, "DIV", x, emit(graph, "SUM", x, numbers(1), keep_dims=True))


def dequantized(graph: Graph, x: Tensor) -> Tensor:
    """As integer models end: in 256 steps from 0 to 1."""
    steps = Quantization((1 / 256,), (-128,), 0)
    rounded = Tensor("rounded", TensorType(DType.INT8, (1, CLASSES)), quantization=steps)
    real = Tensor("real", TensorType(DType.FLOAT32, (1, CLASSES)))
    graph.append(Node(networks.make("QUANTIZE"), [softmax(graph, x)], [rounded]))
    graph.append(Node(networks.make("DEQUANTIZE"), [rounded], [real]))
    return real


def squeezed(graph: Graph, x: Tensor) -> Tensor:
    p = softmax(graph, emit(graph, "RESHAPE", x, numbers(-1, 1, CLASSES)))
    return emit(graph, "RESHAPE", p, numbers(-1, CLASSES))


def of_each_head(graph: Graph, x: Tensor) -> Tensor:
    parts = graph.emit_all(networks.make("SPLIT", num_splits=2), numbers(1), x)
    return emit(graph, "CONCATENATION", *(emit(graph, "LOGISTIC", part) for part in parts), axis=1)


def spelt_out(graph: Graph, x: Tensor) -> Tensor:
    return emit(
        graph, "DIV", number(1), emit(graph, "ADD", emit(graph, "EXP", emit(graph, "NEG", x)), number(1))
    )


ROWS: dict[str, Tail] = {
    "softmax": softmax,
    "reshaped": squeezed,
    "times one": lambda g, x: emit(g, "MUL", softmax(g, x), number(1)),
    "clipped": lambda g, x: clipped(g, softmax(g, x)),
    "in halves": lambda g, x: in_halves(g, softmax(g, x)),
    "exp by sum": lambda g, x: by_sum(g, emit(g, "EXP", x)),
    "exp of log": lambda g, x: emit(g, "EXP", emit(g, "LOG_SOFTMAX", x)),
    "cast": lambda g, x: emit(
        g, "CAST", emit(g, "CAST", softmax(g, x), in_data_type=DType.FLOAT32, out_data_type=DType.FLOAT16),
        in_data_type=DType.FLOAT16, out_data_type=DType.FLOAT32,
    ),
}  # fmt: skip
BY_ONE: dict[str, Tail] = {
    "logistic": lambda g, x: emit(g, "LOGISTIC", x),
    "reshaped": lambda g, x: emit(g, "RESHAPE", emit(g, "LOGISTIC", x), numbers(-1, CLASSES)),
    "clipped": lambda g, x: clipped(g, emit(g, "LOGISTIC", x)),
    "by head": of_each_head,
    "spelt out": spelt_out,
}


def model_of(tail: Tail) -> Model:
    graph = Graph("head", [networks.new_input("x", 1, 6)])
    x = emit(graph, "FULLY_CONNECTED", graph.inputs[0], networks.weight("w", CLASSES, 6), None)
    return networks.finish(graph, tail(graph, x))


def logits() -> torch.Tensor:
    return torch.tensor(ct.InferenceSession(model_of(lambda g, x: x))(X)).double()


def loss_of(tail: Tail, loss: str, target: np.ndarray, backend: str) -> float:
    config = ct.TrainConfig(loss=loss, batch_size=8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return float(ct.TrainSession(model_of(tail), config, backend=backend).eval_step(X, target).loss)


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("tail", ROWS)
def test_rows_of_probabilities_are_known_through_what_changes_no_value(tail: str, backend: str) -> None:
    expected = functional.cross_entropy(logits(), torch.tensor(LABELS)).item()
    rel = 5e-3 if tail == "cast" else 1e-5
    for loss, target in (
        ("sparse_categorical_crossentropy", LABELS),
        ("categorical_crossentropy", np.eye(CLASSES, dtype=np.float32)[LABELS]),
    ):
        assert loss_of(ROWS[tail], loss, target, backend) == pytest.approx(expected, rel=rel)


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("tail", BY_ONE)
def test_single_probabilities_are_known_through_what_changes_no_value(tail: str, backend: str) -> None:
    expected = functional.binary_cross_entropy_with_logits(logits(), torch.tensor(BITS).double()).item()
    assert loss_of(BY_ONE[tail], "binary_crossentropy", BITS, backend) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("backend", ["native", "reference"])
def test_probabilities_in_steps_are_probabilities(backend: str) -> None:
    """A file in integers ends in SOFTMAX, DEQUANTIZE: taken for logits, its loss was about 1.5 whatever it knew."""
    p = ct.InferenceSession(model_of(dequantized))(X)
    likely = p.argmax(1)
    expected = -np.log(p.max(1)).mean()
    found = loss_of(dequantized, "sparse_categorical_crossentropy", likely, backend)
    assert found == pytest.approx(expected, rel=1e-5)


def by_absolute_sum(graph: Graph, x: Tensor) -> Tensor:
    """A distribution that the graph does not show: the sum is not that of what is divided."""
    x = emit(graph, "SQUARE", x)
    return emit(graph, "DIV", x, emit(graph, "SUM", emit(graph, "ABS", x), numbers(1), keep_dims=True))


@pytest.mark.parametrize(
    ("tail", "loss", "target"),
    [
        (by_absolute_sum, "sparse_categorical_crossentropy", LABELS),
        (lambda g, x: emit(g, "RELU_0_TO_1", x), "binary_crossentropy", BITS),
    ],
)
def test_values_that_look_like_probabilities_are_warned_of_once(
    tail: Tail, loss: str, target: np.ndarray
) -> None:
    session = ct.TrainSession(model_of(tail), ct.TrainConfig(loss=loss, optimizer="sgd", batch_size=8))
    with pytest.warns(
        UserWarning, match="taken as logits, but the first batch's values are what probabilities"
    ):
        session.train_step(X, target)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.train_step(X, target)


@pytest.mark.parametrize("tail", [lambda g, x: x, lambda g, x: emit(g, "TANH", x)])
def test_logits_are_not_warned_of(tail: Tail) -> None:
    loss_of(tail, "sparse_categorical_crossentropy", LABELS, "native")
    loss_of(tail, "binary_crossentropy", BITS, "native")


def test_accuracy_of_probabilities_does_not_depend_on_the_engine() -> None:
    """An engine joins the last nodes into one; what they were decides the threshold."""

    def tail(graph: Graph, x: Tensor) -> Tensor:
        scaled = emit(graph, "MUL", emit(graph, "TANH", x), number(0.5, -1, 2, 1))
        return emit(graph, "LOGISTIC", scaled)

    config = ct.TrainConfig(loss="binary_crossentropy", batch_size=8, metrics=["binary_accuracy"])
    found = [
        ct.TrainSession(model_of(tail), config, backend=backend).eval_step(X, BITS).metrics
        for backend in ("native", "reference")
    ]
    expected = np.mean((ct.InferenceSession(model_of(tail))(X) > 0.5) == (BITS > 0.5))
    assert found == [{"binary_accuracy": expected}] * 2
