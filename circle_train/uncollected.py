"""Python's search for cycles of garbage, put off while very many objects are made that nearly all stay.

It goes through all objects again and again as they become more: a quarter of the time that a large graph took.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

MANY = 20_000
"""Objects that are not gone through even once when they are there: they count as old ones from then on."""


@contextmanager
def uncollected(really: bool = True) -> Iterator[None]:
    """Within this block, or the function that it decorates, nothing is searched for; what was dropped is found behind it."""
    was_on = gc.isenabled()
    if really:
        gc.disable()
    try:
        yield
    finally:
        if was_on:
            if gc.get_count()[0] > MANY and not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()  # among the oldest, which are searched when enough has been added to them
            gc.enable()
