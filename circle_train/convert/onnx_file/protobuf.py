"""Protocol Buffers' wire format, read: as little of it as ONNX files need, and nothing copied that is large."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Mapping
from typing import Any

Data = bytes | mmap.mmap
Values = dict[str, Any]
Reader = Callable[[Values, Data, int, int, int], None]
"""Takes what lies between two places into the values; the last argument says how deep the message is nested."""
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types."""
DEEPEST = 100
"""Messages in messages; as the library of Protocol Buffers has it."""
LONGEST = 10
"""Bytes of a number."""


class Damage(ValueError):
    """The bytes are no message of this kind."""


class Field:
    """What a field of a message is called and how it is read, by the wire types that it may have."""

    def __init__(self, name: str, default: Any, **readers: Reader) -> None:
        self.name, self.default = name, default
        self.readers = {
            {"varint": VARINT, "fixed32": FIXED32, "bytes": BYTES}[k]: r for k, r in readers.items()
        }


class Kind:
    """A kind of message: its fields by number."""

    def __init__(self, name: str, fields: Mapping[int, Field]) -> None:
        self.name = name
        self.readers = {
            number << 3 | wire: reader for number, f in fields.items() for wire, reader in f.readers.items()
        }
        self.defaults = {f.name: f.default for f in fields.values()}


class Message:
    """A message that was read: its fields are attributes, absent ones have their defaults."""

    def __init__(self, kind: Kind, values: Values, place: tuple[Data, int, int]) -> None:
        self._kind, self._place = kind, place
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        default = self._kind.defaults[name] if name in self._kind.defaults else None
        if default is None:
            raise AttributeError(f"{self._kind.name} has no field '{name}'")
        return default() if callable(default) else default

    def HasField(self, name: str) -> bool:
        return name in self.__dict__

    def SerializeToString(self) -> bytes:
        """The bytes that it was read from."""
        data, start, end = self._place
        return bytes(data[start:end])


def parse(kind: Kind, data: Data) -> Message:
    """The message that the data are, whole."""
    return message_in(kind, data, 0, len(data), 0)


def message_in(kind: Kind, data: Data, start: int, end: int, depth: int) -> Message:
    if depth > DEEPEST:
        raise Damage(f"messages are nested deeper than {DEEPEST}")
    values: Values = {}
    readers, position = kind.readers, start
    try:
        while position < end:
            key = data[position]
            position += 1
            if key > 127:
                key, position = _varint(data, position - 1)
            wire = key & 7
            if wire == BYTES:
                stop = data[position]
                position += 1
                if stop > 127:
                    stop, position = _varint(data, position - 1)
                stop += position
            elif wire == VARINT:
                stop = position + 1
                while data[stop - 1] > 127:
                    stop += 1
                    if stop - position > LONGEST:
                        raise Damage(f"the number before byte {stop} has more than 64 bits")
            else:
                stop = position + _width(wire)
            if stop > end:
                raise Damage(f"a field of {kind.name} ends at byte {stop}, the message at {end}")
            if key in readers:
                readers[key](values, data, position, stop, depth)
            position = stop
    except IndexError:
        raise Damage(f"the bytes end within a message {kind.name}") from None
    except UnicodeDecodeError as error:
        raise Damage(f"a text in {kind.name} is no UTF-8 ({error.reason})") from None
    return Message(kind, values, (data, start, end))


def _width(wire: int) -> int:
    if wire not in (FIXED32, FIXED64):
        raise Damage(f"{wire} is no wire type that ONNX files have")
    return 4 if wire == FIXED32 else 8


def _varint(data: Data, position: int) -> tuple[int, int]:
    """An unsigned number and where it ends."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
        if shift > 63:
            raise Damage(f"the number before byte {position} has more than 64 bits")


def signed(data: Data, start: int) -> tuple[int, int]:
    """A signed number and where it ends."""
    value, end = _varint(data, start)
    return (value - (1 << 64) if value >> 63 else value), end


class _Every(dict[int, Reader]):
    """Readers that keep where any field lies."""

    def __init__(self, found: list[tuple[int, int, int]]) -> None:
        self.found = found

    def __contains__(self, key: object) -> bool:
        return True

    def __getitem__(self, key: int) -> Reader:
        return lambda values, data, start, end, depth: self.found.append((key, start, end))


def spans(data: Data, start: int, end: int) -> list[tuple[int, int, int, int]]:
    """Of each field: its key, and where it begins, where its content does, and where both end."""
    found: list[tuple[int, int, int]] = []
    kind = Kind("any", {})
    kind.readers = _Every(found)
    message_in(kind, data, start, end, 0)
    begins = [start, *(stop for _, _, stop in found)]
    return [(key, begin, inner, stop) for begin, (key, inner, stop) in zip(begins, found, strict=False)]


def place_of(message: Message) -> tuple[Data, int, int]:
    """The bytes that it was read from: where they begin and end in which data."""
    return message._place
