"""Messages written anew: other bytes for some of what is in them, all else as it was read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import BinaryIO

from circle_train.convert.onnx_file.protobuf import BYTES, Data, Message, place_of, spans
from circle_train.record import record


@record
class Later:
    """Bytes that are made when they are written."""

    nbytes: int
    make: Callable[[], bytes | memoryview]


Piece = bytes | memoryview | Later


def rewritten(message: Message, changes: Mapping[Message, Sequence[Piece]]) -> list[Piece]:
    """The bytes of a message with other ones for some of the messages within it, one piece after the other; all else
    stays as it is, and is the message's own memory."""
    data, start, end = place_of(message)
    places = {place_of(change)[1:]: new for change, new in changes.items()}
    return _rewritten(data, start, end, places)


def write_pieces(file: BinaryIO, pieces: Iterable[Piece]) -> None:
    """One after the other."""
    for piece in pieces:
        file.write(piece.make() if isinstance(piece, Later) else piece)


def _rewritten(
    data: Data, start: int, end: int, changes: Mapping[tuple[int, int], Sequence[Piece]]
) -> list[Piece]:
    parts: list[Piece] = []
    view, done = memoryview(data), start
    for key, begin, inner, stop in spans(data, start, end):
        within = {place: new for place, new in changes.items() if inner <= place[0] and place[1] <= stop}
        if within:
            content = within.get((inner, stop)) or _rewritten(data, inner, stop, within)
            parts += [view[done:begin], field_head(key >> 3, sum(map(_size, content))), *content]
            done = stop
    return [*parts, view[done:end]]


def _size(piece: Piece) -> int:
    return len(piece) if isinstance(piece, bytes) else piece.nbytes


def without(message: Message, numbers: Iterable[int]) -> bytes:
    """The bytes of a message but for the fields of these numbers."""
    data, start, end = place_of(message)
    dropped = set(numbers)
    kept = [(begin, stop) for key, begin, _, stop in spans(data, start, end) if key >> 3 not in dropped]
    return b"".join(bytes(data[begin:stop]) for begin, stop in kept)


def field_bytes(number: int, content: bytes) -> bytes:
    """A field that holds bytes, a text or a message."""
    return field_head(number, len(content)) + content


def field_head(number: int, nbytes: int) -> bytes:
    """What stands before the content of such a field."""
    return _as_varint(number << 3 | BYTES) + _as_varint(nbytes)


def _as_varint(value: int) -> bytes:
    octets_ = bytearray()
    while value > 127:
        octets_.append(value & 127 | 128)
        value >>= 7
    return bytes([*octets_, value])
