"""Means over the batches of an epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from circle_train.fitting.metrics import Scores
from circle_train.ir.tensor_type import Array


class Average:
    """Loss and metrics over batches, each weighted by its number of samples."""

    def __init__(self, metrics: Scores) -> None:
        self.total, self.samples, self.metrics = 0.0, 0, metrics.fresh()

    def add(self, loss: Any, outputs: Sequence[Array], targets: Sequence[Any]) -> None:
        count = len(outputs[0]) if outputs and outputs[0].ndim else 1
        self.total += (loss if isinstance(loss, float) else float(np.mean(loss))) * count
        self.samples += count
        self.metrics.update(outputs, targets)

    @property
    def loss(self) -> float:
        return self.total / max(self.samples, 1)

    def result(self) -> dict[str, float]:
        return {"loss": self.loss, **self.metrics.result()}

    def snapshot(self) -> dict[str, Any]:
        return {"total": self.total, "samples": self.samples, "metrics": self.metrics.snapshot()}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        self.total, self.samples = snapshot["total"], snapshot["samples"]
        self.metrics.restore(snapshot["metrics"])
