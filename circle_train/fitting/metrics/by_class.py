"""Metrics that count by class: precision, recall, F1, the area under the curve, and what was taken for what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import nan
from typing import Any, ClassVar

import numpy as np

from circle_train.errors import ConfigError, DataError
from circle_train.fitting.metrics.averages import Metric, labels_of
from circle_train.ir.tensor_type import Array

AVERAGES = ("macro", "micro", "weighted")
BINS = 1000
"""Into which scores are sorted for the area under the curve."""


def confusion_matrix(outputs: Any, targets: Any) -> Array:
    """How many samples of each class (row) were taken for each (column); targets are class numbers or one-hot rows.

    Example:
        >>> import circle_train as ct
        >>> ct.metrics.confusion_matrix([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8]], [0, 0, 1]).tolist()
        [[1, 1], [0, 1]]
    """
    found, truth = _classes(np.asarray(outputs), np.asarray(targets))
    count = np.shape(outputs)[-1]
    table = np.zeros((count, count), np.int64)
    np.add.at(table, (truth, found), 1)
    return table


@dataclass
class ByClass(Metric):
    """Base of what counts hits, answers and truths of each class; a class is meant where its score is the highest.

    Outputs of one number are one class, meant above a threshold; so are all outputs where several classes may hold.

    Args:
        average: "macro" weighs all classes alike, "weighted" by their samples, "micro" counts them together.
        threshold: scores above it mean their class; None: 0.5, where several classes may hold.
    """

    average: str = "macro"
    threshold: float | None = None

    def __post_init__(self) -> None:
        if self.average not in AVERAGES:
            raise ConfigError(
                f"{type(self).__name__}: average is {self.average!r}, expected one of {', '.join(AVERAGES)}"
            )
        super().__post_init__()

    def reset(self) -> None:
        self.counts: Array = np.zeros((3, 0))

    def update(self, output: Any, target: Any) -> None:
        chosen, truth = self._chosen(np.asarray(output), np.asarray(target))
        fresh = np.stack([(chosen & truth).sum(0), chosen.sum(0), truth.sum(0)]).astype(float)
        self.counts = fresh if not self.counts.size else self.counts + fresh

    def snapshot(self) -> dict[str, Any]:
        return {"counts": self.counts.tolist()}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        self.counts = np.array(snapshot["counts"], float).reshape(3, -1)

    def result(self) -> float:
        if not self.counts.size:
            return nan
        if self.average == "micro":
            return float(self.of(*self.counts.sum(1, keepdims=True))[0])
        values = self.of(*self.counts)
        weights = self.counts[2] if self.average == "weighted" else np.ones(len(values))
        return float((values * weights).sum() / max(weights.sum(), 1e-12))

    def of(self, hits: Array, found: Array, truth: Array) -> Array:
        """The number of each class."""
        raise TypeError(f"{type(self).__name__} defines no number of a class")

    def _chosen(self, output: Array, target: Array) -> tuple[Array, Array]:
        """Which classes are meant, and which are right: rows of truth values."""
        width = output.shape[-1] if output.ndim > 1 else 1
        is_several = width == 1 or (target.shape == output.shape and (target.sum(-1) != 1).any())
        if self.threshold is not None or is_several:
            limit = 0.5 if self.threshold is None else self.threshold
            return output.reshape(-1, width) > limit, target.reshape(-1, width) > 0.5
        found, truth = _classes(output, target)
        return np.eye(width, dtype=bool)[found], np.eye(width, dtype=bool)[truth]


class Precision(ByClass):
    """Of the samples taken for a class, how many are of it."""

    name: ClassVar[str] = "precision"

    def of(self, hits: Array, found: Array, truth: Array) -> Array:
        return hits / np.maximum(found, 1)


class Recall(ByClass):
    """Of the samples of a class, how many are taken for it."""

    name: ClassVar[str] = "recall"

    def of(self, hits: Array, found: Array, truth: Array) -> Array:
        return hits / np.maximum(truth, 1)


class F1(ByClass):
    """The harmonic mean of precision and recall: 2 hits / (found + truth)."""

    name: ClassVar[str] = "f1"

    def of(self, hits: Array, found: Array, truth: Array) -> Array:
        values: Array = 2 * hits / np.maximum(found + truth, 1)
        return values


class AUC(Metric):
    """The area under the curve of hits over false alarms, mean of all classes; scores are sorted into a thousand bins."""

    name: ClassVar[str] = "auc"

    def reset(self) -> None:
        self.bins: Array = np.zeros((2, 0, BINS))

    def update(self, output: Any, target: Any) -> None:
        scores, truth = np.asarray(output), np.asarray(target)
        width = scores.shape[-1] if scores.ndim > 1 else 1
        rows = scores.reshape(-1, width)
        if rows.min(initial=0) < 0 or rows.max(initial=0) > 1:
            raise DataError(
                "auc: outputs are beyond 0 … 1, expected probabilities; let the model end in SOFTMAX or LOGISTIC"
            )
        if truth.size != scores.size:
            truth = np.eye(width)[labels_of(truth, scores).reshape(-1).astype(int)]
        is_true = truth.reshape(-1, width) > 0.5
        places = np.minimum((rows * BINS).astype(int), BINS - 1)
        fresh = np.zeros((2, width, BINS))
        for kind in (0, 1):
            which, classes = np.nonzero(is_true == bool(kind))
            np.add.at(fresh[kind], (classes, places[which, classes]), 1)
        self.bins = fresh if not self.bins.size else self.bins + fresh

    def snapshot(self) -> dict[str, Any]:
        return {"bins": self.bins.tolist()}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        self.bins = np.array(snapshot["bins"], float).reshape(2, -1, BINS)

    def result(self) -> float:
        if not self.bins.size:
            return nan
        wrong, right = self.bins
        below = wrong.cumsum(-1) - wrong
        wins = (right * (below + wrong / 2)).sum(-1)
        pairs = right.sum(-1) * wrong.sum(-1)
        return float((wins[pairs > 0] / pairs[pairs > 0]).mean()) if (pairs > 0).any() else nan


def _classes(output: Array, target: Array) -> tuple[Array, Array]:
    """Class numbers that were found and that are right."""
    width = output.shape[-1]
    found = output.reshape(-1, width).argmax(-1)
    if target.size == output.size and target.ndim > 1:
        return found, target.reshape(-1, width).argmax(-1)
    truth = labels_of(target, output).reshape(-1).astype(int)
    if (truth < 0).any() or (truth >= width).any():
        raise DataError(
            f"a metric got labels {truth.min()} … {truth.max()}, expected class numbers 0 … {width - 1}"
        )
    return found, truth
