"""Integers that know what they would be for other batch sizes.

A model with symbolic dimensions is converted in several worlds at once, each with sizes of its own for them.
What is equal in all worlds is a constant; what differs must be written as -1 or be computed at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, SupportsIndex

Leaf = tuple[Any, int]
"""A tensor and the axis whose size is meant."""


class Size(int):
    """An integer with its values in the other worlds and the expression that it was computed by."""

    others: tuple[int, ...]
    formula: tuple[Any, ...]
    """("size", tensor, axis) or (Circle operator, operand, operand); operands are ints or Sizes."""

    def __new__(cls, values: tuple[int, ...], formula: tuple[Any, ...]) -> Size:
        self = super().__new__(cls, values[0])
        self.others = values[1:]
        self.formula = formula
        return self

    def __add__(self, other: int) -> int:
        return combine("ADD", int.__add__, self, other)

    def __radd__(self, other: int) -> int:
        return combine("ADD", int.__add__, other, self)

    def __sub__(self, other: int) -> int:
        return combine("SUB", int.__sub__, self, other)

    def __rsub__(self, other: int) -> int:
        return combine("SUB", int.__sub__, other, self)

    def __mul__(self, other: SupportsIndex) -> int:
        return combine("MUL", int.__mul__, self, int_of(other))

    def __rmul__(self, other: SupportsIndex) -> int:
        return combine("MUL", int.__mul__, int_of(other), self)

    def __floordiv__(self, other: int) -> int:
        return combine("FLOOR_DIV", int.__floordiv__, self, other)

    def __rfloordiv__(self, other: int) -> int:
        return combine("FLOOR_DIV", int.__floordiv__, other, self)

    def __mod__(self, other: int) -> int:
        return combine("FLOOR_MOD", int.__mod__, self, other)

    def __neg__(self) -> int:
        return combine("SUB", int.__sub__, 0, self)


def int_of(value: SupportsIndex) -> int:
    return value if isinstance(value, int) else int(value)


def worlds(value: int, count: int) -> tuple[int, ...]:
    """The value in each of `count` worlds."""
    return (int(value), *value.others) if isinstance(value, Size) else (int(value),) * count


def combine(name: str, function: Callable[[int, int], int], first: int, second: int) -> int:
    """The operation in every world; a plain int where all agree."""
    count = 1 + max(len(getattr(value, "others", ())) for value in (first, second))
    pairs = zip(worlds(first, count), worlds(second, count), strict=True)
    values = tuple(function(a, b) for a, b in pairs)
    return values[0] if len(set(values)) == 1 else Size(values, (name, first, second))


def is_one(value: int) -> bool:
    """1 in every world."""
    return value == 1 and not isinstance(value, Size)


def is_symbolic(values: Iterable[int]) -> bool:
    return any(isinstance(value, Size) for value in values)
