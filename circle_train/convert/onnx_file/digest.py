"""What tells one file from another: its SHA-256, computed beside the conversion."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from typing import Any

LARGE = 1 << 20
"""Bytes from which a thread of its own is worth its start."""


class Digest:
    """A digest under way; `str` waits for it."""

    def __init__(self, data: Any) -> None:
        self._found = ""
        self._wait: Callable[[], None] = lambda: None
        if len(data) < LARGE:
            self._compute(data)
            return
        thread = threading.Thread(target=self._compute, args=(data,), daemon=True)
        thread.start()
        self._wait = thread.join

    def _compute(self, data: Any) -> None:
        self._found = hashlib.sha256(data).hexdigest()

    def __str__(self) -> str:
        self._wait()
        return self._found
