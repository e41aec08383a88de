"""Flatbuffers to plain dicts, by the facts of schema.py: every offset is checked before it is followed.

A table becomes a dict of the fields that are present: scalars as numbers, strings as str (bytes that are no
UTF-8 as surrogates), vectors of scalars as read-only numpy views of the file, vectors of tables as lists, the
member of a union as the dict of its table (its tag is a field of its own). Slots that the schema does not
name are kept under their number as `Unknown` (see unknown.py).

The tables of a schema nest to a fixed depth, so cycles in a file cannot recurse; a table that is pointed at
twice is decoded once; and the bytes walked are counted against the file's size, so that overlapping lies cost
no memory.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from circle_train.errors import ModelError
from circle_train.format.flatbuffer.schema import TABLES, UNIONS, FieldFact
from circle_train.format.flatbuffer.unknown import Unknowns
from circle_train.record import mutable

Table = dict[str | int, Any]
Tables = dict[str, tuple["FieldFact | None", ...]]

CODES = {
    "bool": "?", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I",
    "int64": "q", "uint64": "Q", "float32": "f", "float64": "d",
}  # fmt: skip
MOST_UNKNOWN = 100_000
"""Fields of a newer schema in one file."""
SHARED = 32
"""Bytes that one more reference to a table counts as: readers make an object of each."""
DTYPES = {name: np.dtype(name).newbyteorder("<") for name in CODES}
_INT32, _UINT32 = struct.Struct("<i"), struct.Struct("<I")


class Damage(Exception):
    """What is wrong and where; the place grows while the error climbs out of the tables."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.place: list[str] = []

    def as_error(self, source: str, root: str) -> ModelError:
        """What the caller of the reader gets to see."""
        remedy = "" if "file is damaged" in self.what else "; the file is damaged, get an intact copy"
        return ModelError(f"{source}: {root}{''.join(reversed(self.place))}: {self.what}{remedy}")


@mutable
class _Reference:
    """A field that holds an offset, and the reader of what it points at."""

    name: str
    slot: int
    """Position of the offset within the table."""
    read: Callable[[int, Table], Any]


@mutable
class _Layout:
    """What one vtable says of one table, checked once."""

    size: int
    names: tuple[str, ...]
    values: struct.Struct
    references: list[_Reference]
    unknown: list[tuple[int, int, int]]
    """Slot, position within the table, bytes up to the next field."""


def decode(
    data: Any, root: str, identifier: bytes, tables: Tables | None = None, source: str = "file"
) -> Table:
    """The root table of a flatbuffer; ModelError names the table and the index of what is damaged."""
    decoder = Decoder(data, TABLES if tables is None else tables)
    try:
        if decoder.size < 8:
            raise Damage(f"{decoder.size} bytes are too few for a flatbuffer; the file is empty or cut off")
        found = bytes(decoder.buffer[4:8])
        if found != identifier:
            raise Damage(f"identifier is {found!r}, expected {identifier!r}")
        table = decoder.table(root, decoder.follow(0))
        decoder.settle_unknown()
        return table
    except Damage as damage:
        raise damage.as_error(source, root) from None


