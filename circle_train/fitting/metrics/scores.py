"""The metrics of a session: by name, one group for each output."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from circle_train.errors import ConfigError
from circle_train.fitting.metrics.averages import (
    Accuracy,
    BinaryAccuracy,
    CategoricalAccuracy,
    MeanAbsoluteError,
    MeanSquaredError,
    Metric,
    RootMeanSquaredError,
    SparseCategoricalAccuracy,
    SparseTopKCategoricalAccuracy,
    TopKCategoricalAccuracy,
    labels_of,
)
from circle_train.fitting.metrics.by_class import AUC, F1, Precision, Recall
from circle_train.fitting.story import believing
from circle_train.ir import Tensor
from circle_train.likeness import likeness
from circle_train.losses import BinaryCrossentropy, Loss

BY_NAME: dict[str, type[Metric]] = {
    "accuracy": Accuracy,
    "acc": Accuracy,
    "categorical_accuracy": CategoricalAccuracy,
    "sparse_categorical_accuracy": SparseCategoricalAccuracy,
    "binary_accuracy": BinaryAccuracy,
    "top_k_categorical_accuracy": TopKCategoricalAccuracy,
    "sparse_top_k_categorical_accuracy": SparseTopKCategoricalAccuracy,
    "mean_absolute_error": MeanAbsoluteError,
    "mae": MeanAbsoluteError,
    "mean_squared_error": MeanSquaredError,
    "mse": MeanSquaredError,
    "root_mean_squared_error": RootMeanSquaredError,
    "rmse": RootMeanSquaredError,
    "precision": Precision,
    "recall": Recall,
    "f1": F1,
    "f1_score": F1,
    "auc": AUC,
}


class Scores:
    """A session's own metrics of each output. Names carry the output's where several outputs are measured.

    `metrics` are names and objects for every output with labels, or one list for each output. `as_in_file` are the outputs
    in the graph that tells what makes them, where an engine has joined nodes of the other.
    """

    def __init__(
        self,
        metrics: Sequence[Any],
        losses: Sequence[Loss],
        outputs: Sequence[Tensor],
        as_in_file: Sequence[Tensor] | None = None,
    ) -> None:
        apart = bool(metrics) and all(isinstance(group, (list, tuple)) for group in metrics)
        if apart and len(metrics) != len(outputs):
            found = f"metrics hold {len(metrics)} lists for a model of {len(outputs)} outputs"
            raise ConfigError(f"{found}; give one list, or one for each output")
        groups = [
            (metrics[i] if apart else metrics) if 0 not in loss.target_type(output.type).shape[1:] else ()
            for i, (loss, output) in enumerate(zip(losses, outputs, strict=True))
        ]
        self.groups = [
            [_own(metric, _takes_logits(loss, output)) for metric in group]
            for group, loss, output in zip(groups, losses, as_in_file or outputs, strict=True)
        ]
        self.losses, self.told = losses, False
        several = sum(map(bool, self.groups)) > 1
        self.named: dict[str, Metric] = {}
        for group, output in zip(self.groups, outputs, strict=True):
            for metric in group:
                self.named[self._free(f"{output.name}_{metric.name}" if several else metric.name)] = metric

    def __bool__(self) -> bool:
        """Whether anything is measured."""
        return bool(self.named)

    def _free(self, name: str) -> str:
        """The name, numbered where another metric has it."""
        taken = sum(other == name or other.rpartition("_")[0] == name for other in self.named)
        return f"{name}_{taken + 1}" if name in self.named else name

    def update(self, outputs: Sequence[Any], targets: Sequence[Any]) -> None:
        """Add a batch; without targets nothing is measured, nor is what the loss ignores."""
        if not targets or not self.named:
            return
        for group, loss, output, target in zip(self.groups, self.losses, outputs, targets, strict=True):
            counted = _counted(loss, output, target) if group else None
            for metric in group:
                if counted is not None:
                    with believing(metric, self.told):
                        metric.update(*counted)

    def result(self) -> dict[str, float]:
        """Name and mean of each."""
        return {name: metric.result() for name, metric in self.named.items()}

    def snapshot(self) -> dict[str, Any]:
        """By name; a metric of somebody's own need not have one."""
        return {name: metric.snapshot() for name, metric in self.named.items() if hasattr(metric, "snapshot")}

    def restore(self, snapshots: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.told = True
        for name, snapshot in snapshots.items():
            if hasattr(self.named.get(name), "restore"):
                self.named[name].restore(snapshot)

    def fresh(self) -> Scores:
        """The same metrics, with nothing measured."""
        scores = copy.copy(self)
        scores.groups, scores.named = copy.deepcopy((self.groups, self.named))
        for metric in scores.named.values():
            metric.reset()
        return scores

    def reset(self) -> None:
        """Forget everything."""
        for metric in self.named.values():
            metric.reset()


def _counted(loss: Loss, output: Any, target: Any) -> tuple[Any, Any] | None:
    """What of a batch the loss does not ignore; None where that is nothing."""
    if loss.ignored is None:
        return output, target
    labels = labels_of(np.asarray(target), output)
    rows = labels != loss.ignored
    return (output[rows], labels[rows]) if rows.any() else None


def _takes_logits(loss: Loss, output: Tensor) -> bool:
    """Whether values above 0, not above ½, mean yes."""
    return isinstance(loss, BinaryCrossentropy) and loss.takes_logits(output)


def _own(metric: Any, logits: bool) -> Metric:
    if isinstance(metric, str):
        if metric.lower() not in BY_NAME:
            hint = likeness(metric.lower(), BY_NAME)
            raise ConfigError(
                f"metric '{metric}' is unknown, expected one of {', '.join(sorted(BY_NAME))}{hint}"
            )
        own: Metric = BY_NAME[metric.lower()]()
    elif all(hasattr(metric, wanted) for wanted in ("name", "reset", "update", "result")):
        own = copy.deepcopy(metric)
    else:
        raise ConfigError(
            f"metric is {metric!r}, expected a name or an object with name, reset, update and result"
        )
    if isinstance(own, (BinaryAccuracy, Accuracy)) and own.threshold is None and logits:
        own.threshold = 0.0
    own.reset()
    return own
