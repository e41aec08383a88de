"""One session in several threads: who asks for results waits for its turn, who trains beside another one is refused."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, NoReturn, ParamSpec, Protocol, TypeVar
from weakref import WeakSet

from circle_train.errors import ConfigError

P = ParamSpec("P")
R = TypeVar("R")


class Turns:
    """Who runs a session's programs, and who trains it; each may do more of the same meanwhile."""

    def __init__(self) -> None:
        self.running, self.training = threading.RLock(), threading.RLock()
        _EVERY.add(self)

    @contextmanager
    def alone(self, what: str) -> Iterator[None]:
        """No other thread changes the weights meanwhile; refused where one is at it."""
        lock = self.taken(what)
        try:
            yield
        finally:
            lock.release()

    def taken(self, what: str) -> threading.RLock:
        """The lock of who trains, to be released."""
        lock = self.training
        if lock.acquire(blocking=False):
            return lock
        raise ConfigError(
            f"{what}: another thread is training this session, expected one at a time; "
            "give each thread a session of its own, or train from one of them"
        )


class TakesTurns(Protocol):
    """A session, or a part of one."""

    @property
    def turns(self) -> Turns: ...


S = TypeVar("S", bound=TakesTurns)
_EVERY: WeakSet[Turns] = WeakSet()


def waits(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Nothing else runs meanwhile: memory and what is read from it are one batch's."""

    @wraps(method)
    def taken(session: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with session.turns.running:
            return method(session, *args, **kwargs)

    return taken


def trains(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """The same, and no other thread is training."""
    name = getattr(method, "__name__", "training")

    @wraps(method)
    def taken(session: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        turns = session.turns
        lock = turns.taken(name)
        try:
            with turns.running:
                return method(session, *args, **kwargs)
        finally:
            lock.release()

    return taken


def refuse_copies(session: object) -> NoReturn:
    """Its memory, threads and locks are of this process, and of this one session."""
    raise ConfigError(
        "a session can be neither copied nor pickled; save a checkpoint or export the model, and make a new session of it"
    )


def _free_in_child() -> None:
    """Whoever held a lock when the process forked is not in the child."""
    for turns in _EVERY:
        turns.running, turns.training = threading.RLock(), threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_in_child)
