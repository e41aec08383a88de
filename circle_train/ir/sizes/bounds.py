"""The least and the greatest that a number can be of which only that is known; None is no bound."""

from __future__ import annotations

from collections.abc import Iterable

Bounds = tuple[int | None, int | None]
ANY: Bounds = (None, None)


def plus(first: Bounds, second: Bounds) -> Bounds:
    low, high = (None if a is None or b is None else a + b for a, b in zip(first, second, strict=True))
    return low, high


def scaled(bounds: Bounds, factor: int) -> Bounds:
    low, high = (None if n is None else n * factor for n in bounds)
    return (high, low) if factor < 0 else (low, high)


def times(first: Bounds, second: Bounds) -> Bounds:
    """Of what cannot be negative; of others nothing is said."""
    (low, high), (low2, high2) = first, second
    if low is None or low2 is None or min(low, low2) < 0:
        return ANY
    return low * low2, None if high is None or high2 is None else high * high2


def divided(top: Bounds, bottom: Bounds) -> Bounds:
    """⌊top / bottom⌋, where nothing is divided by 0 or less."""
    (low, high), (by_low, by_high) = top, bottom
    if by_low is None or by_low <= 0:
        return ANY
    least = None if low is None else low // by_low if low < 0 else 0 if by_high is None else low // by_high
    most = (
        None if high is None else high // by_low if high >= 0 else -1 if by_high is None else high // by_high
    )
    return least, most


def within(known: Iterable[Bounds]) -> Bounds:
    """All of them hold."""
    lows, highs = zip(*known, strict=True)
    low = max((n for n in lows if n is not None), default=None)
    return low, min((n for n in highs if n is not None), default=None)


def greater(first: Bounds, second: Bounds) -> Bounds:
    """Of the greater of two."""
    (low, high), (low2, high2) = first, second
    least, _ = within([(low, None), (low2, None)])
    return least, None if high is None or high2 is None else max(high, high2)


def lesser(first: Bounds, second: Bounds) -> Bounds:
    """Of the lesser of two."""
    return scaled(greater(scaled(first, -1), scaled(second, -1)), -1)
