"""Means over the batches of an epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from circle_train.fitting.metrics.scores import Scores
from circle_train.ir.tensor_type import Array


class Average:
    """Loss and metrics over batches, each weighted by its number of samples, or by the weight that its labels have."""

    def __init__(self, metrics: Scores, loss_weights: Sequence[float] | None = None) -> None:
        self.total, self.samples, self.metrics = 0.0, 0, metrics.fresh()
        self.loss_weights = loss_weights
        self.outputs: list[list[float]] = []
        """For each output, where one has weights: the weighted sum of its losses, and of the weights."""

    def add(self, loss: Any, losses: Sequence[Any], outputs: Sequence[Array], targets: Sequence[Any]) -> None:
        """A batch: its loss, that of each output, and what was made of which labels."""
        count = len(outputs[0]) if outputs and outputs[0].ndim else 1
        self.total += float(np.mean(loss)) * count
        self.samples += count
        if len(losses) == len(outputs) == len(targets):
            self._add_weighted(count, losses, outputs, targets)
        self.metrics.update(outputs, targets)

    def _add_weighted(
        self, count: int, losses: Sequence[Any], outputs: Sequence[Array], targets: Sequence[Any]
    ) -> None:
        weights = [
            loss.weight_of(np.asarray(target), output.shape[-1] if output.ndim else 1)
            for loss, output, target in zip(self.metrics.losses, outputs, targets, strict=True)
        ]
        if all(weight is None for weight in weights):
            return
        self.outputs = self.outputs or [[0.0, 0.0] for _ in losses]
        for sums, value, known in zip(self.outputs, losses, weights, strict=True):
            weight = count if known is None else known
            sums[0] += float(np.mean(value)) * weight
            sums[1] += weight

    @property
    def loss(self) -> float:
        if not self.outputs:
            return self.total / max(self.samples, 1)
        factors = self.loss_weights or [1.0] * len(self.outputs)
        means = [total / weight if weight else 0.0 for total, weight in self.outputs]
        return float(np.dot(factors, means))

    def result(self) -> dict[str, float]:
        return {"loss": self.loss, **self.metrics.result()}

    def snapshot(self) -> dict[str, Any]:
        found = {"total": self.total, "samples": self.samples, "metrics": self.metrics.snapshot()}
        return found | ({"outputs": self.outputs} if self.outputs else {})

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        self.total, self.samples = float(snapshot["total"]), int(snapshot["samples"])
        self.outputs = [[float(total), float(weight)] for total, weight in snapshot.get("outputs", ())]
        if len(self.outputs) not in (0, len(self.metrics.losses)):
            raise ValueError(f"sums of {len(self.outputs)} outputs")
        self.metrics.restore(snapshot["metrics"])
