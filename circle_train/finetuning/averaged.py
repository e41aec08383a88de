"""The mean of the last steps' weights, which knows more than the weights of any one step."""

from __future__ import annotations

from typing import ClassVar

from circle_train.fitting.callback import Callback, Logs
from circle_train.ir.tensor_type import Array

STEADY = 0.99
"""What a step leaves of the mean: some hundred steps count."""


class Averaged(Callback):
    """Puts the mean in the weights' place at the end of each epoch, to be judged and kept; training goes on from the weights.

    Few samples pull the weights hither and thither at any rate that teaches something: their mean lies between.
    """

    remembers: ClassVar[tuple[str, ...]] = ("mean", "weights", "count", "epoch")

    def on_train_begin(self) -> None:
        self.mean: Array | None = None
        self.weights: Array | None = None
        """Those that train, while the mean is in their place."""
        self.count, self.epoch = 0, 0

    def on_epoch_begin(self, epoch: int) -> None:
        if self.weights is not None and epoch != self.epoch:  # else a fit goes on at this epoch's end
            self.session.parameters.set_flat(self.weights)
            self.weights = None
        self.epoch = epoch

    def on_batch_end(self, batch: int, logs: Logs) -> None:
        now, share = self.session.parameters.flat(), min(STEADY, (1 + self.count) / (10 + self.count))
        self.mean = now if self.mean is None else share * self.mean + (1 - share) * now
        self.count += 1
        if batch + 1 == self.steps:
            self.weights = now
            self.session.parameters.set_flat(self.mean)
