"""Metrics that are means: each adds up what a batch measures; the result is the mean since the last reset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import nan, sqrt
from typing import Any, ClassVar

import numpy as np

from circle_train.errors import ConfigError, DataError
from circle_train.ir.tensor_type import Array
from circle_train.kinds import refuse_misfits


@dataclass
class Metric:
    """Base: `measure` gives a batch's sum and the number of terms in it.

    Example:
        >>> import circle_train as ct, numpy as np
        >>> metric = ct.metrics.SparseCategoricalAccuracy()
        >>> metric.update(np.array([[0.1, 0.9], [0.8, 0.2]]), np.array([1, 1]))
        >>> metric.result()
        0.5
    """

    name: ClassVar[str] = ""

    def __post_init__(self) -> None:
        refuse_misfits(self)
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.total, self.count = 0.0, 0

    def update(self, output: Any, target: Any) -> None:
        """Add a batch."""
        total, count = self.measure(np.asarray(output), np.asarray(target))
        self.total += total
        self.count += count

    def snapshot(self) -> dict[str, float]:
        """What a checkpoint holds of it."""
        return {"total": self.total, "count": self.count}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.total, self.count = float(snapshot["total"]), int(snapshot["count"])

    def result(self) -> float:
        """The mean so far; NaN where nothing was measured."""
        return self.total / self.count if self.count else nan

    def measure(self, output: Array, target: Array) -> tuple[float, int]:
        raise TypeError(f"{type(self).__name__} defines no measure")


class CategoricalAccuracy(Metric):
    """How often the largest output is where the largest target is (last axis; the first of equals)."""

    name = "categorical_accuracy"

    def measure(self, output: Array, target: Array) -> tuple[float, int]:
        return _equal(output.argmax(-1), like(target, output).argmax(-1))


@dataclass
class SparseCategoricalAccuracy(Metric):
    """How often the largest output is the labelled class; items labelled `ignore_index` do not count."""

    ignore_index: int | None = None
    """A label that stands for no class: such samples count for nothing."""
    name = "sparse_categorical_accuracy"

    def measure(self, output: Array, target: Array) -> tuple[float, int]:
        best, labels = output.argmax(-1), labels_of(target, output)
        if self.ignore_index is None:
            return _equal(best, labels)
        counted = labels != self.ignore_index
        return _equal(best[counted], labels[counted])


@dataclass
class BinaryAccuracy(Metric):
    """How often an output is on its target's side of the threshold: ½ for probabilities, 0 for logits.

    `threshold=None` means ½, or 0 in a session whose loss takes that output as logits.
    """

    threshold: float | None = None
    """From which output on the answer is yes; None: as the loss takes outputs."""
    name = "binary_accuracy"

    def measure(self, output: Array, target: Array) -> tuple[float, int]:
        threshold = 0.5 if self.threshold is None else self.threshold
        return _equal(output > threshold, like(target, output) > 0.5)


@dataclass
class TopKCategoricalAccuracy(Metric):
    """How often fewer than k outputs are larger than that of the class with the largest target."""

    k: int = 5
    """Among how many of the best answers the right one counts."""
    name = "top_k_categorical_accuracy"

    def __post_init__(self) -> None:
        refuse_misfits(self)
        if self.k < 1:
            raise ConfigError(f"{type(self).__name__}: k is {self.k}, expected a whole number from 1")
        super().__post_init__()

    def measure(self, output: Array, target: Array) -> tuple[float, int]:
        return self.hits(output, like(target, output).argmax(-1))

    def hits(self, output: Array, labels: Array) -> tuple[float, int]:
        classes = output.shape[-1]
        known = (labels >= 0) & (labels < classes)
        own = np.take_along_axis(output, np.where(known, labels, 0)[..., None].astype(np.intp), -1)
        hits = known & (np.count_nonzero(output > own, -1) < self.k)
        return float(np.count_nonzero(hits)), labels.size


class SparseTopKCategoricalAccuracy(TopKCategoricalAccuracy):
    """How often fewer than k outputs are larger than that of the labelled class."""

    name = "sparse_top_k_categorical_accuracy"

    def measure(self, output: Array, target: Array) -> tuple[float, int]:
        return self.hits(output, labels_of(target, output))


@dataclass
class Accuracy(Metric):
    """Binary, sparse or categorical accuracy, as outputs and targets are shaped."""

    threshold: float | None = None
    """From which output on the answer is yes; None: as the loss takes outputs."""
    name = "accuracy"

    def measure(self, output: Array, target: Array) -> tuple[float, int]:
        if output.ndim == 0 or output.shape[-1] == 1 or output.ndim == 1:
            return BinaryAccuracy(self.threshold).measure(output, target)
        if target.size * output.shape[-1] == output.size:
            return _equal(output.argmax(-1), labels_of(target, output))
        return _equal(output.argmax(-1), like(target, output).argmax(-1))


class MeanAbsoluteError(Metric):
    """Mean of |output - target| over all elements."""

    name = "mean_absolute_error"

    def measure(self, output: Array, target: Array) -> tuple[float, int]:
        return float(np.abs(output - like(target, output)).sum(dtype=np.float64)), output.size


class MeanSquaredError(Metric):
    """Mean of (output - target)² over all elements."""

    name = "mean_squared_error"

    def measure(self, output: Array, target: Array) -> tuple[float, int]:
        return float(np.square(output - like(target, output)).sum(dtype=np.float64)), output.size


class RootMeanSquaredError(MeanSquaredError):
    """√ of the mean of (output - target)² over all elements."""

    name = "root_mean_squared_error"

    def result(self) -> float:
        return sqrt(super().result())


def _equal(found: Array, wanted: Array) -> tuple[float, int]:
    """How many agree, of how many."""
    return float(np.count_nonzero(found == wanted)), found.size


def like(target: Array, output: Array) -> Array:
    """The target in the output's shape; axes of size 1 may be missing or too many."""
    if target.shape == output.shape:
        return target
    if target.size != output.size:
        raise DataError(
            f"a metric got outputs {output.shape} and targets {target.shape}; expected the same shape"
        )
    return target.reshape(output.shape)


def labels_of(target: Array, output: Array) -> Array:
    """Class numbers, one for each row of the output."""
    if target.size * output.shape[-1] != output.size:
        found = f"outputs {output.shape} and labels {target.shape}"
        raise DataError(f"a metric got {found}; expected labels {output.shape[:-1]}")
    return target.reshape(output.shape[:-1])
