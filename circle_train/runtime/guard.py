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


@contextmanager
def unspoiled(state: State, feeds: Mapping[Tensor, Array], undisturbed: Undisturbed) -> Iterator[None]:
    """Run a step in this block. A loss that is no number is refused before anything is updated; input that holds
    such values may give a finite loss and yet spoil gradients, so what it makes of the weights is looked at.
    """
    bad = [tensor.name for tensor, array in feeds.items() if is_spoiled(array)]
    saved = {}
    if bad:
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
        raise DataError(f"{where}: the gradients are not finite, {reason}")


def refusal(error: NotFinite, state: State) -> ConfigError:
    """What is said of a step on numbers that were good, whose loss is none."""
    advice = error.advice or f"lower the learning rate ({state.learning_rate:g}) or scale the data"
    return ConfigError(f"step {state.step + 1}: {error}; {KEPT}; {advice}")


def is_spoiled(array: Array) -> bool:
    """Whether NaN or infinity is among floats; the sum of their squares says so at once unless it overflows."""
    return array.dtype.kind == "f" and not isfinite(np.vdot(array, array)) and not np.isfinite(array).all()
