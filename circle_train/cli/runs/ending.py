"""How a command ends: an exit status, one line for whatever went wrong, and streams that take any text until then."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import TextIO

from circle_train.errors import CircleTrainError, shown, within_bounds
from circle_train.printable import printable


def _taking_any_text(stream: TextIO | None) -> TextIO:
    """A stream that lacks a letter gets its escape; what is written where there is no stream is lost."""
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")
    return stream


def ended(command: Callable[[], int | None], debug: bool = False) -> int:
    """Exit status: 0 done, 1 a user's error, 130 Ctrl-C; with `debug` the place in the code too."""
    sys.stdout, sys.stderr = map(_taking_any_text, (sys.stdout, sys.stderr))
    warnings.showwarning = _show_warning
    try:
        return _run(command)
    except Exception as error:
        if debug:
            traceback.print_exc()
        return _fail(_said(error, debug))


def _run(command: Callable[[], int | None]) -> int:
    """Nobody reading any more is no error, and Ctrl-C none of ours."""
    try:
        status = command() or 0
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _said(error: Exception, debug: bool) -> str:
    """One line; what we did not foresee is ours to mend."""
    if isinstance(error, CircleTrainError):
        return str(error)
    if isinstance(error, OSError):
        return f"{error.filename or 'input or output'}: {error.strerror or error}"
    if isinstance(error, MemoryError):
        return "there is not enough memory; use smaller files or batches, or a memory_budget"
    how = "" if debug else " with what `circle-train --debug …` prints"
    return f"{type(error).__name__}: {shown(error)}; this is a fault of circle-train, please report it{how}"


def _fail(message: str) -> int:
    try:
        sys.stdout.flush()  # what was printed stands before the error
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nor is it tried again at the end
    print(f"error: {within_bounds(printable(message))}", file=sys.stderr)
    return 1


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """One line, without the place in our code."""
    print(f"warning: {within_bounds(printable(str(message)))}", file=sys.stderr)
