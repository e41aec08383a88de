"""What a course may take: memory, and seconds of processor time."""

from __future__ import annotations

import re
from typing import Any

from circle_train.compile.thrift.budget import parse_bytes
from circle_train.errors import ConfigError
from circle_train.kinds import is_number
from circle_train.record import record

UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}
EXPECTED = "expected memory, time or both with their units, like '150MB,60s'"


@record
class Budget:
    """None: no limit."""

    memory: int | None = None
    seconds: float | None = None


def parse_budget(text: Any) -> Budget:
    """ "150MB,60s", in any order; either may be missing."""
    if not isinstance(text, str):
        raise ConfigError(f"budget is {text!r}, {EXPECTED}")
    memory, seconds = None, None
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|min|h)\s*", part)
        if found is not None and seconds is None:
            seconds = float(found[1]) * UNITS[found[2]]
        elif found is None and memory is None:
            memory = _bytes(part, text)
        else:
            raise ConfigError(f"budget is {text!r}, which names one of the two twice; {EXPECTED}")
    return checked(Budget(memory, seconds), f"budget is {text!r}")


def budget_of(memory: int | str | None, seconds: float | None) -> Budget:
    """The same from two arguments."""
    if seconds is not None and not is_number(seconds):
        raise ConfigError(f"seconds is {seconds!r}, expected a number above 0")
    found = Budget(None if memory is None else parse_bytes(memory, "memory"), seconds)
    return checked(found, f"seconds is {seconds!r}")


def checked(budget: Budget, place: str) -> Budget:
    """No time is no budget."""
    if budget.seconds is not None and not 0 < budget.seconds < float("inf"):
        raise ConfigError(f"{place}, expected a time above 0")
    return budget


def _bytes(part: str, text: str) -> int:
    try:
        return parse_bytes(part, "budget")
    except ConfigError:
        raise ConfigError(f"budget is {text!r}, where {part.strip()!r} is neither; {EXPECTED}") from None
