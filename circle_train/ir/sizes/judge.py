"""Who answers questions about sizes whose answer depends on symbols."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from circle_train.ir.sizes.expression import Expression, bounds_of

Judge = Callable[[str, Any], bool]
"""Says whether a Size is "zero" or "negative" where that depends on symbols."""

_judge: ContextVar[Judge | None] = ContextVar("judge", default=None)


class Undecided(ValueError):
    """A question about sizes has no answer that holds for all values of the open ones."""


@contextmanager
def judged_by(judge: Judge | None) -> Iterator[None]:
    """Within this block, what depends on symbols is asked there."""
    before = _judge.set(judge)
    try:
        yield
    finally:
        _judge.reset(before)


def holds(what: str, value: int | Expression) -> bool:
    """Whether it is "zero" or "negative", as its bounds say, or else the one in charge."""
    low, high = bounds_of(value)
    if what == "zero":
        if low == high and low is not None:
            return low == 0
        if (low is not None and low > 0) or (high is not None and high < 0):
            return False
    elif low is not None and low >= 0:
        return False
    elif high is not None and high < 0:
        return True
    judge = _judge.get()
    if judge is None:
        raise Undecided(
            f"whether {value} is {'0' if what == 'zero' else 'below 0'} depends on the sizes that are open"
        )
    return judge(what, value)
