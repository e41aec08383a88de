"""Which engine is to run: by its name, or the fastest there is."""

from __future__ import annotations

import operator
import warnings
from typing import Any

from circle_train.backends.base import Backend, Reference
from circle_train.backends.native import Native, is_available
from circle_train.backends.native.engine.abi import MAX_THREADS
from circle_train.errors import ConfigError

NAMES = ("auto", "native", "reference")


def choose(name: str, threads: int | None, weights_stay: bool = False) -> Backend:
    """The engine of this name; "auto" takes the native one where it was built. Weights that stay it may prepare once."""
    if name not in NAMES:
        raise ConfigError(f"backend '{name}' is unknown, expected one of {', '.join(NAMES)}")
    if threads is not None:
        _check_threads(threads)
    if name == "reference":
        return Reference(threads)
    if is_available():
        return Native(threads, weights_stay=weights_stay)
    if name == "native":
        raise ConfigError(
            "backend 'native' was not built for this release: install a C++ compiler and reinstall circle-train"
        )
    warnings.warn(
        "the native engine was not built for this release, training runs on the slower numpy reference",
        stacklevel=3,
    )
    return Reference(threads)


def _check_threads(asked: Any) -> None:
    try:
        is_possible = 1 <= operator.index(asked) <= MAX_THREADS
    except TypeError:
        is_possible = False
    if not is_possible:
        raise ConfigError(f"threads is {asked!r}, expected a whole number from 1 to {MAX_THREADS}")
