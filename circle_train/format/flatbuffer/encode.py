"""Plain dicts to flatbuffers, by the facts of schema.py: the inverse of decode.py.

A packer of its own rather than `flatbuffers.Builder`: the Builder grows one buffer backwards and copies every
weight several times, where this one leaves large blobs to the end and never touches them (models of 0.7 to 17
MB take 3 to 6 times as long with it); and it cannot write slots that a schema does not name. Tables come
before what they point at, equal vtables are written once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from circle_train.errors import ModelError
from circle_train.format.flatbuffer.decode import CODES, DTYPES, Table, Tables
from circle_train.format.flatbuffer.schema import TABLES, UNIONS, FieldFact
from circle_train.format.flatbuffer.unknown import Unknown, UnknownTable
from circle_train.ir.tensor_type import Array

Chunk = bytes | bytearray | memoryview
LARGEST = (1 << 31) - 1
"""Offsets of flatbuffers are limited to this."""
BLOB_ALIGNMENT = 16
_UINT32 = struct.Struct("<I")


@dataclass(slots=True)
class _Layout:
    """Where the fields of one combination of present fields lie."""

    vtable: bytes
    alignment: int
    values: struct.Struct
    keys: list[str | int]
    references: list[tuple[str | int, int, Callable[[Any, Table], int]]]
    """Key, position within the table, and the writer of what is pointed at."""


def encode(root: str, table: Table, identifier: bytes, tables: Tables | None = None) -> bytes:
    """The flatbuffer of a root table."""
    return b"".join(encode_chunks(root, table, identifier, tables))


def encode_chunks(root: str, table: Table, identifier: bytes, tables: Tables | None = None) -> list[Chunk]:
    """The same in pieces, of which the large blobs are the caller's own memory."""
    encoder = Encoder(TABLES if tables is None else tables)
    encoder.out += bytes(4) + identifier
    try:
        _UINT32.pack_into(encoder.out, 0, encoder.table(root, table))
    except struct.error as error:
        raise ModelError(f"a number of the {root} does not fit its field ({error})") from error
    return encoder.finish()


@cache
def _align_of(size: int) -> int:
    return 8 if size % 8 == 0 else 4 if size % 4 == 0 else 2 if size % 2 == 0 else 1


def _blob(value: Any, owner: Table) -> int:
    """Stands for: written at the end of the file (see Encoder.finish)."""
    raise AssertionError("blobs are not written in place")


