"""Named arrays and strings in one file, in the safetensors layout: header length, JSON header, the arrays.

The string `checksum` among the metadata is the SHA-256 of everything else, so a damaged file is refused.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import struct
from collections.abc import Iterable, Iterator, Mapping
from math import prod
from typing import Any, overload

import numpy as np

from circle_train.checkpoints.slices import FileSlices, Stored
from circle_train.errors import CheckpointError
from circle_train.ir.mapped import PIECE, in_pieces
from circle_train.ir.tensor_type import Array

Data = bytes | mmap.mmap
"""Of a file: read, or mapped."""
Entry = Array | Stored
"""Of a checkpoint."""

LENGTH = struct.Struct("<Q")
ALIGNMENT = 8
CHECKSUM = "checksum"
DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def encode(arrays: Mapping[str, Array], metadata: Mapping[str, str]) -> bytes:
    """The file's bytes; arrays stand in the order of the mapping."""
    return b"".join(pieces(arrays, metadata))


def pieces(arrays: Mapping[str, Array], metadata: Mapping[str, str]) -> list[bytes | memoryview]:
    """The same one after the other, of which the arrays are the caller's own memory wherever it is contiguous."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    chunks, position = [], 0
    for name, array in arrays.items():
        dtype = array.dtype.newbyteorder("<")
        chunk = np.ascontiguousarray(array, dtype).reshape(-1).view(np.uint8).data
        header[name] = {
            "dtype": NAMES[dtype],
            "shape": list(array.shape),
            "data_offsets": [position, position + chunk.nbytes],
        }
        chunks.append(chunk)
        position += chunk.nbytes
    header["__metadata__"][CHECKSUM] = _checksum(header, chunks)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    return [LENGTH.pack(len(text)) + text, *chunks]


@overload
def decode(data: Data, where: str) -> tuple[dict[str, Array], dict[str, str]]: ...
@overload
def decode(data: Data | FileSlices, where: str) -> tuple[Mapping[str, Entry], dict[str, str]]: ...
def decode(data: Data | FileSlices, where: str) -> tuple[Mapping[str, Entry], dict[str, str]]:
    """The arrays (views of `data`, or such as are read when they are asked for) and the metadata, checked to the last byte."""
    header, start = _read_header(data, where)
    length = len(data) - start
    metadata = header.get("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise _refusal(where, "its metadata are not strings by name")
    arrays: dict[str, Entry] = {}
    position = 0
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        dtype, shape, begin, end = _read_entry(name, entry, where)
        size = prod(shape) * dtype.itemsize
        if begin != position or end != begin + size or end > length:
            raise _refusal(
                where, f"array '{name}' of {size} bytes is said to lie at {begin} to {end} of {length}"
            )
        arrays[name] = _entry(data, start + begin, dtype, shape)
        position = end
    if position != length:
        raise _refusal(where, f"{length - position} bytes at its end belong to no array")
    if metadata.pop(CHECKSUM, None) != _checksum(header, _pieces(data, start)):
        raise _refusal(where, "its checksum does not agree with what it holds")
    return arrays, metadata


def _entry(data: Data | FileSlices, start: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Entry:
    if isinstance(data, FileSlices):
        return Stored(data, start, dtype, shape)
    return np.frombuffer(memoryview(data)[start : start + prod(shape) * dtype.itemsize], dtype).reshape(shape)


def _pieces(data: Data | FileSlices, start: int) -> Iterator[bytearray | memoryview]:
    """What lies behind the header."""
    if isinstance(data, FileSlices):
        return (data[at : at + PIECE] for at in range(start, len(data), PIECE))
    return in_pieces(memoryview(data)[start:])


def _read_header(data: Data | FileSlices, where: str) -> tuple[dict[str, Any], int]:
    if len(data) < LENGTH.size:
        raise _refusal(where, f"it is {len(data)} bytes long, too short for a header")
    start = LENGTH.size + LENGTH.unpack(data[: LENGTH.size])[0]
    if start > len(data):
        raise _refusal(where, f"its header is said to end at {start}, the file ends at {len(data)}")
    try:
        header = json.loads(data[LENGTH.size : start])
    except (ValueError, RecursionError) as error:
        raise _refusal(where, f"its header is not JSON ({error})") from None
    if not isinstance(header, dict):
        raise _refusal(where, "its header is not a JSON object")
    return header, start


def _read_entry(name: str, entry: Any, where: str) -> tuple[np.dtype[Any], tuple[int, ...], int, int]:
    """Element type, shape, begin and end of one array."""
    try:
        dtype, shape, (begin, end) = DTYPES[entry["dtype"]], tuple(entry["shape"]), entry["data_offsets"]
    except (KeyError, TypeError, ValueError):
        raise _refusal(where, f"array '{name}' is described by {str(entry)[:80]}") from None
    if not all(type(number) is int and number >= 0 for number in (*shape, begin, end)):
        raise _refusal(where, f"array '{name}' is described by {str(entry)[:80]}")
    return dtype, shape, begin, end


def _checksum(header: Mapping[str, Any], data: Iterable[bytes | bytearray | memoryview]) -> str:
    metadata = {name: value for name, value in header.get("__metadata__", {}).items() if name != CHECKSUM}
    text = json.dumps({**header, "__metadata__": metadata}, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode())
    for chunk in data:
        for piece in in_pieces(memoryview(chunk)):
            digest.update(piece)
    return digest.hexdigest()


def _refusal(where: str, found: str) -> CheckpointError:
    return CheckpointError(f"checkpoint {where} is damaged: {found}; nothing was changed, load another one")
