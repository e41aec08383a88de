"""One session that is one client after another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from circle_train.ir import StateKey
from circle_train.ir.tensor_type import Array
from circle_train.model import Model, Source
from circle_train.ops.internal.update import corner
from circle_train.session import TrainSession
from circle_train.session.batches import StepResult
from circle_train.settings.config import TrainConfig

VALUE = "value"
"""The kind of state that is weights; all other kinds are the optimizer's and the step's."""
COUNTERS = ("step", "epochs_begun", "passes")


class ClientSession(TrainSession):
    """A session whose steps can be drawn back to where they began, as FedProx wants it."""

    def __init__(
        self, model: Model | Source, config: TrainConfig | None, *, threads: int | None = None
    ) -> None:
        super().__init__(model, config, threads=threads)
        self.mu = 0.0
        self.anchor: Mapping[str, Array] = {}

    def begin(self, seed: int, learning_rate: float | None, mu: float) -> None:
        """As new, but for its weights: no moments, no steps made, the base learning rate unless another is asked for."""
        state = self.state
        for key, array in state.arrays.items():
            if key.kind != VALUE:
                array.fill(0)
        state.step = state.epochs_begun = state.passes = state.epoch = state.position = 0
        state.course = None
        state.learning_rate = self.config.rule.base_learning_rate
        if learning_rate is not None:
            self.learning_rate = learning_rate
        self.seed, self.mu, self.stop_training = seed, mu, False
        trained = [name for name, p in state.parameters.items() if p.trained]
        self.anchor = {name: state.value(name).copy() for name in trained} if mu else {}

    def train_step(
        self,
        x: Any,
        y: Any,
        *,
        update: bool = True,
        accumulate: bool = False,
        measure: bool = True,
        then: Callable[[StepResult], None] | None = None,
    ) -> StepResult:
        """A step on the loss and µ/2·|w - w₀|², where µ is not 0."""
        if not self.mu or accumulate or not update:
            return super().train_step(x, y, update=update, accumulate=accumulate, measure=measure, then=then)
        self.reset_gradients()
        result = super().train_step(x, y, update=False, accumulate=True, measure=measure)
        for name, start in self.anchor.items():
            gradient = self.state.arrays[StateKey("gradient", name)]
            gradient += np.float32(self.mu) * (self.state.value(name) - start)[corner(gradient)]
        self.update()
        if then is not None:
            then(result)
        return result

    @property
    def moments(self) -> dict[StateKey, Array]:
        """The optimizer's memory."""
        slots = self.config.rule.slots
        return {key: array for key, array in self.state.arrays.items() if key.kind in slots}
