"""The next phase of a training: other weights are trained from here on, all that was learned stays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from circle_train.runtime.state import State
from circle_train.session.learned import Learned


def begin_phase(session: Learned, trainable: Any, learning_rate: float | None) -> None:
    """Compile anew for this choice; weights stay, the optimizer begins without memory of the phase before."""
    old, before = session.state, session.config
    rule = before.rule if learning_rate is None else replace(before.rule, learning_rate=learning_rate)
    config = before.replace(trainable=trainable, optimizer=rule)
    try:
        session.programs.rebuild(config)
        _take_over(session.state, old)
    except BaseException:
        session.programs.rebuild(before, old)
        raise


def _take_over(new: State, old: State) -> None:
    """What was learned, and how many epochs and passes that took."""
    for key, array in old.arrays.items():
        if key.kind == "value" and array.flags.writeable:
            if new.arrays[key].flags.writeable:
                np.copyto(new.arrays[key], array)
            else:
                new.replace(key, array)
    new.unset &= old.unset
    new.epochs_begun, new.passes = old.epochs_begun, old.passes
    new.properties = old.properties
