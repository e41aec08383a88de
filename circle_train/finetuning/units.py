"""Numbers to be foreseen, in units that a head learns at any rate: a price of 300,000 is as near as one of 3."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from circle_train.data.labelled import Labelled
from circle_train.ir.tensor_type import Array
from circle_train.record import record
from circle_train.session import TrainSession


@record
class Units:
    """Mean and deviation of what trains, for each number."""

    mean: Array
    std: Array

    @classmethod
    def of(cls, data: Labelled) -> Units:
        rows = data.targets().astype(np.float64)
        std = rows.std(0)
        return cls(rows.mean(0), np.where(std > 0, std, 1.0))

    def applied(self, data: Labelled) -> Labelled:
        """The same samples, their numbers less the mean, by the deviation."""
        rows = (data.targets() - self.mean) / self.std
        return replace(data, labels=rows.astype(np.float32).reshape(data.labels.shape))

    def give_back(self, session: TrainSession) -> None:
        """The head that was trained in these units speaks in the samples' own from here on."""
        for name, shift in (("head/weights", 0.0), ("head/bias", self.mean)):
            value = np.asarray(session.parameters[name], np.float64)
            scale = self.std.reshape(-1, *[1] * (value.ndim - 1))
            session.parameters[name] = (value * scale + shift).astype(np.float32)

    def __str__(self) -> str:
        if self.mean.size > 1:
            return "while they train, numbers are less their means, by their deviations"
        return f"while it trains, the number is less its mean, {self.mean[0]:.4g}, by its deviation, {self.std[0]:.4g}"
