"""Metrics: their values by hand, over batches of unequal size, and what they cost."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from circle_train import metrics
from circle_train.errors import ConfigError, DataError
from circle_train.fitting.metrics.averages import Accuracy, BinaryAccuracy, Metric, TopKCategoricalAccuracy
from circle_train.fitting.metrics.scores import Scores
from circle_train.ir import DType, Graph, Tensor, TensorType
from circle_train.losses import BinaryCrossentropy, MeanSquaredError, SparseCategoricalCrossentropy, Unused
from circle_train.losses.symbol import Symbol

SCORES = np.array([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2], [0.2, 0.3, 0.5], [0.4, 0.4, 0.2]], np.float32)
LABELS = np.array([1, 2, 2, 1], np.int32)
HOT = np.eye(3, dtype=np.float32)[LABELS]
COLUMN = np.array([[0.9], [0.2], [0.6], [-3.0]], np.float32)
ROWS = np.array([[1.0, 2.0], [3.0, 5.0]], np.float32)

BY_HAND: list[tuple[str, dict[str, Any], Any, Any, float]] = [
    ("categorical_accuracy", {}, SCORES, HOT, 2 / 4),
    ("sparse_categorical_accuracy", {}, SCORES, LABELS, 2 / 4),
    ("sparse_categorical_accuracy", {}, SCORES, LABELS[:, None], 2 / 4),
    ("sparse_categorical_accuracy", {"ignore_index": 2}, SCORES, np.array([1, 2, 2, 2]), 1 / 1),
    ("top_k_categorical_accuracy", {"k": 2}, SCORES, HOT, 3 / 4),
    ("top_k_categorical_accuracy", {"k": 9}, SCORES, HOT, 1.0),
    ("sparse_top_k_categorical_accuracy", {"k": 1}, SCORES, LABELS, 3 / 4),
    ("sparse_top_k_categorical_accuracy", {"k": 2}, SCORES, np.array([-1, 0, 1, 2]), 2 / 4),
    ("binary_accuracy", {}, COLUMN, np.array([1, 0, 0, 0.0]), 3 / 4),
    ("binary_accuracy", {"threshold": 0.0}, COLUMN, np.array([[1], [0], [0], [0]]), 2 / 4),
    ("accuracy", {}, SCORES, HOT, 2 / 4),
    ("accuracy", {}, SCORES, LABELS, 2 / 4),
    ("accuracy", {}, COLUMN, np.array([1, 0, 0, 0]), 3 / 4),
    ("accuracy", {}, SCORES.reshape(2, 2, 3), LABELS.reshape(2, 2), 2 / 4),
    ("precision", {}, SCORES, LABELS, (0 + 1 + 1) / 3),
    ("recall", {}, SCORES, HOT, (0 + 1 / 2 + 1 / 2) / 3),
    ("recall", {"average": "weighted"}, SCORES, LABELS, 2 / 4),
    ("f1", {}, SCORES, LABELS, (0 + 2 / 3 + 2 / 3) / 3),
    ("f1", {"average": "micro"}, SCORES, LABELS, 2 / 4),
    ("precision", {}, COLUMN, np.array([[1], [0], [0], [0]]), 1 / 2),
    ("auc", {}, SCORES, LABELS, (1 + 3 / 4) / 2),
    ("mean_absolute_error", {}, ROWS, np.zeros((2, 2)), 11 / 4),
    ("mean_squared_error", {}, ROWS, np.zeros((2, 2, 1)), 39 / 4),
    ("root_mean_squared_error", {}, ROWS, np.zeros((2, 2)), math.sqrt(39 / 4)),
]


@pytest.mark.parametrize(("name", "settings", "output", "target", "wanted"), BY_HAND)
def test_values_by_hand(name: str, settings: dict[str, Any], output: Any, target: Any, wanted: float) -> None:
    metric = metrics.BY_NAME[name](**settings)
    assert math.isnan(metric.result())
    metric.update(output, target)
    assert metric.result() == pytest.approx(wanted)


@pytest.mark.parametrize(("name", "settings", "output", "target", "wanted"), BY_HAND)
def test_unequal_batches_count_by_their_size(
    name: str, settings: dict[str, Any], output: Any, target: Any, wanted: float
) -> None:
    metric = metrics.BY_NAME[name](**settings)
    metric.update(output[:1], target[:1])
    metric.update(output[1:], target[1:])
    assert metric.result() == pytest.approx(wanted)
    metric.reset()
    assert math.isnan(metric.result())


def test_every_metric_by_name_is_tried() -> None:
    assert {metrics.BY_NAME[name] for name, *_ in BY_HAND} == set(metrics.BY_NAME.values())


def test_names_are_those_of_keras() -> None:
    for name, kind in metrics.BY_NAME.items():
        assert kind.name == name or name in ("acc", "mae", "mse", "rmse", "f1_score")


def own(*given: Any) -> list[Metric]:
    """What a session of one output makes of these metrics."""
    return list(
        Scores(given, [MeanSquaredError()], [Tensor("x", TensorType(DType.FLOAT32, (4, 3)))]).named.values()
    )


def test_a_session_gets_metrics_of_its_own() -> None:
    mine = BinaryAccuracy(0.3)
    mine.update([1.0], [1.0])
    (copied, by_name) = own(mine, "ACC")
    assert copied is not mine
    assert copied == mine
    assert math.isnan(copied.result())
    assert mine.result() == 1.0
    assert isinstance(by_name, Accuracy)


def test_the_threshold_of_logits_is_zero() -> None:
    graph = Graph()
    logits = Tensor("x", TensorType(DType.FLOAT32, (4, 1)))
    probabilities = Symbol(graph, logits).sigmoid().tensor
    for output, loss, threshold in (
        (logits, BinaryCrossentropy(), 0.0),
        (probabilities, BinaryCrossentropy(), None),
        (probabilities, BinaryCrossentropy(from_logits=True), 0.0),
        (logits, MeanSquaredError(), None),
    ):
        for metric in Scores(["accuracy", "binary_accuracy"], [loss], [output]).named.values():
            assert isinstance(metric, (Accuracy, BinaryAccuracy))
            assert metric.threshold == threshold
    (given,) = Scores([BinaryAccuracy(0.7)], [BinaryCrossentropy()], [logits]).named.values()
    assert isinstance(given, BinaryAccuracy)
    assert given.threshold == 0.7


def test_several_outputs_are_measured_apart() -> None:
    a, b = (Tensor(name, TensorType(DType.FLOAT32, (4, 3))) for name in "ab")
    losses = [MeanSquaredError(), SparseCategoricalCrossentropy()]
    scores = Scores(["accuracy"], losses, [a, b])
    scores.update([SCORES, SCORES], [np.eye(3)[SCORES.argmax(1)], LABELS])
    assert scores.result() == {"a_accuracy": 1.0, "b_accuracy": 0.5}
    assert all(map(math.isnan, scores.fresh().result().values()))
    assert scores.result()["b_accuracy"] == 0.5
    without_labels = scores.fresh()
    without_labels.update([SCORES, SCORES], [])
    assert all(map(math.isnan, without_labels.result().values()))
    apart = Scores([["mae"], ["accuracy", "mse"]], losses, [a, b])
    assert list(apart.named) == ["a_mean_absolute_error", "b_accuracy", "b_mean_squared_error"]
    assert list(Scores([[], ["accuracy"]], losses, [a, b]).named) == ["accuracy"]
    assert list(Scores(["accuracy"], [losses[0], Unused()], [a, b]).named) == ["accuracy"]
    with pytest.raises(ConfigError, match="metrics hold 3 lists for a model of 2 outputs"):
        Scores([[], [], []], losses, [a, b])


def test_equal_names_are_numbered() -> None:
    output = Tensor("x", TensorType(DType.FLOAT32, (4, 3)))
    scores = Scores([TopKCategoricalAccuracy(k) for k in (1, 2, 3)], [MeanSquaredError()], [output])
    name = "top_k_categorical_accuracy"
    assert list(scores.named) == [name, f"{name}_2", f"{name}_3"]


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("accurracy", "metric 'accurracy' is unknown, expected one of acc, accuracy"),
        (3, "metric is 3, expected a name"),
    ],
)
def test_what_is_no_metric_is_refused(metric: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        own(metric)


def test_settings_and_shapes_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match="k is 0, expected a whole number from 1"):
        TopKCategoricalAccuracy(0)
    with pytest.raises(DataError, match="expected the same shape"):
        metrics.MeanSquaredError().update(np.zeros((2, 3)), np.zeros((3, 3)))
    with pytest.raises(DataError, match=r"expected labels \(4,\)"):
        metrics.SparseCategoricalAccuracy().update(SCORES, HOT)


def test_a_metric_of_ones_own() -> None:
    class Largest(Metric):
        name = "largest"

        def measure(self, output: Any, target: Any) -> tuple[float, int]:
            return float(output.max()), 1

    (largest,) = own(Largest())
    largest.update(SCORES, LABELS)
    largest.update(ROWS, LABELS)
    assert largest.result() == pytest.approx((0.7 + 5) / 2)
