"""Sizes that are not numbers yet: expressions of the symbols that stand for open sizes.

A `Size` is a polynomial with integer coefficients of atoms: symbols, floor divisions, greatest and least values, and what
nothing is known of but where it can be read while running. Equal expressions are equal Sizes; arithmetic that yields a
number yields an int. A Size is no int on purpose: where a number is needed, Python refuses it instead of taking a guess.

Comparisons answer what holds for all values of the symbols. What depends on them is asked of the `Judge` in charge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from math import prod
from typing import Any, Union

import numpy as np

Number = Union[int, "Size"]
Terms = tuple[tuple[tuple["Atom", ...], int], ...]
Judge = Callable[[str, "Size"], bool]
"""Says whether a Size is "zero" or "negative" where that depends on symbols."""


class Undecided(ValueError):
    """A question about sizes has no answer that holds for all values of the open ones."""


class Atom:
    """What sums and products are made of: a symbol, or an operation on Sizes."""

    __slots__ = ("high", "kind", "low", "operands", "text")

    def __init__(
        self, kind: str, operands: tuple[Any, ...], text: str, low: int | None, high: int | None = None
    ) -> None:
        self.kind, self.operands, self.text, self.low, self.high = kind, operands, text, low, high

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Atom) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __lt__(self, other: Atom) -> bool:
        return self.text < other.text


class Size:
    """Σ coefficient · Π atoms; `low` and `high` bound it for all values of the symbols, None being no bound."""

    __slots__ = ("formula", "high", "low", "terms")

    def __init__(self, terms: Terms, low: int | None, high: int | None, formula: tuple[Any, ...]) -> None:
        self.terms, self.low, self.high = terms, low, high
        self.formula = formula
        """How it was computed: ("size", tensor, axis), ("element", tensor, index), ("symbol", name), or an operator's name and
        its operands."""

    def __add__(self, other: Number) -> Number:
        return _sum(self, other, 1)

    def __radd__(self, other: Number) -> Number:
        return _sum(other, self, 1)

    def __sub__(self, other: Number) -> Number:
        return _sum(self, other, -1)

    def __rsub__(self, other: Number) -> Number:
        return _sum(other, self, -1)

    def __mul__(self, other: Number) -> Number:
        return _product(self, other)

    def __rmul__(self, other: Number) -> Number:
        return _product(other, self)

    def __floordiv__(self, other: Number) -> Number:
        return floor_divided(self, other)

    def __rfloordiv__(self, other: Number) -> Number:
        return floor_divided(other, self)

    def __mod__(self, other: Number) -> Number:
        left = self - other * floor_divided(self, other)
        if isinstance(left, Size) and isinstance(other, int) and other > 0:
            return Size(left.terms, 0, other - 1, ("FLOOR_MOD", self, other))
        return left

    def __rmod__(self, other: Number) -> Number:
        return other - self * floor_divided(other, self)

    def __neg__(self) -> Number:
        return _sum(0, self, -1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (int, Size)) and _is("zero", self - other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: Number) -> bool:
        if isinstance(other, int) and self.low is not None and self.low >= other:
            return False
        return _is("negative", self - other)

    def __gt__(self, other: Number) -> bool:
        return _is("negative", other - self)

    def __le__(self, other: Number) -> bool:
        return not self > other

    def __ge__(self, other: Number) -> bool:
        return not self < other

    def __bool__(self) -> bool:
        return not _is("zero", self)

    def __hash__(self) -> int:
        return hash(self.terms)

    def __deepcopy__(self, _memo: Any) -> Size:
        return self

    def __str__(self) -> str:
        parts = []
        for atoms, factor in self.terms:
            names = [atom.text for atom in atoms]
            names = names if names and factor in (1, -1) else [str(abs(factor)), *names]
            parts.append(("- " if factor < 0 else "+ ") + "·".join(names))
        return " ".join(parts).removeprefix("+ ")

    __repr__ = __str__

    def read_from(self, *formula: Any) -> Size:
        """The same size, read from there."""
        return Size(self.terms, self.low, self.high, formula)

    def at_least(self, low: int) -> Size:
        """The same size, which is known not to be smaller."""
        return (
            self
            if self.low is not None and self.low >= low
            else Size(self.terms, low, self.high, self.formula)
        )

    @property
    def symbol(self) -> str | None:
        """Its name, if it is nothing but a symbol."""
        if len(self.terms) != 1 or self.terms[0][1] != 1 or len(self.terms[0][0]) != 1:
            return None
        (atom,) = self.terms[0][0]
        return atom.text if atom.kind == "symbol" else None

    @property
    def is_written(self) -> bool:
        """Whether it is an expression of the symbols alone."""
        return not any(atom.kind == "unknown" for atom in self.atoms())

    def atoms(self) -> Iterator[Atom]:
        """All atoms, those within others included."""
        for atoms, _ in self.terms:
            for atom in atoms:
                yield atom
                for operand in atom.operands:
                    if isinstance(operand, Size):
                        yield from operand.atoms()

    def symbols(self) -> set[str]:
        return {atom.text for atom in self.atoms() if atom.kind == "symbol"}

    def replaced(self, values: Mapping[str, Number]) -> Number:
        """With other sizes, or numbers, in place of symbols."""
        total: Number = 0
        for atoms, factor in self.terms:
            total = total + factor * prod((_replaced(atom, values) for atom in atoms), start=1)
        return total.at_least(self.low) if isinstance(total, Size) and self.low is not None else total


def symbol(name: str, low: int = 1) -> Size:
    """A size of which nothing is known but its name."""
    return Size((((Atom("symbol", (), name, low),), 1),), low, None, ("symbol", name))


def unknown(text: str, formula: tuple[Any, ...], low: int | None = 0) -> Size:
    """A size that cannot be written, only read while running."""
    return Size((((Atom("unknown", (), text, low),), 1),), low, None, formula)


def replaced(value: Number, values: Mapping[str, Number]) -> Number:
    return value.replaced(values) if isinstance(value, Size) else value


def elements(values: Sequence[Number], dtype: Any) -> Any:
    """A vector of sizes as an array: of that type, or of objects where some are open."""
    if not is_open(values):
        return np.array(values, dtype)
    array = np.empty(len(values), object)
    array[:] = values
    return array


def evaluated(value: Number, values: Mapping[str, int]) -> int:
    """The number for these values of all symbols."""
    made = replaced(value, values)
    if isinstance(made, Size):
        raise Undecided(f"{made} is not known before running")
    return made


def is_open(values: Iterable[Any]) -> bool:
    """Whether a Size is among them."""
    return any(isinstance(value, Size) for value in values)


# Arithmetic


def _terms(value: Number) -> Terms:
    if isinstance(value, Size):
        return value.terms
    return (((), int(value)),) if value else ()


def _bounds(value: Number) -> tuple[int | None, int | None]:
    return (value.low, value.high) if isinstance(value, Size) else (int(value), int(value))


def _made(
    terms: dict[tuple[Atom, ...], int], low: int | None, high: int | None, formula: tuple[Any, ...]
) -> Number:
    """The simplest form, bounded as well by what its atoms say."""
    kept = tuple(sorted((atoms, factor) for atoms, factor in terms.items() if factor))
    if not kept or (len(kept) == 1 and not kept[0][0]):
        return kept[0][1] if kept else 0
    lows, highs = zip(*(_term_bounds(atoms, factor) for atoms, factor in kept), strict=True)
    own_low = None if None in lows else sum(lows)
    own_high = None if None in highs else sum(highs)
    known = [(own_low, own_high), (low, high), *_remainders(kept)]
    lows, highs = zip(*known, strict=True)
    low = max((n for n in lows if n is not None), default=None)
    high = min((n for n in highs if n is not None), default=None)
    return Size(kept, low, high, formula)


def _remainders(terms: Terms) -> Iterator[tuple[int, int]]:
    """Bounds of k · (a - b · ⌊a / b⌋) + c, which is k times what is left of a division, and a number."""
    for atoms, factor in terms:
        quotient = atoms[0] if len(atoms) == 1 else None
        if quotient is None or quotient.kind != "floordiv" or not isinstance(quotient.operands[1], int):
            continue
        top, bottom = quotient.operands
        if factor % bottom:
            continue
        times = -factor // bottom
        rest = {other: number for other, number in terms if other != atoms}
        for other, number in _terms(top):
            rest[other] = rest.get(other, 0) - times * number
        if not any(number for other, number in rest.items() if other):
            ends = (0, times * (bottom - 1))
            yield rest.get((), 0) + min(ends), rest.get((), 0) + max(ends)


def _term_bounds(atoms: tuple[Atom, ...], factor: int) -> tuple[int | None, int | None]:
    low: int | None = 1
    high: int | None = 1
    for atom in atoms:
        if atom.low is None or atom.low < 0 or low is None:
            return (None, None)
        low = low * atom.low
        high = None if high is None or atom.high is None else high * atom.high
    if factor < 0:
        low, high = high, low
    return (None if low is None else low * factor, None if high is None else high * factor)


def _sum(first: Number, second: Number, sign: int) -> Number:
    if not isinstance(first, (int, Size)) or not isinstance(second, (int, Size)):
        return NotImplemented
    terms = dict(_terms(first))
    for atoms, factor in _terms(second):
        terms[atoms] = terms.get(atoms, 0) + sign * factor
    (low, high), (low2, high2) = _bounds(first), _bounds(second)
    if sign < 0:
        low2, high2 = None if high2 is None else -high2, None if low2 is None else -low2
    return _made(
        terms,
        None if low is None or low2 is None else low + low2,
        None if high is None or high2 is None else high + high2,
        ("ADD" if sign > 0 else "SUB", first, second),
    )


def _product(first: Number, second: Number) -> Number:
    if not isinstance(first, (int, Size)) or not isinstance(second, (int, Size)):
        return NotImplemented
    terms: dict[tuple[Atom, ...], int] = {}
    for one, factor in _terms(first):
        for two, other in _terms(second):
            atoms = tuple(sorted(one + two))
            terms[atoms] = terms.get(atoms, 0) + factor * other
    (low, high), (low2, high2) = _bounds(first), _bounds(second)
    is_positive = low is not None and low2 is not None and min(low, low2) >= 0
    return _made(
        terms,
        low * low2 if is_positive and low is not None and low2 is not None else None,
        high * high2 if is_positive and high is not None and high2 is not None else None,
        ("MUL", first, second),
    )


def floor_divided(top: Number, bottom: Number) -> Number:
    """⌊top / bottom⌋, what divides without remainder taken out of it."""
    if not isinstance(top, Size) and not isinstance(bottom, Size):
        return top // bottom
    if isinstance(bottom, int) and bottom <= 0:
        if bottom == 0:
            raise ZeroDivisionError("a size is divided by 0")
        return floor_divided(-top, -bottom)
    whole, rest = _divided_terms(top, bottom)
    formula = ("FLOOR_DIV", top, bottom)
    made = whole + _quotient(rest, bottom)
    low, high = _bounds(top)
    by_low, by_high = _bounds(bottom)
    if isinstance(made, Size) and by_low is not None and by_low > 0:
        least = (
            None if low is None else low // by_low if low < 0 else 0 if by_high is None else low // by_high
        )
        most = None if high is None or high < 0 else high // by_low
        made = _made(dict(made.terms), least, most, formula)
    return made.read_from(*formula) if isinstance(made, Size) else made


def _divided_terms(top: Number, bottom: Number) -> tuple[Number, Number]:
    """(whole, rest) with top = whole · bottom + rest, term by term."""
    whole: Number = 0
    rest: Number = 0
    by = _terms(bottom)
    atoms_by, factor_by = by[0] if len(by) == 1 else ((), 0)
    if not factor_by and _terms(top):  # by a sum: whole multiples of it alone
        lead, factor = by[0]
        for atoms, other in _terms(top):
            left = _without(atoms, lead)
            if left is not None and other % factor == 0:
                multiple = _made({left: other // factor}, None, None, ())
                if _terms(multiple * bottom) == _terms(top):
                    return multiple, 0
        return 0, top
    for atoms, factor in _terms(top):
        left = _without(atoms, atoms_by)
        term = _made({atoms: factor}, None, None, ("MUL", factor, 1))
        if left is None:
            rest = rest + term
            continue
        share = factor // factor_by if factor % factor_by == 0 or not isinstance(bottom, Size) else 0
        if atoms and factor % factor_by:
            share = 0
        whole = whole + _made({left: share}, None, None, ())
        rest = rest + _made({atoms: factor - share * factor_by}, None, None, ())
    return whole, rest


def _without(atoms: tuple[Atom, ...], taken: tuple[Atom, ...]) -> tuple[Atom, ...] | None:
    """The atoms but for those taken out; None where these are not all there."""
    left = list(atoms)
    for atom in taken:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def _quotient(rest: Number, bottom: Number) -> Number:
    """⌊rest / bottom⌋ of which nothing can be taken out."""
    if not _terms(rest):
        return 0
    low, high = _bounds(rest)
    by_low, _ = _bounds(bottom)
    if low is not None and low >= 0 and high is not None and by_low is not None and high < by_low:
        return 0
    if not isinstance(rest, Size):
        return _atom_of_quotient(rest, bottom)
    if next(factor for atoms, factor in rest.terms if atoms) < 0 and isinstance(bottom, int):
        return -_quotient_of(-rest + (bottom - 1), bottom)
    return _quotient_of(rest, bottom)


def _quotient_of(rest: Number, bottom: Number) -> Number:
    whole, rest = _divided_terms(rest, bottom)
    if isinstance(rest, Size) and isinstance(bottom, int):
        nested = _nested(rest, bottom)
        if nested is not None:
            return whole + nested
    return whole if _terms(rest) == () else whole + _atom_of_quotient(rest, bottom)


def _nested(rest: Size, bottom: int) -> Number | None:
    """⌊(⌊a / b⌋ + c) / d⌋ = ⌊(a + b·c) / (b·d)⌋"""
    inner = [(atoms, factor) for atoms, factor in rest.terms if atoms]
    if len(inner) != 1 or inner[0][1] != 1 or len(inner[0][0]) != 1:
        return None
    (atom,) = inner[0][0]
    if atom.kind != "floordiv" or not isinstance(atom.operands[1], int):
        return None
    added = dict(rest.terms).get((), 0)
    return floor_divided(atom.operands[0] + atom.operands[1] * added, atom.operands[1] * bottom)


def _atom_of_quotient(rest: Number, bottom: Number) -> Number:
    low, high = _bounds(rest)
    by_low, _ = _bounds(bottom)
    is_positive = by_low is not None and by_low > 0
    least = None if low is None or not is_positive else low // by_low if low < 0 and by_low else 0
    if low is not None and isinstance(bottom, int) and bottom > 0:
        least = low // bottom
    most = high // bottom if high is not None and isinstance(bottom, int) and bottom > 0 else None
    atom = Atom("floordiv", (rest, bottom), f"⌊({rest})/({bottom})⌋", least, most)
    return Size((((atom,), 1),), least, most, ("FLOOR_DIV", rest, bottom))


def largest(first: Number, second: Number) -> Any:
    """The greater of two, an int or a Size; type rules, which speak of ints, need not know which."""
    return _extreme("MAXIMUM", first, second, 1)


def smallest(first: Number, second: Number) -> Any:
    """The lesser of two."""
    return _extreme("MINIMUM", first, second, -1)


def _extreme(name: str, first: Number, second: Number, sign: int) -> Number:
    low, high = _bounds(first - second)
    if low is not None and low >= 0:
        return first if sign > 0 else second
    if high is not None and high <= 0:
        return second if sign > 0 else first
    operands = tuple(sorted((first, second), key=str))
    (low, high), (low2, high2) = _bounds(first), _bounds(second)
    pick = max if sign > 0 else min
    both_low = [n for n in (low, low2) if n is not None]
    both_high = [n for n in (high, high2) if n is not None]
    is_max = sign > 0
    least = pick(both_low) if both_low and (is_max or len(both_low) == 2) else None
    most = pick(both_high) if both_high and (not is_max or len(both_high) == 2) else None
    text = f"{'max' if is_max else 'min'}({operands[0]}, {operands[1]})"
    atom = Atom(name, operands, text, least, most)
    return Size((((atom,), 1),), least, most, (name, first, second))


def _replaced(atom: Atom, values: Mapping[str, Number]) -> Number:
    if not atom.operands:
        return values.get(atom.text, Size((((atom,), 1),), atom.low, atom.high, (atom.kind, atom.text)))
    operands = [replaced(operand, values) for operand in atom.operands]
    functions: dict[str, Callable[..., Number]] = {
        "floordiv": floor_divided, "MAXIMUM": largest, "MINIMUM": smallest,
    }  # fmt: skip
    return functions[atom.kind](*operands)


# Questions


_judge: ContextVar[Judge | None] = ContextVar("judge", default=None)


@contextmanager
def judged_by(judge: Judge | None) -> Iterator[None]:
    """Within this block, what depends on symbols is asked there."""
    before = _judge.set(judge)
    try:
        yield
    finally:
        _judge.reset(before)


def _is(what: str, value: Number) -> bool:
    if not isinstance(value, Size):
        return value == 0 if what == "zero" else value < 0
    low, high = value.low, value.high
    if what == "zero" and ((low is not None and low > 0) or (high is not None and high < 0)):
        return False
    if what == "negative" and ((low is not None and low >= 0) or (high is not None and high < 0)):
        return low is None or low < 0
    judge = _judge.get()
    if judge is None:
        raise Undecided(
            f"whether {value} is {'0' if what == 'zero' else 'below 0'} depends on the sizes that are open"
        )
    return judge(what, value)
