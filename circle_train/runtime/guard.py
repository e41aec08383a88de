"""No step leaves weights that are not numbers: what came of it is refused, and nothing has changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import isfinite

import numpy as np

from circle_train.errors import ConfigError, DataError
from circle_train.ir import Tensor
from circle_train.ir.tensor_type import Array
from circle_train.ops.internal.gradient import NotFinite
from circle_train.runtime.state import State
from circle_train.runtime.undisturbed import Undisturbed

KEPT = "the weights are those before this step"
LOST = "an earlier step has left NaN or infinite values in the weights"
OVERFLOW = "its gradients are not: they are too large for float32"
FAR = 1e12
"""Numbers and losses of this size may overflow where gradients are made of them."""


@contextmanager
def unspoiled(state: State, feeds: Mapping[Tensor, Array], undisturbed: Undisturbed) -> Iterator[None]:
    """Run a step in this block. A loss that is no number is refused before anything is updated; where input is none, or far
    from 0 as the last loss was, a finite loss may have gradients that are not: what it makes of the weights is looked at.
    """
    far = [tensor.name for tensor, array in feeds.items() if is_far(array)]
    bad = [tensor.name for tensor, array in feeds.items() if tensor.name in far and is_spoiled(array)]
    saved = {}
    if far or state.runs_far:
        undisturbed.begin()
        saved = {key: a.copy() for key, a in state.arrays.items() if a.flags.writeable}
    where = f"step {state.step + 1}"
    reason = f"because {', '.join(bad)} holds NaN or infinite values; {KEPT}"
    try:
        yield
    except NotFinite as error:
        if bad:
            raise DataError(f"{where}: {error}, {reason}") from None
        raise refusal(error, state) from None
    if any(is_spoiled(state.arrays[key]) for key in saved):
        for key, array in saved.items():
            np.copyto(state.arrays[key], array)
        if bad:
            raise DataError(f"{where}: the gradients are not finite, {reason}")
        raise refusal(NotFinite(f"the loss is finite, but {OVERFLOW}"), state)


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
