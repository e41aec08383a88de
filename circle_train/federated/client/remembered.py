"""What a client keeps from round to round, in its own context, on its own machine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from circle_train.errors import DataError
from circle_train.federated.client.session import COUNTERS, ClientSession
from circle_train.federated.records import decoded, encoded
from circle_train.ir import StateKey
from circle_train.ir.tensor_type import Array

ARRAYS, COUNTS = "circle_train.arrays", "circle_train.counts"


def keep(session: ClientSession, state: RecordDict, wish: Sequence[str]) -> None:
    """After a round."""
    if not wish:
        return
    arrays = {f"{key.kind}/{key.owner}": array for key, array in _arrays(session, wish).items()}
    if arrays:
        state[ARRAYS] = ArrayRecord({name: encoded(array) for name, array in arrays.items()})
    if "position" in wish:
        state[COUNTS] = ConfigRecord({name: getattr(session.state, name) for name in COUNTERS})


def recall(session: ClientSession, state: RecordDict, wish: Sequence[str]) -> None:
    """Before a round; a client that takes part for the first time remembers nothing."""
    if ARRAYS in state:
        here = {f"{key.kind}/{key.owner}": array for key, array in _arrays(session, wish).items()}
        found = {name: decoded(array) for name, array in state[ARRAYS].items()}
        if {n: a.shape for n, a in here.items()} != {n: a.shape for n, a in found.items()}:
            raise DataError(
                "the client remembers the arrays of another model or optimizer; begin a new run, whose clients start afresh"
            )
        for name, array in found.items():
            np.copyto(here[name], array)
    if COUNTS in state and "position" in wish:
        for name in COUNTERS:
            setattr(session.state, name, int(state[COUNTS][name]))


def _arrays(session: ClientSession, wish: Collection[str]) -> dict[StateKey, Array]:
    """What is kept, as it lies in the session."""
    session.prepare()
    known = session.state.parameters
    kinds: dict[str, Callable[[StateKey], bool]] = {
        "optimizer": lambda key: key.kind in session.config.rule.slots,
        "statistics": lambda key: key.kind == "value" and known[key.owner].moves,
    }
    wanted = [kinds[name] for name in wish if name in kinds]
    return {key: array for key, array in session.state.arrays.items() if any(w(key) for w in wanted)}
