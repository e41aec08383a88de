"""Fields of a newer schema: kept without knowing their type, by this rule.

The bytes between such a field and the next one are kept as they are. Four bytes may also be an offset; they
are taken as one when what they would point at can be verified: a table whose vtable, size and field positions
fit into the file (its own slots follow the same rule), or a string of UTF-8 that ends in a zero byte. Such
targets are copied deeply. Anything else that could point into the file beyond its own table (a vector of we
know not what) is marked: the model still loads, and saves as long as the bytes of the file can be patched,
but a rewrite refuses it rather than lose it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

DEPTH = 8
LIMIT = 4096
"""How far unknown tables are followed: tables within tables, and fields in all."""


@dataclass(frozen=True, slots=True)
class UnknownTable:
    """A table of which only the slots are known."""

    slots: tuple[tuple[int, Unknown], ...]


@dataclass(frozen=True, slots=True)
class Unknown:
    """The bytes of one slot and, when they are an offset, what they point at."""

    raw: bytes
    target: UnknownTable | str | None = None
    ambiguous: bool = False
    """May be an offset to a vector, whose items we cannot know."""


def capture(buffer: memoryview, position: int, width: int) -> Unknown:
    """The unknown field at a position, up to the next field."""
    return _Reader(buffer).field(position, width, DEPTH)


def capture_table(buffer: memoryview, position: int) -> UnknownTable | None:
    """The unknown member of a union, if it is a table at all."""
    return _Reader(buffer).table(position, DEPTH)


class _Reader:
    """Follows what may be offsets, no deeper than DEPTH and no further than LIMIT fields."""

    def __init__(self, buffer: memoryview) -> None:
        self.buffer = buffer
        self.left = LIMIT

    def field(self, position: int, width: int, depth: int) -> Unknown:
        raw = bytes(self.buffer[position : position + width])
        self.left -= 1
        if not 4 <= width < 12:  # smaller than an offset, or a struct
            return Unknown(raw)
        offset = int.from_bytes(raw[:4], "little")
        target = position + offset
        if offset < 4 or target % 4 or target + 4 > len(self.buffer) or any(raw[4:]):
            return Unknown(raw)
        found = self.table(target, depth) or self.string(target)
        return Unknown(raw, found, ambiguous=found is None and self.length_fits(target))

    def table(self, position: int, depth: int) -> UnknownTable | None:
        vtable = position - int(struct.unpack_from("<i", self.buffer, position)[0])
        if depth == 0 or self.left <= 0 or vtable < 0 or vtable % 2 or vtable + 4 > len(self.buffer):
            return None
        vtable_size, size = struct.unpack_from("<HH", self.buffer, vtable)
        if vtable_size < 4 or vtable_size % 2 or vtable + vtable_size > len(self.buffer) or size < 4:
            return None
        offsets = struct.unpack_from(f"<{vtable_size // 2 - 2}H", self.buffer, vtable + 4)
        present = sorted((offset, slot) for slot, offset in enumerate(offsets) if offset)
        fields = list(zip(present, [offset for offset, _ in present[1:]] + [size], strict=False))
        if position + size > len(self.buffer) or any(at < 4 or end <= at for (at, _), end in fields):
            return None
        if len(fields) > self.left:
            return None
        return UnknownTable(
            tuple((slot, self.field(position + at, end - at, depth - 1)) for (at, slot), end in fields)
        )

    def string(self, position: int) -> str | None:
        length = int(struct.unpack_from("<I", self.buffer, position)[0])
        end = position + 4 + length
        if end >= len(self.buffer) or self.buffer[end] != 0:
            return None
        try:
            return bytes(self.buffer[position + 4 : end]).decode("utf-8")
        except UnicodeDecodeError:
            return None

    def length_fits(self, position: int) -> bool:
        length = int(struct.unpack_from("<I", self.buffer, position)[0])
        return position + 4 + length <= len(self.buffer)
