"""Einsum by transpositions, sums and batched matrix products."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from circle_train.convert.building.builder import Builder
from circle_train.convert.building.refusal import Refusal
from circle_train.convert.building.registry import Call, handles
from circle_train.ir import Tensor
from circle_train.ir.size import is_open


@dataclass
class Term:
    """A tensor with a letter for each axis."""

    tensor: Tensor
    letters: str


@handles("Einsum")
def einsum(c: Call) -> Tensor:
    b = c.b
    operands = [c[i] for i in range(len(c.inputs))]
    inputs, output = letters_of(c.required("equation"), [t.type.rank for t in operands])
    terms = [diagonal(b, Term(t, letters)) for t, letters in zip(operands, inputs, strict=True)]
    while len(terms) > 1:
        first, second, *rest = terms
        needed = set(output).union(*(set(term.letters) for term in rest)) if rest else set(output)
        terms = [contracted(b, first, second, needed), *rest]
    (term,) = terms
    term = summed(b, term, set(output))
    return b.transpose(term.tensor, [term.letters.index(letter) for letter in output])


def letters_of(equation: str, ranks: list[int]) -> tuple[list[str], str]:
    """The equation with every ellipsis written out in letters of its own."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    parts = left.split(",")
    if len(parts) != len(ranks):
        raise Refusal(f"its equation '{equation}' has {len(parts)} terms for {len(ranks)} inputs")
    spare = [chr(code) for code in range(ord("α"), ord("α") + 16)]
    widths = [rank - len(p.replace("...", "")) for p, rank in zip(parts, ranks, strict=True)]
    most = max([w for p, w in zip(parts, widths, strict=True) if "..." in p], default=0)
    hidden = "".join(spare[:most])
    inputs = [p.replace("...", hidden[most - w :] if w else "") for p, w in zip(parts, widths, strict=True)]
    if arrow:
        return inputs, right.replace("...", hidden)
    every = "".join(inputs)
    return inputs, hidden + "".join(sorted(x for x in set(every) - set(hidden) if every.count(x) == 1))


def diagonal(b: Builder, term: Term) -> Term:
    """A letter that stands twice means the diagonal: everything else is masked, then summed away."""
    letters, tensor = term.letters, term.tensor
    for letter in dict.fromkeys(letters):
        while letters.count(letter) > 1:
            first, second = [i for i, x in enumerate(letters) if x == letter][:2]
            n = b.shape(tensor)[first]
            mask = np.eye(n).reshape([n if i in (first, second) else 1 for i in range(len(letters))])
            masked = b("MUL", tensor, b.like(tensor, mask))
            tensor = b("SUM", masked, b.integers([second]))
            letters = letters[:second] + letters[second + 1 :]
    return Term(tensor, letters)


def summed(b: Builder, term: Term, needed: set[str]) -> Term:
    """Letters that nobody needs are summed over."""
    axes = [i for i, letter in enumerate(term.letters) if letter not in needed]
    if not axes:
        return term
    return Term(b("SUM", term.tensor, b.integers(axes)), "".join(x for x in term.letters if x in needed))


def contracted(b: Builder, one: Term, two: Term, needed: set[str]) -> Term:
    """The product of two terms, as one batched matrix product."""
    shared = set(one.letters) & set(two.letters)
    one, two = summed(b, one, needed | shared), summed(b, two, needed | shared)
    batch = [x for x in one.letters if x in shared and x in needed]
    inner = [x for x in one.letters if x in shared and x not in needed]
    rows = [x for x in one.letters if x not in shared]
    columns = [x for x in two.letters if x not in shared]
    sizes = dict(zip(one.letters, b.shape(one.tensor), strict=True))
    for letter, size in zip(two.letters, b.shape(two.tensor), strict=True):
        sizes[letter] = size if sizes.get(letter, 1) == 1 else sizes[letter]
    if any(b.shape(t.tensor)[t.letters.index(x)] != sizes[x] for t in (one, two) for x in shared):
        raise Refusal("it broadcasts an axis of size 1 against a larger one")
    if not inner:
        return _outer(b, one, two, batch, rows, columns)

    def arranged(term: Term, order: list[str], groups: list[list[str]]) -> Tensor:
        turned = b.transpose(term.tensor, [term.letters.index(x) for x in order])
        dims: list[Any] = [sizes[x] for x in batch] + [prod((sizes[x] for x in g), start=1) for g in groups]
        return b.reshape(turned, dims) if not is_open(dims) or len(groups) else turned

    left = arranged(one, [*batch, *rows, *inner], [rows, inner])
    right = arranged(two, [*batch, *inner, *columns], [inner, columns])
    made = b("BATCH_MATMUL", left, right)
    letters = [*batch, *rows, *columns]
    return Term(b.reshape(made, [sizes[x] for x in letters]), "".join(letters))


def _outer(b: Builder, one: Term, two: Term, batch: list[str], rows: list[str], columns: list[str]) -> Term:
    """No letter is summed over: a product with broadcasting."""
    first = b.transpose(one.tensor, [one.letters.index(x) for x in [*batch, *rows]])
    second = b.transpose(two.tensor, [two.letters.index(x) for x in [*batch, *columns]])
    if columns:
        first = b.reshape(first, (*b.shape(first), *(1,) * len(columns)))
    dims = b.shape(second)
    second = b.reshape(second, (*dims[: len(batch)], *(1,) * len(rows), *dims[len(batch) :]))
    return Term(b("MUL", first, second), "".join([*batch, *rows, *columns]))
