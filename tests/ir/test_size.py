"""Sizes as expressions: arithmetic agrees with that of numbers, and nothing is claimed that some numbers contradict."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from circle_train.ir.size import Number, Size, evaluated, floor_divided, largest, smallest, symbol
from circle_train.ir.sizes.bounds import times
from circle_train.ir.sizes.judge import Undecided, judged_by

Formula = Any
NUMBERS = {"/": lambda a, b: a // b, "x": max, "n": min}
SIZES = {"/": floor_divided, "x": largest, "n": smallest}


def formula(rng: random.Random, depth: int) -> Formula:
    kind = rng.randrange(8)
    if depth == 0 or kind == 0:
        return rng.choice(["N", "M", rng.randrange(1, 9)])
    right = formula(rng, depth - 1) if kind < 5 else rng.randrange(1, 70)
    return rng.choice("+-*/%xn"), formula(rng, depth - 1), right


def value(made: Formula, names: Mapping[str, Number], functions: Mapping[str, Any]) -> Any:
    if isinstance(made, int):
        return made
    if isinstance(made, str):
        return names[made]
    what, left, right = made[0], *(value(operand, names, functions) for operand in made[1:])
    if what in functions:
        return functions[what](left, right)
    return {"+": lambda: left + right, "-": lambda: left - right, "*": lambda: left * right,
            "%": lambda: left % right}[what]()  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_expressions_and_their_bounds_hold_for_numbers(seed: int) -> None:
    rng = random.Random(seed)
    compared = 0
    for _ in range(300):
        made = formula(rng, 3)
        try:
            size = value(made, {"N": symbol("N"), "M": symbol("M")}, SIZES)
        except ZeroDivisionError:
            continue
        for _ in range(4):
            names = {"N": rng.randrange(1, 300), "M": rng.randrange(1, 40)}
            try:
                expected = value(made, names, NUMBERS)
                found = evaluated(size, names)
            except ZeroDivisionError:
                continue
            low, high = (size.low, size.high) if isinstance(size, Size) else (size, size)
            assert found == expected, (made, names)
            assert low is None or low <= expected
            assert high is None or high >= expected
            compared += 1
    assert compared > 500


def test_a_product_that_begins_at_0_has_bounds() -> None:
    assert times((0, 3), (2, 5)) == (0, 15)
    assert times((-1, 3), (2, 5)) == (None, None)


def test_equal_sizes_have_one_form() -> None:
    n, m = symbol("N"), symbol("M")
    assert ((n + 1) // 2 + 1) // 2 == (n + 3) // 4
    assert -(-n // 2) == (n + 1) // 2
    assert n * m * 8 // (n * 8) == m
    assert (6 * n) % 3 == 0
    assert largest(n, 0) == n


def test_what_depends_on_a_symbol_is_no_number() -> None:
    n = symbol("N")
    for wants_a_number in (int, range, bool, lambda size: [0] * size, lambda size: [0][size]):
        with pytest.raises((TypeError, Undecided)):
            wants_a_number(n - 1)
    with pytest.raises(Undecided, match="depends on the sizes that are open"):
        assert n < 5
    with judged_by(lambda what, _: what == "negative"):
        assert n < 5 and n != 5
