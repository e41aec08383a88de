"""How far to go from what a model knew: few samples pull its weights further than others agree."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np

from circle_train.data.dataset import Dataset
from circle_train.ir.tensor_type import Array
from circle_train.session import TrainSession

LOG = logging.getLogger(__name__)
SHARES = (1.0, 0.75, 0.5)
"""Of the way from the weights before a phase to those after it; half of what was learned is not given back."""


def partway(session: TrainSession, before: Mapping[str, Array], held_out: Dataset) -> dict[str, float]:
    """Put the weights where the samples held out cost least on the straight way from those before; how they are answered there.

    On it a network forgets and learns by degrees, and knows more of both in between than at its ends. The end is kept where
    the fit had its best weights before.
    """
    moved = {n: v for n, v in session.parameters.items() if not np.array_equal(before[n], v)}
    if any(value.dtype.kind != "f" for value in moved.values()):
        return session.evaluate(held_out)
    after = {name: np.array(value) for name, value in moved.items()}  # statistics too, which nothing trains
    found: dict[float, dict[str, float]] = {}
    for share in SHARES:
        _place(session, before, after, share)
        found[share] = session.evaluate(held_out)
    best = min(found, key=lambda share: found[share]["loss"])
    _place(session, before, after, best)
    if best < 1:
        LOG.info("%.0f %% of the way there those held out are answered best: these weights stay", 100 * best)
    return found[best]


def _place(
    session: TrainSession, before: Mapping[str, Array], after: Mapping[str, Array], share: float
) -> None:
    for name, end in after.items():
        session.parameters[name] = (
            end if share == 1 else before[name] + np.float32(share) * (end - before[name])
        )
