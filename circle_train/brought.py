"""Names that a package offers and its modules define: a module is imported when one of its names is asked for.

A package that imported its modules at once would take the time of all of them; and it would wait for a module that waits for
it, where two threads begin with the one and the other.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

MODULES = ""
"""Among the homes: of the names that are modules themselves."""


def brought(package: str, homes: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """A package's `__getattr__`, by the names that each of its modules defines for it."""
    home_of = {name: home for home, names in homes.items() for name in names}

    def bring(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module '{package}' has no attribute '{name}'", name=name)
        found = import_module(f"{package}.{home_of[name] or name}")
        value = found if home_of[name] == MODULES else getattr(found, name)
        setattr(sys.modules[package], name, value)
        return value

    return bring


def bring_all(package: str) -> None:
    """Import every module of a package and of those in it: each registers what it defines.

    `pkgutil` does the same in twice the time.
    """
    for folder in import_module(package).__path__:
        for found in sorted(os.scandir(folder), key=lambda one: one.name):
            name, _, suffix = found.name.partition(".")
            if suffix in ("py", "pyc") and name != "__init__":
                import_module(f"{package}.{name}")
            elif not suffix and not name.startswith("_") and found.is_dir():
                bring_all(f"{package}.{name}")
