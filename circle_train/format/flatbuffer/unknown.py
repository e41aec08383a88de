"""Fields of a newer schema: kept without knowing their type, by this rule.

The bytes from such a field to the next one are kept as they are. Four bytes may also be an offset. A true one
leads to bytes that nothing known occupies, so

* one that leads out of the file, or into a known table, string or vector, is a number;
* one that leads to free bytes which form a table (vtable, size and field positions fit) or a vector of
  scalars or text (its length fits, its items are no offsets) is an offset; what it leads to is copied deeply;
* anything else (bytes that two fields lead into, the very beginning of something known, an empty vector, a
  vector of offsets) is marked: the model loads, and saves as long as the bytes of the file can be patched,
  but writing anew refuses rather than lose it.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate, pairwise

from circle_train.record import record

DEPTH = 8
LIMIT = 10_000
"""How far unknown tables are followed: tables within tables, and their fields in all."""
LARGEST_ITEM = 8
"""Bytes of the largest scalar, for vectors whose items we do not know."""


@record
class UnknownTable:
    """A table of which only the slots are known."""

    slots: tuple[tuple[int, Unknown], ...]


@record
class Unknown:
    """The bytes of one slot and, when they are an offset, what they lead to."""

    raw: bytes
    target: UnknownTable | bytes | None = None
    """A table, or a vector with its length in front."""
    ambiguous: bool = False


class Unknowns:
    """Tells offsets from numbers by what the known parts of a file occupy."""

    def __init__(self, buffer: memoryview, occupied: Iterable[tuple[int, int]]) -> None:
        self.buffer = buffer
        intervals = sorted(occupied)
        self.starts = [start for start, _ in intervals]
        self.ends = list(accumulate((end for _, end in intervals), max))
        self.left = LIMIT
        self.taken: list[tuple[int, int]] = []
        """Free bytes that were taken for what an unknown field leads to."""

    def is_consistent(self) -> bool:
        """Whether no two unknown fields lead into the same bytes, as a number by mere chance would."""
        return all(end <= start for (_, end), (start, _) in pairwise(sorted(self.taken)))

    def field(self, position: int, width: int, depth: int = DEPTH) -> Unknown:
        """The field at a position, up to the next field."""
        raw = bytes(self.buffer[position : position + width])
        self.left -= depth < DEPTH
        target = position + int.from_bytes(raw[:4], "little")
        if not 4 <= width < 12 or any(raw[4:]) or target < position + 4 or target + 4 > len(self.buffer):
            return Unknown(raw)  # smaller than an offset, a struct, or leading nowhere
        before = bisect_right(self.starts, target) - 1
        if before >= 0 and self.starts[before] == target:
            return Unknown(raw, ambiguous=True)
        if before >= 0 and target < self.ends[before]:
            return Unknown(raw)
        if depth == 0 or self.left <= 0:
            return Unknown(raw, ambiguous=True)
        table = self.table(target, depth - 1)
        if table is not None:
            size = int(struct.unpack_from("<H", self.buffer, target - self.offset(target) + 2)[0])
            self.taken.append((target, target + size))
            return Unknown(raw, table)
        limit = self.starts[before + 1] if before + 1 < len(self.starts) else len(self.buffer)
        return self.vector(raw, target, limit)

    def table(self, position: int, depth: int = DEPTH) -> UnknownTable | None:
        """The table at a position, if there is one."""
        layout = self.layout(position)
        if layout is None or len(layout) > self.left:
            return None
        return UnknownTable(
            tuple((slot, self.field(position + at, end - at, depth)) for slot, at, end in layout)
        )

    def layout(self, position: int) -> list[tuple[int, int, int]] | None:
        """Slot, beginning and end of each field of what may be a table."""
        vtable = position - self.offset(position)
        if position % 4 or vtable % 2 or vtable < 0 or vtable + 4 > len(self.buffer):
            return None
        vtable_size, size = struct.unpack_from("<HH", self.buffer, vtable)
        if vtable_size < 4 or vtable_size % 2 or vtable + vtable_size > len(self.buffer) or size < 4:
            return None
        offsets = struct.unpack_from(f"<{vtable_size // 2 - 2}H", self.buffer, vtable + 4)
        present = sorted((offset, slot) for slot, offset in enumerate(offsets) if offset)
        ends = [offset for offset, _ in present[1:]] + [size]
        fields = [(slot, at, end) for (at, slot), end in zip(present, ends, strict=False)]
        if position + size > len(self.buffer) or any(at < 4 or end <= at for _, at, end in fields):
            return None
        return fields

    def vector(self, raw: bytes, position: int, limit: int) -> Unknown:
        """A vector that ends before the limit, with as many bytes as its items can have."""
        count = int(struct.unpack_from("<I", self.buffer, position)[0])
        if position + 4 + count > limit:
            return Unknown(raw)
        if count == 0 or self.holds_offsets(position + 4, count, limit):
            return Unknown(raw, ambiguous=True)
        self.taken.append((position, position + 4 + count))
        return Unknown(raw, bytes(self.buffer[position : min(limit, position + 4 + LARGEST_ITEM * count)]))

    def offset(self, position: int) -> int:
        """The signed offset from a table back to its vtable."""
        return int(struct.unpack_from("<i", self.buffer, position)[0])

    def holds_offsets(self, position: int, count: int, limit: int) -> bool:
        """Whether every item could lead to a table or a string."""
        if position + 4 * count > limit:
            return False
        return all(self.leads_somewhere(position + 4 * index) for index in range(count))

    def leads_somewhere(self, position: int) -> bool:
        self.left -= 1
        if self.left <= 0:
            return True
        target = position + int(struct.unpack_from("<I", self.buffer, position)[0])
        if target < position + 4 or target % 4 or target + 4 > len(self.buffer):
            return False
        if self.layout(target) is not None:
            return True
        end = target + 4 + int(struct.unpack_from("<I", self.buffer, target)[0])
        return end < len(self.buffer) and self.buffer[end] == 0
