"""What fields of messages hold, and how each kind is read."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np

from circle_train.convert.onnx_file.protobuf import (
    Damage,
    Data,
    Field,
    Kind,
    Message,
    Values,
    message_in,
    signed,
)
from circle_train.ir.tensor_type import Array
from circle_train.ir.verify import MOST_OPERANDS

MOST = 1 << 17
"""Messages of one kind in one message: nodes of a graph, say. An empty one takes two bytes of a file and 500 of memory."""
FEW = 64
"""Bytes up to which numbers are decoded one by one."""


def integer(name: str) -> Field:
    def read(values: Values, data: Data, start: int, end: int, depth: int) -> None:
        values[name] = data[start] if end == start + 1 else signed(data, start)[0]

    return Field(name, 0, varint=read)


def number(name: str) -> Field:
    """A float."""

    def read(values: Values, data: Data, start: int, end: int, depth: int) -> None:
        values[name] = struct.unpack("<f", data[start:end])[0]

    return Field(name, 0.0, fixed32=read)


def text(name: str) -> Field:
    def read(values: Values, data: Data, start: int, end: int, depth: int) -> None:
        values[name] = data[start:end].decode()

    return Field(name, "", bytes=read)


def texts(name: str) -> Field:
    def read(values: Values, data: Data, start: int, end: int, depth: int) -> None:
        found = values.setdefault(name, [])
        if len(found) == MOST_OPERANDS:
            raise Damage(f"there are more than {MOST_OPERANDS} names '{name}'")
        found.append(data[start:end].decode())

    return Field(name, list, bytes=read)


def octets(name: str) -> Field:
    """A few bytes."""

    def read(values: Values, data: Data, start: int, end: int, depth: int) -> None:
        values[name] = bytes(data[start:end])

    return Field(name, b"", bytes=read)


def octets_list(name: str) -> Field:
    def read(values: Values, data: Data, start: int, end: int, depth: int) -> None:
        values.setdefault(name, []).append(bytes(data[start:end]))

    return Field(name, list, bytes=read)


def view(name: str) -> Field:
    """Many bytes, left where they are."""

    def read(values: Values, data: Data, start: int, end: int, depth: int) -> None:
        values[name] = np.frombuffer(data, np.uint8, end - start, start)

    return Field(name, lambda: np.empty(0, np.uint8), bytes=read)


def integers(name: str) -> Field:
    """A list of ints, packed or one by one."""

    def packed(values: Values, data: Data, start: int, end: int, depth: int) -> None:
        values.setdefault(name, []).extend(varints(data, start, end).tolist())

    def single(values: Values, data: Data, start: int, end: int, depth: int) -> None:
        values.setdefault(name, []).append(signed(data, start)[0])

    return Field(name, list, bytes=packed, varint=single)


def numbers(name: str) -> Field:
    """A list of floats, packed or one by one."""

    def packed(values: Values, data: Data, start: int, end: int, depth: int) -> None:
        values.setdefault(name, []).extend(_fixed("<f4", data, start, end).tolist())

    def single(values: Values, data: Data, start: int, end: int, depth: int) -> None:
        values.setdefault(name, []).append(struct.unpack("<f", data[start:end])[0])

    return Field(name, list, bytes=packed, fixed32=single)


def elements(name: str, dtype: str) -> Field:
    """The elements of a tensor as a list of arrays: "<f4" and "<f8" as they lie, "varint" as int64."""

    def packed(values: Values, data: Data, start: int, end: int, depth: int) -> None:
        found = varints(data, start, end) if dtype == "varint" else _fixed(dtype, data, start, end)
        values.setdefault(name, []).append(found)

    if dtype == "varint":
        return Field(name, list, bytes=packed, varint=packed)
    return Field(name, list, bytes=packed, **({"fixed32": packed} if dtype == "<f4" else {}))


def message(name: str, kind: Callable[[], Kind]) -> Field:
    def read(values: Values, data: Data, start: int, end: int, depth: int) -> None:
        values[name] = message_in(kind(), data, start, end, depth + 1)

    return Field(name, lambda: Message(kind(), {}, (b"", 0, 0)), bytes=read)


def messages(name: str, kind: Callable[[], Kind], most: int | None = None) -> Field:
    def read(values: Values, data: Data, start: int, end: int, depth: int) -> None:
        found = values.setdefault(name, [])
        if len(found) == (most or MOST):
            raise Damage(f"there are more than {most or MOST} messages '{name}'")
        found.append(message_in(kind(), data, start, end, depth + 1))

    return Field(name, list, bytes=read)


def _fixed(dtype: str, data: Data, start: int, end: int) -> Array:
    width = np.dtype(dtype).itemsize
    if (end - start) % width:
        raise Damage(f"{end - start} bytes at {start} are no list of numbers of {width} bytes")
    return np.frombuffer(data, dtype, (end - start) // width, start)


def varints(data: Data, start: int, end: int) -> Array:
    """All numbers between two places, as int64."""
    if end - start <= FEW:
        found = []
        while start < end:
            value, start = signed(data, start)
            found.append(value)
        if start > end:
            raise Damage(f"the number before byte {start} goes beyond its list")
        return np.array(found, np.int64)
    octet = np.frombuffer(data, np.uint8, end - start, start)
    last = np.flatnonzero(octet < 128)
    first = np.concatenate([[0], last[:-1] + 1])
    length = last - first + 1
    if not last.size or last[-1] != octet.size - 1 or length.max() > 10:
        raise Damage(f"the {end - start} bytes at {start} are no list of numbers")
    total = np.zeros(last.size, np.uint64)
    for place in range(int(length.max())):
        here = np.flatnonzero(length > place)
        part = (octet[first[here] + place] & 127).astype(np.uint64)
        total[here] |= part << np.uint64(7 * place)
    return total.view(np.int64)