class Encoder:
    """Writes tables one behind the other."""

    def __init__(self, tables: Tables) -> None:
        self.out = bytearray()
        self.tables = tables
        self.vtables: dict[bytes, int] = {}
        self.layouts: dict[tuple[Any, ...], _Layout] = {}
        self.defaults: dict[str, dict[str, Any]] = {}
        self.blobs: list[tuple[int, Array]] = []
        """Positions of offsets to Buffer.data, and the bytes."""

    def table(self, kind: str, table: Table) -> int:
        """Write a table and all below it; its position."""
        defaults = self.defaults.get(kind)
        if defaults is None:
            defaults = {f[0]: f[2] for f in self.tables[kind] if f is not None and f[1] in CODES}
            self.defaults[kind] = defaults
        keys = tuple(
            key for key, value in table.items()
            if value is not None and not (key in defaults and value == defaults[key])
        )  # fmt: skip
        widths = tuple(len(table[key].raw) for key in keys if isinstance(key, int))
        layout = self.layouts.get((kind, keys, widths))
        if layout is None:
            layout = self.layouts[kind, keys, widths] = self.arrange(kind, keys, table)
        return self.place(layout, table)

    def place(self, layout: _Layout, table: Table) -> int:
        """Write the fixed part of a table, then its children."""
        out = self.out
        vtable = self.vtables.get(layout.vtable)
        if vtable is None:
            self.pad(2)
            vtable = self.vtables[layout.vtable] = len(out)
            out += layout.vtable
        out += bytes(-(len(out) + 4) % layout.alignment)
        position = len(out)
        values = [table[key].raw if isinstance(key, int) else table[key] for key in layout.keys]
        out += layout.values.pack(position - vtable, *values)
        for key, offset, write in layout.references:
            slot = position + offset
            if write is _blob:
                self.blobs.append((slot, table[key]))
            else:
                _UINT32.pack_into(out, slot, write(table[key], table) - slot)
        return position

    def arrange(self, kind: str, keys: Sequence[str | int], table: Table) -> _Layout:
        """Largest fields first, so that nothing needs padding."""
        facts = {fact[0]: (slot, fact) for slot, fact in enumerate(self.tables[kind]) if fact is not None}
        fields: list[tuple[int, str | int, int, str, Callable[[Any, Table], int] | None]] = []
        for key in keys:
            if isinstance(key, int):
                self.known_slot_free(kind, key)
                fields.append(self.unknown_field(kind, key, table[key]))
            else:
                slot, fact = facts[key]
                code = CODES.get(fact[1])
                write = None if code else _blob if (kind, key) == ("Buffer", "data") else self.writer(fact)
                fields.append((slot, key, struct.calcsize(code or "I"), code or "I", write))
        return self.lay_out(fields)

    def known_slot_free(self, kind: str, slot: int) -> None:
        """A slot that one format does not use may be in use in the other."""
        if slot < len(self.tables[kind]) and self.tables[kind][slot] is not None:
            raise ModelError(
                f"{kind} slot {slot} is unused in the format it came from, but not here; keep that format"
            )

    def unknown_field(self, kind: str, slot: int, field: Unknown) -> tuple[int, int, int, str, Any]:
        """A slot that the schema does not name (see unknown.py)."""
        if field.ambiguous:
            raise ModelError(
                f"{kind} has a field {slot} of a newer schema that may be an offset ({field.raw.hex()}): "
                "only changes of weights can be saved, not of the structure"
            )
        return (
            slot,
            slot,
            len(field.raw),
            f"{len(field.raw)}s",
            self.unknown if field.target is not None else None,
        )

    def lay_out(self, fields: list[tuple[int, Any, int, str, Any]]) -> _Layout:
        """Positions, vtable and struct of fields given as slot, key, size, struct code and writer."""
        order = sorted(fields, key=lambda field: -_align_of(field[2]))
        position, code = 4, "<i"
        offsets = [0] * (max((field[0] for field in fields), default=-1) + 1)
        references, keys = [], []
        for slot, key, size, field_code, write in order:
            offsets[slot] = position
            if write is not None:
                references.append((key, position, write))
            if write is None or isinstance(key, int):
                keys.append(key)
                code += field_code
            else:
                code += "4x"
            position += size
        vtable = struct.pack(f"<{len(offsets) + 2}H", 2 * len(offsets) + 4, position, *offsets)
        alignment = max((_align_of(field[2]) for field in fields), default=4)
        return _Layout(vtable, max(alignment, 4), struct.Struct(code), keys, references)

    def writer(self, fact: FieldFact) -> Callable[[Any, Table], int]:
        """What writes the target of an offset field."""
        name, type_, _, kind = fact
        inner = type_.strip("[]")
        if type_ == "union":
            return lambda value, owner: self.union(UNIONS[kind].get(owner.get(f"{name}_type", 0)), value)
        if type_ == "string":
            return lambda value, _: self.string(value)
        if not type_.startswith("["):
            return lambda value, _: self.table(inner, value)
        if inner in DTYPES:
            return lambda value, _: self.array(np.ascontiguousarray(value, DTYPES[inner]))
        if inner == "string":
            return lambda value, _: self.each(value, self.string)
        return lambda value, _: self.each(value, lambda item: self.table(inner, item))

    def union(self, member: str | None, value: Any) -> int:
        if isinstance(value, UnknownTable):
            if member is not None:
                raise ModelError(
                    f"a {member} here is something newer in the format it came from; keep that format"
                )
            return self.unknown_table(value)
        if member is None:
            raise ModelError("a union has a value but no type: the graph contradicts itself")
        return self.table(member, value)

    def unknown(self, field: Unknown, _: Table) -> int:
        """The deep copy of what an unknown field leads to."""
        if isinstance(field.target, UnknownTable):
            return self.unknown_table(field.target)
        assert field.target is not None
        self.out += bytes(-(len(self.out) + 4) % 8)
        position = len(self.out)
        self.out += field.target + bytes(8)
        return position

    def unknown_table(self, table: UnknownTable) -> int:
        slots: Table = dict(table.slots)
        fields = [self.unknown_field("a table", slot, field) for slot, field in table.slots]
        return self.place(self.lay_out(fields), slots)

    def string(self, text: str) -> int:
        raw = text.encode("utf-8", "surrogateescape")
        self.pad(4)
        position = len(self.out)
        self.out += _UINT32.pack(len(raw)) + raw + b"\0"
        return position

    def array(self, array: Array) -> int:
        """A vector of scalars, its first item aligned."""
        self.out += bytes(-(len(self.out) + 4) % max(array.itemsize, 4))
        position = len(self.out)
        self.out += _UINT32.pack(array.size) + array.tobytes()
        return position

    def each(self, items: Sequence[Any], write: Callable[[Any], int]) -> int:
        """A vector of offsets, then what they point at."""
        self.pad(4)
        position = len(self.out)
        self.out += _UINT32.pack(len(items)) + bytes(4 * len(items))
        for index, item in enumerate(items):
            slot = position + 4 + 4 * index
            _UINT32.pack_into(self.out, slot, write(item) - slot)
        return position

    def pad(self, alignment: int) -> None:
        self.out += bytes(-len(self.out) % alignment)

    def finish(self) -> list[Chunk]:
        """The tables, then every blob behind its length."""
        chunks: list[Chunk] = [self.out]
        end = len(self.out)
        for slot, blob in self.blobs:
            padding = -(end + 4) % BLOB_ALIGNMENT
            _UINT32.pack_into(self.out, slot, end + padding - slot)
            chunks += [bytes(padding) + _UINT32.pack(blob.size), np.ascontiguousarray(blob).data.cast("B")]
            end += padding + 4 + blob.size
        chunks.append(bytes(-end % 4))
        if end > LARGEST:
            raise ModelError(f"the model takes {end} bytes, expected at most {LARGEST} within one flatbuffer")
        return chunks
