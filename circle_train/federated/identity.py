"""Which run and node the messages of this process are from: newer Flowers want to know before a message is made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

RUN, SERVER = 1, 1
"""The only run of a simulation, and the node that Flower gives its servers."""
FIELDS = ("_run_id", "_node_id", "_task_id")


@contextmanager
def speaking_as_server() -> Iterator[None]:
    """Messages made meanwhile are the server's; where a run of Flower's is under way already, they stay its own."""
    identity = _identity()
    if identity is None or identity._run_id is not None:
        yield
        return
    for name, value in zip(FIELDS, (RUN, SERVER, 0), strict=True):
        setattr(identity, name, value)
    try:
        yield
    finally:
        for name in FIELDS:
            setattr(identity, name, None)


def _identity() -> Any:
    """Flower's class for it; None in those that have none."""
    try:
        return import_module("flwr.supercore.task_identity").TaskIdentity
    except ModuleNotFoundError:
        return None
