"""What is done whole or not at all: Ctrl-C and its like wait until it is done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

try:  # what signal.signal and signal.getsignal call; these make enumerations of everything, 20 µs each
    from _signal import getsignal as handler_of, signal as set_handler
except ImportError:  # another Python
    from signal import getsignal as handler_of, signal as set_handler

NAMES = ("SIGINT", "SIGTERM", "SIGALRM", "SIGUSR1")
INTERRUPTING = tuple(int(getattr(signal, name)) for name in NAMES if hasattr(signal, name))
"""Signals that people let Python raise exceptions for."""


class Undisturbed:
    """From `begin` to the end of the with block no signal's handler runs; then those do whose signal came.

    Python runs handlers between any two instructions of the main thread, and what they raise would leave half a step.
    Handlers in C, and what the system does without a handler, are as ever.
    """

    __slots__ = ("_came", "_replaced")

    def __init__(self) -> None:
        self._replaced: list[tuple[int, Callable[[int, FrameType | None], Any]]] = []
        self._came: list[tuple[int, FrameType | None]] = []

    def __enter__(self) -> Undisturbed:
        return self

    def begin(self) -> None:
        if self._replaced or threading.get_ident() != threading.main_thread().ident:
            return
        for number in INTERRUPTING:
            handler = handler_of(number)
            if callable(handler):
                self._replaced.append((number, handler))
                set_handler(number, self._note)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        replaced = self._replaced
        try:
            while replaced:
                set_handler(*replaced[-1])
                replaced.pop()
        finally:  # a handler that is back may raise at once; the others are put back all the same
            if replaced:
                self.__exit__(kind, error, trace)
        while self._came:
            number, frame = self._came.pop(0)
            handler = handler_of(number)
            if callable(handler):
                handler(number, frame)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came.append((number, frame))