class Decoder:
    """Reads tables out of one flatbuffer."""

    def __init__(self, data: Any, tables: Tables) -> None:
        self.buffer = memoryview(data)
        self.size = len(self.buffer)
        self.tables = tables
        self.budget = 4 * self.size + 1024
        self.layouts: dict[tuple[str, int], _Layout] = {}
        self.decoded: dict[tuple[str, int], Table] = {}
        self.strings: dict[int, str] = {}
        self.occupied: list[tuple[int, int]] = [(0, 8)]
        """Where what we know lies, from and to."""
        self.unknown: list[tuple[Table, str | int, int, int]] = []
        """Table, key, position and width of what we do not know; no width: a union's table."""

    def follow(self, position: int) -> int:
        """The target of the offset at a position."""
        target: int = position + _UINT32.unpack_from(self.buffer, position)[0]
        if target + 4 > self.size:
            raise Damage(f"offset at byte {position} points to byte {target} of {self.size}")
        return target

    def table(self, kind: str, position: int) -> Table:
        """The table at a position, as a dict of the fields that are present."""
        key = (kind, position)
        if key in self.decoded:
            self.spend(position, SHARED)
            return self.decoded[key]
        vtable = position - _INT32.unpack_from(self.buffer, position)[0]
        layout = self.layouts.get((kind, vtable)) or self.layout(kind, vtable)
        if position + layout.size > self.size:
            raise Damage(f"{kind} at byte {position} takes {layout.size} bytes, the file ends at {self.size}")
        self.spend(position, layout.size)
        result: Table = dict(zip(layout.names, layout.values.unpack_from(self.buffer, position), strict=True))
        for reference in layout.references:
            try:
                result[reference.name] = reference.read(self.follow(position + reference.slot), result)
            except Damage as damage:
                damage.place.append(f".{reference.name}")
                raise
        for slot, offset, width in layout.unknown:
            self.postpone(result, slot, position + offset, width)
        self.decoded[key] = result
        return result

    def layout(self, kind: str, vtable: int) -> _Layout:
        """Check a vtable against the file and the schema."""
        if vtable < 0 or vtable + 4 > self.size:
            raise Damage(f"vtable of a {kind} would lie at byte {vtable} of {self.size}")
        vtable_size, size = struct.unpack_from("<HH", self.buffer, vtable)
        if vtable_size < 4 or vtable_size % 2 or vtable + vtable_size > self.size or size < 4:
            raise Damage(
                f"vtable of a {kind} at byte {vtable} claims {vtable_size} bytes for a table of {size}"
            )
        self.spend(vtable, vtable_size)
        offsets = struct.unpack_from(f"<{vtable_size // 2 - 2}H", self.buffer, vtable + 4)
        present = sorted((offset, slot) for slot, offset in enumerate(offsets) if offset)
        layout = self.layouts[kind, vtable] = self.arrange(kind, present, size)
        return layout

    def arrange(self, kind: str, present: list[tuple[int, int]], size: int) -> _Layout:
        """Turn (offset, slot) pairs into one struct for the whole table."""
        facts = self.tables[kind]
        names, code, end = [], "<", 0
        references, unknown = [], []
        ends = [offset for offset, _ in present[1:]] + [size]
        for (offset, slot), following in zip(present, ends, strict=False):
            fact = facts[slot] if slot < len(facts) else None
            width = following - offset
            if fact is None:
                if offset < 4 or width < 1:
                    raise Damage(f"{kind} has its slot {slot} at byte {offset} of {size}, upon another one")
                unknown.append((slot, offset, width))
                continue
            name, type_ = fact[:2]
            needed = struct.calcsize(f"<{CODES[type_]}") if type_ in CODES else 4
            if offset < max(end, 4) or needed > width:
                raise Damage(f"{kind}.{name} lies at byte {offset} of {size}, upon another field or outside")
            if type_ in CODES:
                names.append(name)
                code += f"{offset - end}x{CODES[type_]}"
                end = offset + needed
            else:
                references.append(_Reference(name, offset, self.reader(fact)))
        references.sort(key=lambda reference: reference.slot)
        return _Layout(size, tuple(names), struct.Struct(code), references, unknown)

    def reader(self, fact: FieldFact) -> Callable[[int, Table], Any]:
        """What reads the target of an offset field."""
        name, type_, _, kind = fact
        inner = type_.strip("[]")
        if type_ == "union":
            return lambda position, owner: self.union(name, kind, owner, position)
        if type_ == "string":
            return lambda position, _: self.string(position)
        if not type_.startswith("["):
            return lambda position, _: self.table(inner, position)
        if inner in DTYPES:
            dtype = DTYPES[inner]
            return lambda position, _: self.array(dtype, position)
        if inner == "string":
            return lambda position, _: self.each(position, self.string)
        return lambda position, _: self.each(position, lambda target: self.table(inner, target))

    def union(self, name: str, kind: str, owner: Table, position: int) -> Any:
        """The member that the tag names; a newer schema's member is kept as it lies."""
        tag = owner.get(f"{name}_type", 0)
        member = UNIONS[kind].get(tag)
        if member is not None:
            return self.table(member, position)
        if tag == 0:
            raise Damage(f"{kind} has a value but no type")
        self.postpone(owner, name, position, 0)
        return None

    def postpone(self, owner: Table, key: str | int, position: int, width: int) -> None:
        """Something unknown, to be told from numbers when everything known has been seen."""
        if len(self.unknown) == MOST_UNKNOWN:
            raise Damage(f"more than {MOST_UNKNOWN} fields are unknown")
        self.unknown.append((owner, key, position, width))

    def settle_unknown(self) -> None:
        """Put in what was postponed."""
        unknowns = Unknowns(self.buffer, self.occupied) if self.unknown else None
        for owner, key, position, width in self.unknown:
            assert unknowns is not None
            owner[key] = unknowns.field(position, width) if width else unknowns.table(position)
            if owner[key] is None:
                raise Damage(f"{key} of unknown type {owner[f'{key}_type']} at byte {position} are no table")
        if unknowns is not None and not unknowns.is_consistent():
            for owner, key, _, width in self.unknown:
                if width and owner[key].target is not None:
                    owner[key] = replace(owner[key], ambiguous=True)

    def string(self, position: int) -> str:
        """UTF-8 text; other bytes become surrogates and are written back as they were."""
        if position not in self.strings:
            length = self.length(position, 1)
            self.spend(position, length + 5)
            text = bytes(self.buffer[position + 4 : position + 4 + length])
            self.strings[position] = text.decode("utf-8", "surrogateescape")
        return self.strings[position]

    def array(self, dtype: np.dtype[Any], position: int) -> Any:
        """A view of a vector of scalars."""
        length = self.length(position, dtype.itemsize)
        self.spend(position, length * dtype.itemsize + 4, is_walked=dtype.itemsize > 1)
        return np.frombuffer(self.buffer, dtype, length, position + 4)

    def each(self, position: int, read: Callable[[int], Any]) -> list[Any]:
        """A vector of offsets, each followed."""
        length = self.length(position, 4)
        self.spend(position, 4 * length + 4)
        items = []
        for index in range(length):
            try:
                items.append(read(self.follow(position + 4 + 4 * index)))
            except Damage as damage:
                damage.place.append(f"[{index}]")
                raise
        return items

    def length(self, position: int, itemsize: int) -> int:
        """The length of a vector, if the file holds it."""
        length: int = _UINT32.unpack_from(self.buffer, position)[0]
        if position + 4 + length * itemsize > self.size:
            raise Damage(
                f"vector at byte {position} claims {length} items of {itemsize} bytes in {self.size}"
            )
        return length

    def spend(self, position: int, count: int, is_walked: bool = True) -> None:
        """Count bytes walked: an honest file is walked about once."""
        self.occupied.append((position, position + count))
        if is_walked:
            self.budget -= count
            if self.budget < 0:
                raise Damage("its parts overlap: more bytes are referred to than the file has")


__all__ = ["CODES", "DTYPES", "Damage", "Decoder", "Table", "Tables", "decode"]
