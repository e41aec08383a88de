"""The paths of many files."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from circle_train.ir.tensor_type import Array


class Listing(Sequence[Path]):
    """Files below one folder, their names in one block of bytes: as objects, a hundred thousand paths take 50 MB, so 4."""

    def __init__(self, folder: Path, names: Iterable[str]) -> None:
        block, ends = bytearray(), array("q", [0])
        for name in names:
            block += os.fsencode(name)
            ends.append(len(block))
        places = np.array(ends)
        self.folder, self.block = folder, bytes(block)
        self.starts, self.ends = places[:-1], places[1:]

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return self.take(np.arange(len(self))[place])
        return self.folder / os.fsdecode(self.block[self.starts[place] : self.ends[place]])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def take(self, places: Array) -> Listing:
        """Some of them, in this order; the names are shared."""
        some = object.__new__(Listing)
        some.folder, some.block = self.folder, self.block
        some.starts, some.ends = self.starts[places], self.ends[places]
        return some


def chosen(items: Sequence[Any], places: Array) -> Sequence[Any]:
    """Some items, in this order."""
    return items.take(places) if isinstance(items, Listing) else [items[place] for place in places]
