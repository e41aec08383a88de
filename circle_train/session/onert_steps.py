"""ONERT's training process step by step, for those who port code: one method for each call of its API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np

from circle_train.data.coercion import as_array, check_shape, public_name
from circle_train.errors import ConfigError, DataError
from circle_train.ir import Tensor
from circle_train.ir.tensor_type import Array
from circle_train.record import mutable
from circle_train.session.batches import Batches
from circle_train.settings.config import TrainConfig


@mutable
class Steps:
    """What the single steps have set, and what the last run gave."""

    inputs: dict[int, Array] = field(default_factory=dict)
    expected: dict[int, Array] = field(default_factory=dict)
    losses: list[Any] = field(default_factory=list)
    outputs: list[Array] | None = None


class OnertSteps(Batches):
    """`set_traininfo`, `prepare`; in a loop `set_input`, `set_expected`, `run`, `loss`; then `export`.

    Arrays are copied when they are set, so the caller may reuse them. Without expected values,
    `run(update=False)` is inference.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._steps = Steps()

    def set_traininfo(self, config: TrainConfig) -> None:
        """What to train and how, in place of the model's own settings; before `prepare`."""
        if self.programs.made is not None:
            raise ConfigError(
                "set_traininfo: the session is prepared already; call it before, or open a new session"
            )
        self.config = config

    def set_input(self, index: int, value: Any) -> None:
        """The next batch of an input."""
        self._steps.inputs[index] = _taken(index, value, self.program.inputs, "set_input")

    def set_expected(self, index: int, value: Any) -> None:
        """What the output should be for that batch."""
        self._steps.expected[index] = _taken(index, value, self.program.targets, "set_expected")

    def run(self, update: bool = True) -> None:
        """One step on what was set; `update=False` changes no weight."""
        x = _all(self._steps.inputs, self.program.inputs, "input", "set_input")
        if not update and not self._steps.expected:
            self._steps.losses, self._steps.outputs = [], self.predict_batch(x)
            return
        y = _all(self._steps.expected, self.program.targets, "expected value", "set_expected")
        result = self.train_step(x, y) if update else self.eval_step(x, y)
        self._steps.losses, self._steps.outputs = result.losses, result.outputs

    def loss(self, index: int = 0) -> float:
        """The loss of the last `run`, before its update."""
        _outputs(self._steps, "loss")
        losses = self._steps.losses
        if not losses:
            raise ConfigError("loss: the last run had no expected values; call set_expected before run")
        return float(np.mean(losses[_checked(index, len(losses), "loss")]))

    def output(self, index: int = 0) -> Array:
        """An output of the last `run`."""
        outputs = _outputs(self._steps, "output")
        return outputs[_checked(index, len(outputs), "output")]


def _taken(index: int, value: Any, tensors: Sequence[Tensor], call: str) -> Array:
    """A copy of the batch, if it fits."""
    tensor = tensors[_checked(index, len(tensors), call)]
    array = as_array(value, f"{call}({index}): '{public_name(tensor)}'")
    check_shape(array.shape, tensor, f"{call}({index})", any_count=True)
    copy: Array = array.copy()
    return copy


def _all(found: dict[int, Array], tensors: Sequence[Tensor], what: str, call: str) -> list[Array]:
    """Every batch in order."""
    for index, tensor in enumerate(tensors):
        if index not in found:
            raise DataError(
                f"run: {what} {index} ('{public_name(tensor)}') is not set; call {call}({index}, array) first"
            )
    return [found[index] for index in range(len(tensors))]


def _checked(index: int, count: int, call: str) -> int:
    if not 0 <= index < count:
        raise DataError(f"{call}: there is no number {index}, the model has {count}; count from 0")
    return index


def _outputs(steps: Steps, call: str) -> list[Array]:
    if steps.outputs is None:
        raise ConfigError(f"{call}: nothing was run yet; call run first")
    return steps.outputs
