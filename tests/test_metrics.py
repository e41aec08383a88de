"""Metrics: their values by hand, over batches of unequal size, and what they cost."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from circle_train.errors import ConfigError, DataError
from circle_train.ir import DType, Graph, Tensor, TensorType
from circle_train.train import metrics
from circle_train.train.losses import BinaryCrossentropy, MeanSquaredError
from circle_train.train.metrics import Accuracy, BinaryAccuracy, Metric, TopKCategoricalAccuracy, resolve
from circle_train.train.symbol import Symbol

SCORES = np.array([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2], [0.2, 0.3, 0.5], [0.4, 0.4, 0.2]], np.float32)
LABELS = np.array([1, 2, 2, 1], np.int32)
HOT = np.eye(3, dtype=np.float32)[LABELS]
COLUMN = np.array([[0.9], [0.2], [0.6], [-3.0]], np.float32)
ROWS = np.array([[1.0, 2.0], [3.0, 5.0]], np.float32)

BY_HAND: list[tuple[str, dict[str, Any], Any, Any, float]] = [
    ("categorical_accuracy", {}, SCORES, HOT, 2 / 4),
    ("sparse_categorical_accuracy", {}, SCORES, LABELS, 2 / 4),
    ("sparse_categorical_accuracy", {}, SCORES, LABELS[:, None], 2 / 4),
    ("sparse_categorical_accuracy", {"ignore_index": 2}, SCORES, LABELS, 1 / 2),
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
        assert kind.name == name or name in ("acc", "mae", "mse", "rmse")


def test_a_session_gets_metrics_of_its_own() -> None:
    mine = BinaryAccuracy(0.3)
    mine.update([1.0], [1.0])
    (own, by_name) = resolve([mine, "ACC"])
    assert own is not mine
    assert own == mine
    assert math.isnan(own.result())
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
        for metric in resolve(["accuracy", "binary_accuracy"], [loss], [output]):
            assert isinstance(metric, (Accuracy, BinaryAccuracy))
            assert metric.threshold == threshold
    (given,) = resolve([BinaryAccuracy(0.7)], [BinaryCrossentropy()], [logits])
    assert isinstance(given, BinaryAccuracy)
    assert given.threshold == 0.7


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("accurracy", "metric 'accurracy' is unknown, expected one of acc, accuracy"),
        (3, "metric is 3, expected a name"),
    ],
)
def test_what_is_no_metric_is_refused(metric: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve([metric])


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

    (own,) = resolve([Largest()])
    own.update(SCORES, LABELS)
    own.update(ROWS, LABELS)
    assert own.result() == pytest.approx((0.7 + 5) / 2)
