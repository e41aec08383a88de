"""Saving without rewriting: the bytes of the loaded file, with new constants where the old ones were.

Nothing can be lost this way, not even what lies between tables. It is possible when the module maps to the
very tables that were read, every buffer has kept its size, and the formats agree on where these tables'
fields lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from circle_train.format.flatbuffer.decode import CODES, Table
from circle_train.format.flatbuffer.encode import Chunk
from circle_train.format.flatbuffer.schema import TABLES, UNIONS
from circle_train.format.flatbuffer.unknown import UnknownTable
from circle_train.format.model.carried import Source
from circle_train.ir import Buffer, Module
from circle_train.ir.tensor_type import Array

MOVED = {"debug_metadata_index", "compression_type"}
"""Fields that lie elsewhere, or nowhere, in the other format."""
COMMON_DETAILS = 1
"""The last member of QuantizationDetails that both formats number alike."""


def patch(module: Module, root: Table, buffers: Sequence[Buffer], identifier: str) -> list[Chunk] | None:
    """The file's bytes around the module's constants; None where that is not possible."""
    source: Source | None = module.carried.get("source")
    if source is None or not _same_slots(source, identifier):
        return None
    loaded = source.root
    entries = loaded.get("buffers", [])
    if len(entries) != len(buffers) or not same("Model", root | {"buffers": entries}, loaded):
        return None
    pieces, changed = [], False
    for entry, buffer in zip(entries, buffers, strict=True):
        content = _content(entry, source.data)
        if content.size != buffer.nbytes:
            return None
        if content.size:
            changed = changed or content is not buffer.bytes
            pieces.append((_position(content, source.data), buffer.bytes))
    pieces.sort(key=lambda piece: piece[0])
    return _assemble(source.data, pieces if changed else [], identifier)


def _same_slots(source: Source, identifier: str) -> bool:
    """Circle and TFLite differ in some last slots and numbers; whether none of these is used."""
    if source.identifier == identifier:
        return True
    graphs = source.root.get("subgraphs", [])
    tensors = [tensor for graph in graphs for tensor in graph.get("tensors", [])]
    details = [tensor.get("quantization", {}).get("details_type", 0) for tensor in tensors]
    moved = any(key in MOVED or isinstance(key, int) for table in [*graphs, *tensors] for key in table)
    return not moved and max(details, default=0) <= COMMON_DETAILS


def _content(entry: Table, data: Array) -> Array:
    offset = entry.get("offset", 0)
    if offset > 1:
        return data[offset : offset + entry.get("size", 0)]
    content: Array = entry.get("data", data[:0])
    return content


def _position(view: Array, data: Array) -> int:
    return int(view.__array_interface__["data"][0] - data.__array_interface__["data"][0])


def _assemble(data: Array, pieces: list[tuple[int, Array]], identifier: str) -> list[Chunk] | None:
    """None where two buffers overlap in the file and no longer agree."""
    whole = data.data
    chunks: list[Chunk] = [whole[:4], identifier.encode()]
    end, last = 8, None
    for position, content in pieces:
        if position < end:
            if last is None or position != last[0] or not np.array_equal(content, last[1]):
                return None
            continue
        chunks += [whole[end:position], np.ascontiguousarray(content).data.cast("B")]
        end, last = position + content.size, (position, content)
    chunks.append(whole[end:])
    return chunks


def same(kind: str, one: Table, other: Table) -> bool:
    """Whether two tables say the same: a field that is left out has its default, an empty vector is none."""
    if one is other:
        return True
    for fact in TABLES[kind]:
        if fact is None:
            continue
        name, type_, default, union = fact
        a, b = one.get(name, default), other.get(name, default)
        if a is b:
            continue
        if type_ in CODES:
            if a != b and not (_is_nan(a) and _is_nan(b)):
                return False
        elif not _same_value(type_, a, b, UNIONS.get(union, {}).get(other.get(f"{name}_type", 0))):
            return False
    return all(one.get(slot) == other.get(slot) for slot in {*one, *other} if isinstance(slot, int))


def _is_nan(number: Any) -> bool:
    return bool(np.isnan(number))


def _same_value(type_: str, a: Any, b: Any, member: str | None) -> bool:
    if isinstance(a, UnknownTable) or isinstance(b, UnknownTable):
        return bool(a == b)
    if type_ == "union":
        return a is not None and b is not None and member is not None and same(member, a, b)
    if not type_.startswith("["):
        return (
            (a or "") == (b or "")
            if type_ == "string"
            else same(type_, a or {}, b or {}) and (a is None) == (b is None)
        )
    size = 0 if a is None else len(a)
    if size != (0 if b is None else len(b)):
        return False
    inner = type_[1:-1]
    if size == 0:
        return True
    if inner in CODES:
        return bool(a.dtype == b.dtype and a.tobytes() == b.tobytes())
    if inner == "string":
        return bool(a == b)
    return all(same(inner, x, y) for x, y in zip(a, b, strict=True))
