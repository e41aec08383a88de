"""Sizes that are not numbers yet: expressions of the symbols that stand for open sizes.

A `Size` is a polynomial with integer coefficients of atoms: symbols, floor divisions, greatest and least values, and what
nothing is known of but where it can be read while running. Equal expressions are equal Sizes; arithmetic that yields a
number yields an int. A Size is no int on purpose: where a number is needed, Python refuses it instead of taking a guess.

Comparisons answer what holds for all values of the symbols. What depends on them is asked of the `Judge` in charge.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any, Union

import numpy as np

from circle_train.ir.sizes.bounds import ANY, Bounds, divided, greater, lesser, plus, scaled, times, within
from circle_train.ir.sizes.expression import (
    Atom,
    Expression,
    Product,
    added,
    bounds_of,
    bounds_within,
    multiplied,
    simplest,
    terms_of,
    without,
)
from circle_train.ir.sizes.judge import Undecided, holds

Number = Union[int, "Size"]


class Size(Expression):
    """An expression that takes part in arithmetic as a number does."""

    __slots__ = ()

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
        return isinstance(other, (int, Size)) and holds("zero", self - other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: Number) -> bool:
        if isinstance(other, int) and self.low is not None and self.low >= other:
            return False
        return holds("negative", self - other)

    def __gt__(self, other: Number) -> bool:
        return holds("negative", other - self)

    def __le__(self, other: Number) -> bool:
        return not self > other

    def __ge__(self, other: Number) -> bool:
        return not self < other

    def __bool__(self) -> bool:
        return not holds("zero", self)

    def __hash__(self) -> int:
        return hash(self.terms)

    def __deepcopy__(self, _memo: Any) -> Size:
        return self

    def read_from(self, *formula: Any) -> Size:
        """The same size, read from there."""
        return Size(self.terms, self.low, self.high, formula)

    def at_least(self, low: int) -> Size:
        """The same size, which is known not to be smaller."""
        if self.low is not None and self.low >= low:
            return self
        return Size(self.terms, low, self.high, self.formula)

    def replaced(self, values: Mapping[str, Number]) -> Number:
        """With other sizes, or numbers, in place of symbols."""
        total: Number = 0
        for atoms, factor in self.terms:
            total = total + factor * prod((_replaced(atom, values) for atom in atoms), start=1)
        return total.at_least(self.low) if isinstance(total, Size) and self.low is not None else total


def symbol(name: str) -> Size:
    """A size of which nothing is known but its name."""
    return Size((((Atom("symbol", (), name, 1),), 1),), 1, None, ("symbol", name))


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


def _made(terms: Mapping[Product, int], bounds: Bounds, formula: tuple[Any, ...]) -> Number:
    """The simplest form, bounded as well by what its atoms say."""
    kept = simplest(terms)
    if not kept or (len(kept) == 1 and not kept[0][0]):
        return kept[0][1] if kept else 0
    return Size(kept, *within([bounds_within(kept), bounds]), formula)


def _sum(first: Number, second: Number, sign: int) -> Number:
    if not isinstance(first, (int, Size)) or not isinstance(second, (int, Size)):
        return NotImplemented
    terms = added(terms_of(first), terms_of(second), sign)
    bounds = plus(bounds_of(first), scaled(bounds_of(second), sign))
    return _made(terms, bounds, ("ADD" if sign > 0 else "SUB", first, second))


def _product(first: Number, second: Number) -> Number:
    if not isinstance(first, (int, Size)) or not isinstance(second, (int, Size)):
        return NotImplemented
    terms = multiplied(terms_of(first), terms_of(second))
    return _made(terms, times(bounds_of(first), bounds_of(second)), ("MUL", first, second))


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
    if not isinstance(made, Size):
        return made
    made = _made(dict(made.terms), divided(bounds_of(top), bounds_of(bottom)), formula)
    return made.read_from(*formula) if isinstance(made, Size) else made


def _divided_terms(top: Number, bottom: Number) -> tuple[Number, Number]:
    """(whole, rest) with top = whole · bottom + rest, term by term."""
    whole: Number = 0
    rest: Number = 0
    by = terms_of(bottom)
    atoms_by, factor_by = by[0] if len(by) == 1 else ((), 0)
    if not factor_by and terms_of(top):  # by a sum: whole multiples of it alone
        lead, factor = by[0]
        for atoms, other in terms_of(top):
            left = without(atoms, lead)
            if left is not None and other % factor == 0:
                multiple = _made({left: other // factor}, ANY, ())
                if terms_of(multiple * bottom) == terms_of(top):
                    return multiple, 0
        return 0, top
    for atoms, factor in terms_of(top):
        left = without(atoms, atoms_by)
        term = _made({atoms: factor}, ANY, ("MUL", factor, 1))
        if left is None:
            rest = rest + term
            continue
        is_part = factor % factor_by != 0 and (bool(atoms) or isinstance(bottom, Size))
        share = 0 if is_part else factor // factor_by
        whole = whole + _made({left: share}, ANY, ())
        rest = rest + _made({atoms: factor - share * factor_by}, ANY, ())
    return whole, rest


def _quotient(rest: Number, bottom: Number) -> Number:
    """⌊rest / bottom⌋ of which nothing can be taken out."""
    if not terms_of(rest):
        return 0
    low, high = bounds_of(rest)
    by_low, _ = bounds_of(bottom)
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
    return whole if terms_of(rest) == () else whole + _atom_of_quotient(rest, bottom)


def _nested(rest: Size, bottom: int) -> Number | None:
    """⌊(⌊a / b⌋ + c) / d⌋ = ⌊(a + b·c) / (b·d)⌋"""
    inner = [(atoms, factor) for atoms, factor in rest.terms if atoms]
    if len(inner) != 1 or inner[0][1] != 1 or len(inner[0][0]) != 1:
        return None
    (atom,) = inner[0][0]
    if atom.kind != "floordiv" or not isinstance(atom.operands[1], int):
        return None
    top, by = atom.operands
    return floor_divided(top + by * dict(rest.terms).get((), 0), by * bottom)


def _atom_of_quotient(rest: Number, bottom: Number) -> Number:
    least, most = divided(bounds_of(rest), bounds_of(bottom))
    atom = Atom("floordiv", (rest, bottom), f"⌊({rest})/({bottom})⌋", least, most)
    return Size((((atom,), 1),), least, most, ("FLOOR_DIV", rest, bottom))


def largest(first: Number, second: Number) -> Any:
    """The greater of two, an int or a Size; type rules, which speak of ints, need not know which."""
    return _extreme("MAXIMUM", first, second, True)


def smallest(first: Number, second: Number) -> Any:
    """The lesser of two."""
    return _extreme("MINIMUM", first, second, False)


def _extreme(name: str, first: Number, second: Number, is_max: bool) -> Number:
    low, high = bounds_of(first - second)
    if low is not None and low >= 0:
        return first if is_max else second
    if high is not None and high <= 0:
        return second if is_max else first
    operands = tuple(sorted((first, second), key=str))
    least, most = (greater if is_max else lesser)(bounds_of(first), bounds_of(second))
    text = f"{'max' if is_max else 'min'}({operands[0]}, {operands[1]})"
    atom = Atom(name, operands, text, least, most)
    return Size((((atom,), 1),), least, most, (name, first, second))


def _replaced(atom: Atom, values: Mapping[str, Number]) -> Number:
    if not atom.operands:
        return values.get(atom.text, Size((((atom,), 1),), atom.low, atom.high, (atom.kind, atom.text)))
    operands = [replaced(operand, values) for operand in atom.operands]
    functions: Mapping[str, Any] = {"floordiv": floor_divided, "MAXIMUM": largest, "MINIMUM": smallest}
    made: Number = functions[atom.kind](*operands)
    return made
