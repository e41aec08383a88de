"""What a size that is no number yet is written as: a polynomial with integer coefficients of atoms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from circle_train.ir.sizes.bounds import Bounds, plus, scaled, times, within

Product = tuple["Atom", ...]
Terms = tuple[tuple[Product, int], ...]


class Atom:
    """What sums and products are made of: a symbol, or an operation on expressions."""

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


class Expression:
    """Σ coefficient · Π atoms; `low` and `high` bound it for all values of the symbols, None being no bound."""

    __slots__ = ("formula", "high", "low", "terms")

    def __init__(self, terms: Terms, low: int | None, high: int | None, formula: tuple[Any, ...]) -> None:
        self.terms, self.low, self.high = terms, low, high
        self.formula = formula
        """How it was computed: ("size", tensor, axis), ("element", tensor, index), ("symbol", name), or an operator's name and
        its operands."""

    def __str__(self) -> str:
        parts = []
        for atoms, factor in self.terms:
            names = [atom.text for atom in atoms]
            names = names if names and factor in (1, -1) else [str(abs(factor)), *names]
            parts.append(("- " if factor < 0 else "+ ") + "·".join(names))
        return " ".join(parts).removeprefix("+ ")

    __repr__ = __str__

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
                    if isinstance(operand, Expression):
                        yield from operand.atoms()

    def symbols(self) -> set[str]:
        return {atom.text for atom in self.atoms() if atom.kind == "symbol"}


def terms_of(value: int | Expression) -> Terms:
    if isinstance(value, Expression):
        return value.terms
    return (((), int(value)),) if value else ()


def bounds_of(value: int | Expression) -> Bounds:
    return (value.low, value.high) if isinstance(value, Expression) else (int(value), int(value))


def added(first: Terms, second: Terms, factor: int) -> dict[Product, int]:
    """first + factor · second."""
    terms = dict(first)
    for atoms, number in second:
        terms[atoms] = terms.get(atoms, 0) + factor * number
    return terms


def multiplied(first: Terms, second: Terms) -> dict[Product, int]:
    terms: dict[Product, int] = {}
    for one, factor in first:
        for two, other in second:
            atoms = tuple(sorted(one + two))
            terms[atoms] = terms.get(atoms, 0) + factor * other
    return terms


def without(atoms: Product, taken: Product) -> Product | None:
    """The atoms but for those taken out; None where these are not all there."""
    left = list(atoms)
    for atom in taken:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def simplest(terms: Mapping[Product, int]) -> Terms:
    """In the order that equal sums have in common, nothing that is 0 in it."""
    return tuple(sorted((atoms, factor) for atoms, factor in terms.items() if factor))


def bounds_within(terms: Terms) -> Bounds:
    """What its atoms say of a sum."""
    own: Bounds = (0, 0)
    for atoms, factor in terms:
        found: Bounds = (1, 1)
        for atom in atoms:
            found = times(found, (atom.low, atom.high))
        own = plus(own, scaled(found, factor))
    return within([own, *_remainders(terms)])


def _remainders(terms: Terms) -> Iterator[Bounds]:
    """Bounds of k · (a - b · ⌊a / b⌋) + c, which is k times what is left of a division, and a number."""
    for atoms, factor in terms:
        quotient = atoms[0] if len(atoms) == 1 else None
        if quotient is None or quotient.kind != "floordiv" or not isinstance(quotient.operands[1], int):
            continue
        top, bottom = quotient.operands
        if factor % bottom:
            continue
        count = -factor // bottom
        others = tuple((other, number) for other, number in terms if other != atoms)
        rest = added(others, terms_of(top), -count)
        if not any(number for other, number in rest.items() if other):
            ends = (0, count * (bottom - 1))
            yield rest.get((), 0) + min(ends), rest.get((), 0) + max(ends)
