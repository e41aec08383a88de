"""numpy's own threads: its BLAS has a pool that knows nothing of ours, and waits for work where ours would work."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field
from functools import lru_cache
from typing import Any

import numpy as np

from circle_train.record import mutable

FUNCTIONS = (
    ("scipy_openblas_set_num_threads64_", "scipy_openblas_get_num_threads64_"),
    ("scipy_openblas_set_num_threads", "scipy_openblas_get_num_threads"),
    ("openblas_set_num_threads64_", "openblas_get_num_threads64_"),
    ("openblas_set_num_threads", "openblas_get_num_threads"),
    ("MKL_Set_Num_Threads", "MKL_Get_Max_Threads"),
    ("bli_thread_set_num_threads", "bli_thread_get_num_threads"),
)
"""What sets and what gives the number of threads, in the libraries that numpy is built with."""


@lru_cache(maxsize=1)
def functions() -> tuple[Callable[[int], Any], Callable[[], int]] | None:
    """Those of the library that numpy has loaded; None where it has none that we know."""
    names = ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath")
    core: Any = next(sys.modules[name] for name in names if name in sys.modules)
    beside = os.path.join(os.path.dirname(os.path.dirname(np.__file__)), "numpy.libs")
    files = sorted(os.listdir(beside)) if os.path.isdir(beside) else []
    for path in (core.__file__, *(os.path.join(beside, file) for file in files if "openblas" in file)):
        try:
            library = ctypes.CDLL(path)  # loaded already: its symbols, and those of what it is linked with
        except OSError:
            continue
        for setter, getter in FUNCTIONS:
            if hasattr(library, setter) and hasattr(library, getter):
                return getattr(library, setter), getattr(library, getter)
    return None


def threads() -> int | None:
    """How many numpy's products use at present; None where it cannot be told."""
    found = functions()
    return None if found is None else int(found[1]())


@mutable
class Limits:
    """Those that hold at present, and the number before the first of them."""

    before: int = 0
    present: list[int] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def unlock(self) -> None:
        """Whoever held the lock when the process forked is not in the child."""
        self.lock = threading.Lock()

    def enter(self, most: int) -> None:
        with self.lock:
            if not self.present:
                self.before = threads() or 1
            self.present.append(most)
            self.apply()

    def leave(self, most: int) -> None:
        with self.lock:
            self.present.remove(most)
            self.apply()

    def apply(self) -> None:
        found = functions()
        assert found is not None
        found[0](min(self.before, *self.present) if self.present else self.before)


LIMITS = Limits()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=LIMITS.unlock)


@contextmanager
def limited(most: int) -> Iterator[None]:
    """At most so many threads meanwhile; the number is the whole process's, so of several limits the least holds."""
    if functions() is None:
        yield
        return
    LIMITS.enter(most)
    try:
        yield
    finally:
        LIMITS.leave(most)
