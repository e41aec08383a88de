"""Engines that execute bound programs."""

from __future__ import annotations

import warnings

from circle_train.backends import native
from circle_train.backends.base import Backend, Reference
from circle_train.errors import ConfigError

NAMES = ("auto", "native", "reference")


def choose(name: str, threads: int | None) -> Backend:
    """The engine of this name; "auto" takes the native one where it was built."""
    if name not in NAMES:
        raise ConfigError(f"backend '{name}' is unknown, expected one of {', '.join(NAMES)}")
    if threads is not None and threads < 1:
        raise ConfigError(f"threads is {threads}, expected a whole number from 1")
    if name == "reference":
        return Reference()
    if native.is_available():
        return native.Native(threads)
    if name == "native":
        raise ConfigError("backend 'native' was not built: install a C++ compiler and reinstall circle-train")
    warnings.warn(
        "the native engine was not built, training runs on the slower numpy reference", stacklevel=3
    )
    return Reference()
