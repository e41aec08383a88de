"""No step leaves weights that are not numbers: what came of it is refused, and nothing has changed."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from types import TracebackType

import numpy as np

from circle_train.errors import ConfigError, DataError
from circle_train.ir import StateKey, Tensor
from circle_train.ir.tensor_type import Array
from circle_train.ops.internal.gradient import NotFinite
from circle_train.runtime.state import State
from circle_train.runtime.undisturbed import Undisturbed

KEPT = "the weights are those before this step"
LOST = "an earlier step has left NaN or infinite values in the weights"
OVERFLOW = "its gradients are not: they are too large for float32"
FAR = 1e12
"""Numbers and losses of this size may overflow where gradients are made of them."""


class Unspoiled:
    """A step is run in this block. A loss that is no number is refused before anything is updated; where input is none, or far
    from 0 as the last loss was, a finite loss may have gradients that are not: what it makes of the weights is looked at.
    """

    __slots__ = ("_feeds", "_saved", "_state")

    def __init__(self, state: State, feeds: Mapping[Tensor, Array], undisturbed: Undisturbed) -> None:
        self._state, self._feeds = state, feeds
        self._saved: dict[StateKey, Array] = {}
        if state.runs_far or any(map(is_far, feeds.values())):
            undisturbed.begin()
            self._saved = {key: a.copy() for key, a in state.arrays.items() if a.flags.writeable}

    def __enter__(self) -> Unspoiled:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, NotFinite):
            raise self._refusal(error) from None
        arrays = self._state.arrays
        if error is None and any(is_spoiled(arrays[key]) for key in self._saved):
            for key, array in self._saved.items():
                np.copyto(arrays[key], array)
            found = "gradients are not finite" if self._spoiled() else f"loss is finite, but {OVERFLOW}"
            raise self._refusal(NotFinite(f"the {found}"))

    def _spoiled(self) -> str:
        """The inputs and targets that hold NaN or infinity."""
        return ", ".join(tensor.name for tensor, array in self._feeds.items() if is_spoiled(array))

    def _refusal(self, error: NotFinite) -> ConfigError | DataError:
        if bad := self._spoiled():
            step = f"step {self._state.step + 1}"
            return DataError(f"{step}: {error}, because {bad} holds NaN or infinite values; {KEPT}")
        return refusal(error, self._state)


def refusal(error: NotFinite, state: State) -> ConfigError:
    """What is said of a step on numbers that were good, whose loss is none."""
    advice = error.advice or f"lower the learning rate ({state.learning_rate:g}) or scale the data"
    if is_lost(state):
        kept, advice = LOST, f"load a checkpoint, {advice}"
    else:
        kept = KEPT
    return ConfigError(f"step {state.step + 1}: {error}; {kept}; {advice}")


def require_finite_gradients(state: State) -> None:
    """Refuse an update by waiting gradients that would spoil weights."""
    if any(is_spoiled(array) for key, array in state.arrays.items() if key.kind == "gradient"):
        raise ConfigError(
            f"step {state.step + 1}: the gradients that wait are too large for float32, or NaN; {KEPT}; "
            "begin them anew with reset_gradients(), and scale the loss or the data"
        )


def require_numbers(state: State, what: str) -> None:
    """Refuse to write trained weights that are no numbers."""
    if is_lost(state):
        raise ConfigError(
            f"{what}: nothing is written, for {LOST}; load a checkpoint and lower the learning rate"
        )


def is_lost(state: State) -> bool:
    """Whether a trained weight holds NaN or infinity."""
    trained = {name for name, parameter in state.parameters.items() if parameter.trained}
    return any(
        is_spoiled(array)
        for key, array in state.arrays.items()
        if key.kind == "value" and key.owner in trained
    )


def is_far(array: Array) -> bool:
    """Whether NaN, infinity, or what is far from 0 may be among floats: the sum of their squares says so at once."""
    return array.dtype.kind == "f" and not np.vdot(array, array) < FAR * FAR


def is_spoiled(array: Array) -> bool:
    """Whether NaN or infinity is among floats; the sum of their squares says so at once unless it overflows."""
    return array.dtype.kind == "f" and not isfinite(np.vdot(array, array)) and not np.isfinite(array).all()
