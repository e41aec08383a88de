"""What a checkpoint would do to a session's state, collected before any of it is done."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from circle_train.checkpoints.slices import Stored
from circle_train.fitting.course import BrokenOff
from circle_train.ir import StateKey
from circle_train.ir.mapped import release
from circle_train.ir.tensor_type import Array
from circle_train.passes.integers.as_shipped import Rounding
from circle_train.runtime.state import State


@dataclass
class Changes:
    """New arrays by key and new counters; applying them cannot fail."""

    arrays: dict[StateKey, Array | Stored] = field(default_factory=dict)
    restored: list[str] = field(default_factory=list)
    """Frozen parameters that take the model's own values again."""
    step: int = 0
    epoch: int = 0
    position: int = 0
    epochs_begun: int = 0
    learning_rate: float | None = None
    seed: int | None = None
    passes: int = 0
    properties: dict[str, int | float | str] = field(default_factory=dict)
    course: BrokenOff | None = None
    rounding: Rounding | None = None

    def apply(self, state: State) -> None:
        """Write everything; what the checkpoint does not name of slots and sums starts from zero."""
        for key, array in state.arrays.items():
            if key.kind != "value" and key not in self.arrays:
                array.fill(0)
        for key, stored in self.arrays.items():
            _set(state, key, stored)
            release(stored)
        for name in self.restored:
            state.restore(name)
        state.step, state.epoch, state.position = self.step, self.epoch, self.position
        state.epochs_begun, state.passes = self.epochs_begun, self.passes
        state.course, state.rounding = self.course, self.rounding
        state.properties.clear()
        state.properties.update(self.properties)
        state.unset.difference_update(key.owner for key in self.arrays if key.kind == "value")
        if self.learning_rate is not None:
            state.learning_rate = self.learning_rate


def _set(state: State, key: StateKey, array: Array | Stored) -> None:
    here = state.get(key)
    if here is not None and here.flags.writeable:
        np.copyto(here, array)
    elif here is None or not np.array_equal(here, array, equal_nan=here.dtype.kind == "f"):
        state.replace(key, np.array(array))
