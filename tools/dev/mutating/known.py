"""Which tests could notice a mistake, as the last `--learn` found (see mutants.py)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from mutating.reach import SPAWNS

LOTS = ((5, 15.0), (1000, 60.0), (1000, 1e9))
"""From how many files tests are taken at a time, and for how many seconds: whoever is noticed soon costs little."""
PER_FILE = 3
"""Tests of each file that are tried before others of the same file."""


@dataclass
class Part:
    """Of what was learned, one file."""

    tests: list[str]
    numbers: dict[str, int]
    """Of the stretches, columns of the table."""
    table: np.ndarray
    """A row of bits for each test."""

    def reaching(self, stretch: str) -> Iterator[str]:
        if (number := self.numbers.get(stretch)) is None or number >= 8 * self.table.shape[1]:
            return
        bits = self.table[:, number // 8] >> (7 - number % 8) & 1
        yield from (self.tests[row] for row in np.flatnonzero(bits))


class Reach:
    """Which tests reach which stretch."""

    def __init__(self, folder: Path) -> None:
        self.seconds: dict[str, float] = {}
        self.parts: list[Part] = []
        self.early: set[str] = set()
        """Stretches that were reached by who imported them."""
        self._sizes: dict[str, int] = {}
        ones = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1)
        for file in sorted(folder.rglob("*.npz")):
            stored = np.load(file)
            tests, stretches = stored["tests"].tolist(), stored["functions"].tolist()
            part = Part(tests, {name: i for i, name in enumerate(stretches)}, stored["table"])
            self.parts.append(part)
            self.early.update(stored["early"].tolist())
            self.seconds.update(zip(tests, stored["seconds"].tolist(), strict=True))
            self._sizes.update(zip(tests, ones[part.table].sum(axis=1).tolist(), strict=True))

    def names(self, path: str, stretch: str | None) -> list[str]:
        """Of a stretch the name; where it is new, of its function; of what stands outside functions all of the file."""
        for name in (stretch, stretch and stretch.partition(": ")[0]):
            if name and any(name in part.numbers for part in self.parts):
                return [name]
        known = dict.fromkeys(name for part in self.parts for name in part.numbers)
        return [name for name in known if name.startswith(f"{path}:")]

    def reaching(self, names: Iterable[str]) -> list[str]:
        return list(
            dict.fromkeys(test for part in self.parts for name in names for test in part.reaching(name))
        )

    def tests_of(self, names: Iterable[str], near: tuple[str, ...]) -> list[str]:
        """Those of its own room first, and those that reach little else; a few of each file before the others of it."""
        found = sorted(self.reaching(names), key=lambda test: (self._sizes[test], self.seconds[test]))
        taken: dict[str, int] = {}
        ranks: dict[str, tuple[bool, bool]] = {}
        for test in found:
            file = file_of(test)
            taken[file] = taken.get(file, 0) + 1
            ranks[test] = (not file.startswith(near), taken[file] > PER_FILE)
        return sorted(found, key=ranks.__getitem__)

    def lots(
        self, names: Iterable[str], near: tuple[str, ...], most: float = 1e9
    ) -> Iterator[tuple[list[str], float]]:
        """Tests to run one lot after the other, and the seconds that each lot took; of all that reach them at most so many."""
        waiting, ends = [], 0.0
        for test in self.tests_of(names, near):
            ends += self.seconds[test]
            waiting += [test] if ends <= most else []
        for most_files, most_seconds in LOTS:
            files = list(dict.fromkeys(file_of(test) for test in waiting))[:most_files]
            lot, seconds = [], 0.0
            for test in waiting:
                if file_of(test) in files and seconds < most_seconds:
                    lot.append(test)
                    seconds += self.seconds[test]
            if lot:
                yield lot, seconds
            taken = set(lot)
            waiting = [test for test in waiting if test not in taken]

    def indifferent(self, names: Iterable[str]) -> list[str]:
        """Known tests that need not run behind the lots: all but those that start processes, which might reach anything."""
        ran, spawn = set(self.reaching(names)), set(self.reaching([SPAWNS]))
        return [test for test in self.seconds if test in ran or test not in spawn]


def file_of(test: str) -> str:
    return test.partition("::")[0]
