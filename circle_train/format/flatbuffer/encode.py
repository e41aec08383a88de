"""Plain dicts to flatbuffers, by the facts of schema.py: the inverse of decode.py.

`flatbuffers.Builder` writes. Here is what it lacks: large blobs never enter its one growing buffer but follow it as they
are, and slots that a schema does not name keep their bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from flatbuffers import Builder, number_types
from flatbuffers.builder import BuilderSizeError

from circle_train.errors import ModelError
from circle_train.format.flatbuffer.decode import CODES, DTYPES, Table, Tables
from circle_train.format.flatbuffer.schema import TABLES, UNIONS, FieldFact
from circle_train.format.flatbuffer.unknown import Unknown, UnknownTable
from circle_train.ir.tensor_type import Array

Chunk = bytes | bytearray | memoryview
LARGEST = (1 << 31) - 1
"""Offsets of flatbuffers are limited to this."""
BLOB_ALIGNMENT = 16
FLAGS = {name: getattr(number_types, f"{name.capitalize()}Flags") for name in CODES}
"""What the library calls the kinds of numbers."""
_UINT32 = struct.Struct("<I")

Field = tuple[int, int, Callable[[Any], None], Any]
"""Alignment, slot, and what writes this value into the table at hand."""


def encode(root: str, table: Table, identifier: bytes, tables: Tables | None = None) -> bytes:
    """The flatbuffer of a root table."""
    return b"".join(encode_chunks(root, table, identifier, tables))


def encode_chunks(root: str, table: Table, identifier: bytes, tables: Tables | None = None) -> list[Chunk]:
    """The same in pieces, of which the large blobs are the caller's own memory."""
    encoder = Encoder(TABLES if tables is None else tables)
    try:
        encoder.builder.Finish(encoder.table(root, table), identifier)
    except (struct.error, TypeError, OverflowError) as error:
        raise ModelError(f"a number of the {root} does not fit its field ({error})") from error
    except BuilderSizeError:
        raise ModelError(f"the model takes more than {LARGEST} bytes, which no flatbuffer can hold") from None
    return encoder.finish()


