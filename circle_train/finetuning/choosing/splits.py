"""Repeated splits of the samples: each trains most of them and validates the others."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from circle_train.ir.tensor_type import Array
from circle_train.record import record

FOLDS = 4


@record
class Split:
    """Places of samples."""

    train: Array
    held_out: Array


def splits(
    count: int, labels: Array | None, groups: Array | None, sizes: Sequence[int], seed: int
) -> list[Split]:
    """One of at most so many samples for each size; those of one size in rounds of FOLDS in which each is held out once."""
    found: list[Split] = []
    for most, run in groupby(sizes):
        found += _of_size(count, labels, groups, most, len(list(run)), (seed, 2, len(found)))
    return found


def _of_size(
    count: int, labels: Array | None, groups: Array | None, most: int, repeats: int, seed: tuple[int, int, int]
) -> list[Split]:  # fmt: skip
    found: list[Split] = []
    while len(found) < repeats:
        random = np.random.default_rng([*seed[:2], seed[2] + len(found)])
        order = random.permutation(count)
        order = _some(order, labels, most)
        fold = _folds(order, labels, groups, random)
        numbers = np.unique(fold)
        if len(numbers) < 2:
            groups = None
            continue
        for number in numbers:
            train, held_out = order[fold != number], order[fold == number]
            found.append(Split(np.sort(train)[:], np.sort(held_out)))
    return found[:repeats]


def _some(order: Array, labels: Array | None, most: int) -> Array:
    """As many of each class as there are, in proportion."""
    if len(order) <= most:
        return order
    if labels is None:
        return order[:most]
    return np.sort(_interleaved(order, labels)[:most])


def _interleaved(order: Array, labels: Array) -> Array:
    """Such that every beginning holds each class in proportion."""
    ranks = np.empty(len(order))
    for label in np.unique(labels):
        mine = np.flatnonzero(labels[order] == label)
        ranks[mine] = (np.arange(len(mine)) + 0.5) / len(mine)
    return order[np.argsort(ranks, kind="stable")]


def _folds(order: Array, labels: Array | None, groups: Array | None, random: np.random.Generator) -> Array:
    """For each place of the order the fold that it is held out in."""
    if groups is not None:
        names, members = np.unique(groups[order], return_inverse=True)
        numbers = random.permutation(len(names)) % min(FOLDS, max(len(names), 1))
        found: Array = numbers[members.reshape(-1)]
        return found
    place = np.empty(len(order), int)
    if labels is None:
        place[:] = np.arange(len(order))
    else:
        by_class = np.argsort(labels[order], kind="stable")
        place[by_class] = np.arange(len(order))
    return place % FOLDS