class Encoder:
    """Writes what is below a table, then the table; places are counted from the end."""

    apart: tuple[str, str] | None = ("Buffer", "data")
    """The field whose bytes never enter the builder."""

    def __init__(self, tables: Tables) -> None:
        self.builder = Builder(1 << 16)
        self.tables = tables
        self.blobs: list[tuple[int, Array]] = []
        """Places of offsets to Buffer.data, and the bytes."""
        self._facts: dict[str, dict[str | int, tuple[int, FieldFact]]] = {}
        self._numbers = {name: self._number(flags) for name, flags in FLAGS.items()}

    def table(self, kind: str, table: Table) -> int:
        """Write a table and all below it; its place."""
        facts = self._facts.get(kind)
        if facts is None:
            numbered = enumerate(self.tables[kind])
            facts = self._facts[kind] = {fact[0]: (slot, fact) for slot, fact in numbered if fact is not None}
        fields: list[Field] = []
        for key, value in table.items():
            if isinstance(key, int):
                self.known_slot_free(kind, key)
                fields.append(self.unknown_field(kind, key, value))
            elif value is not None:
                slot, fact = facts[key]
                if fact[1] in FLAGS:
                    if value != fact[2]:
                        fields.append((FLAGS[fact[1]].bytewidth, slot, self._numbers[fact[1]], value))
                elif (kind, key) == self.apart:
                    fields.append((4, slot, self._blob, value))
                else:
                    fields.append((4, slot, self._offset, self.target(fact, value, table)))
        return self.place(fields)

    def place(self, fields: list[Field]) -> int:
        """Write the table itself; the library goes backwards, so the widest fields are last."""
        builder = self.builder
        builder.StartObject(max((field[1] for field in fields), default=-1) + 1)
        for _, slot, write, value in sorted(fields, key=_alignment):
            write(value)
            builder.Slot(slot)
        return int(builder.EndObject())

    # Fields

    def _number(self, flags: Any) -> Callable[[Any], None]:
        return lambda value: self.builder.Prepend(flags, value)

    def _offset(self, target: int) -> None:
        self.builder.PrependUOffsetTRelative(target)

    def _blob(self, blob: Array) -> None:
        """Room for the offset to what comes behind everything (see finish)."""
        self.builder.PrependUint32(0)
        self.blobs.append((self.builder.Offset(), blob))

    def _raw(self, value: tuple[bytes, int | None]) -> None:
        """Bytes as they are; the first of them lead to a place, if there is one."""
        raw, target = value
        self.bytes(raw, _align_of(len(raw)))
        if target is not None:
            _UINT32.pack_into(self.builder.Bytes, self.builder.Head(), self.builder.Offset() - target)

    def bytes(self, raw: bytes, alignment: int, ahead: int = 0) -> int:
        """Write bytes of which those behind the first `ahead` begin at a multiple of the alignment; their place."""
        builder = self.builder
        builder.Prep(alignment, len(raw) - ahead)
        builder.Prep(1, len(raw))
        builder.head -= len(raw)
        builder.Bytes[builder.head : builder.head + len(raw)] = raw
        return int(builder.Offset())

    def target(self, fact: FieldFact, value: Any, owner: Table) -> int:
        """Write what a field points at; its place."""
        name, type_, _, kind = fact
        inner = type_.strip("[]")
        if type_ == "union":
            return self.union(UNIONS[kind].get(owner.get(f"{name}_type", 0)), value)
        if type_ == "string":
            return self.string(value)
        if not type_.startswith("["):
            return self.table(inner, value)
        if inner in DTYPES:
            return int(self.builder.CreateNumpyVector(np.ascontiguousarray(value, DTYPES[inner]).reshape(-1)))
        places = [self.string(item) if inner == "string" else self.table(inner, item) for item in value]
        self.builder.StartVector(4, len(places), 4)
        for place in reversed(places):
            self.builder.PrependUOffsetTRelative(place)
        return int(self.builder.EndVector())

    def string(self, text: str) -> int:
        return int(self.builder.CreateString(text.encode("utf-8", "surrogateescape")))

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

    # What the schema does not name (see unknown.py)

    def known_slot_free(self, kind: str, slot: int) -> None:
        """A slot that one format does not use may be in use in the other."""
        if slot < len(self.tables[kind]) and self.tables[kind][slot] is not None:
            raise ModelError(
                f"{kind} slot {slot} is unused in the format it came from, but not here; keep that format"
            )

    def unknown_field(self, kind: str, slot: int, field: Unknown) -> Field:
        """The bytes of such a slot, and a deep copy of what they lead to."""
        if field.ambiguous:
            raise ModelError(
                f"{kind} has a field {slot} of a newer schema that may be an offset ({field.raw.hex()}): "
                "only changes of weights can be saved, not of the structure"
            )
        target = field.target
        if isinstance(target, bytes):
            place: int | None = self.bytes(target + bytes(8), 8, ahead=4)
        else:
            place = None if target is None else self.unknown_table(target)
        return _align_of(len(field.raw)), slot, self._raw, (field.raw, place)

    def unknown_table(self, table: UnknownTable) -> int:
        return self.place([self.unknown_field("a table", slot, field) for slot, field in table.slots])

    def finish(self) -> list[Chunk]:
        """The tables, then every blob behind its length."""
        out = self.builder.Output()
        chunks: list[Chunk] = [out]
        end = size = len(out)
        for place, blob in self.blobs:
            slot, padding = size - place, -(end + 4) % BLOB_ALIGNMENT
            _UINT32.pack_into(out, slot, end + padding - slot)
            chunks += [bytes(padding) + _UINT32.pack(blob.size), np.ascontiguousarray(blob).data.cast("B")]
            end += padding + 4 + blob.size
        chunks.append(bytes(-end % 4))
        if end > LARGEST:
            raise ModelError(f"the model takes {end} bytes, expected at most {LARGEST} within one flatbuffer")
        return chunks


def _alignment(field: Field) -> int:
    return field[0]


def _align_of(size: int) -> int:
    """Bytes up to the next field may be a number and padding: for the widest number that they can hold."""
    return 8 if size >= 8 else 4 if size >= 4 else 2 if size >= 2 else 1
