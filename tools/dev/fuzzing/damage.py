"""How the fuzzer damages what was whole: bytes, trees of tables (flatbuffers, JSON), protobuf messages."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import numpy as np

Rng = np.random.Generator
WORDS = (b"\xff\xff\xff\xff", b"\0\0\0\0", b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\x01\0\0\0")
NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    7,
    -2,
    16,
    127,
    128,
    255,
    257,
    32767,
    65536,
    30_000,
    2**31 - 1,
    -(2**31),
    2**63 - 1,
    -(2**63),
)
ODDITIES = (
    None,
    True,
    False,
    "",
    "x",
    "nan",
    1e308,
    -1e-308,
    float("nan"),
    float("inf"),
    10**400,
    [],
    [[]],
    {},
    [0, -1],
)
"""What JSON may hold where something else is meant."""


def pick(rng: Rng, options: Any) -> Any:
    return options[int(rng.integers(len(options)))]


def damaged_bytes(raw: bytes, rng: Rng) -> bytes:
    """Cut it, flip bits, overwrite or repeat a run, plant an extreme number; mostly near the ends, where tables are."""
    data = bytearray(raw or b"\0")
    for _ in range(int(pick(rng, (1, 1, 1, 2, 4)))):
        place = int(rng.integers(len(data)))
        if rng.random() < 0.5:
            place = min(place, int(rng.integers(64)))
        kind = int(rng.integers(5))
        if kind == 0:
            del data[place + 1 :]
        elif kind == 1:
            for offset in rng.integers(64, size=int(pick(rng, (1, 2, 8)))):
                data[min(place + int(offset), len(data) - 1)] ^= 1 << int(rng.integers(8))
        elif kind == 2:
            run = rng.bytes(int(pick(rng, (1, 2, 4, 8, 64))))
            data[place : place + len(run)] = run
        elif kind == 3:
            data[place & ~3 : (place & ~3) + 4] = pick(rng, WORDS)
        else:
            data[place:place] = data[place : place + int(pick(rng, (1, 4, 16)))]
    return bytes(data)


# Trees: dicts, lists, arrays, numbers and texts


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, Any, tuple[Any, ...]]]:
    """Every container with a key in it, from the root on."""
    keys = tree.keys() if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    for key in list(keys):
        yield tree, key, (*path, key)
        yield from places(tree[key], (*path, key))


def damaged_tree(tree: Any, rng: Rng, change: Any) -> Any:
    """A copy in which a few values are changed, left out, repeated or exchanged."""
    made = copy.deepcopy(tree)
    for _ in range(int(pick(rng, (1, 1, 1, 2, 3)))):
        found = list(places(made))
        if not found:
            return made
        holder, key, _ = pick(rng, found)
        kind = rng.random()
        if kind < 0.1:
            del holder[key]
        elif kind < 0.18 and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        elif kind < 0.28:
            other, where, _ = pick(rng, found)
            holder[key] = copy.deepcopy(other[where])
        else:
            holder[key] = change(holder[key], rng)
    return made


def changed_json(value: Any, rng: Rng) -> Any:
    """Another value, often of another kind."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and rng.random() < 0.5:
        return pick(rng, NUMBERS)
    if isinstance(value, str) and rng.random() < 0.3:
        return value[: int(rng.integers(len(value) + 1))] + pick(
            rng, ("", "é", "\x1b[2J", ":-1", ":999999999999")
        )
    return copy.deepcopy(pick(rng, ODDITIES + NUMBERS))


def damaged_json(text: str, rng: Rng) -> str:
    return json.dumps(damaged_tree(json.loads(text), rng, changed_json))


def changed_field(value: Any, rng: Rng) -> Any:
    """Another value of the same kind: what a flatbuffer's field can hold."""
    if isinstance(value, np.ndarray):
        return _changed_array(value, rng)
    if isinstance(value, (bool, np.bool_)):
        return not value
    if isinstance(value, (int, np.integer)):
        return int(value) + int(pick(rng, (1, 1, -1, 2, -2))) if rng.random() < 0.6 else pick(rng, NUMBERS)
    if isinstance(value, (float, np.floating)):
        return pick(rng, (0.0, -1.0, 1e-30, 3e38, float("nan"), float("inf"), -float(value)))
    if isinstance(value, str):
        return pick(rng, ("", value + value, "\x1b]0;x\x07", "../../x", "\ud800"))
    if isinstance(value, list) and value:
        return value[: int(rng.integers(len(value)))]
    return value


def damaged_tables(model: Any, rng: Rng) -> Any:
    """A model's tables, changed where it matters: sizes, options, operands, element types, what constants hold.

    Mostly constants are then given as many bytes as their new type takes, so that the file gets beyond its reader.
    """
    made = copy.deepcopy(model)
    graph = pick(rng, made["subgraphs"])
    for _ in range(int(pick(rng, (1, 1, 1, 2, 3)))):
        kind = int(rng.integers(5))
        tensors, operators = graph.get("tensors") or [{}], graph.get("operators") or [{}]
        if kind == 0:
            _change_entry(
                pick(rng, tensors), ("shape", "shape", "shape", "type", "shape_signature", "is_variable"), rng
            )
        elif kind == 1:
            operator = pick(rng, operators)
            table = operator.get("builtin_options") or operator.get("builtin_options_2") or operator
            _change_entry(table, sorted(key for key in table if isinstance(key, str)), rng)
        elif kind == 2:
            _change_entry(pick(rng, operators), ("inputs", "inputs", "outputs", "opcode_index"), rng)
        elif kind == 3:
            _change_numbers(pick(rng, made["buffers"]), rng)
        else:
            made = damaged_tree(made, rng, changed_field)
            return made
    if rng.random() < 0.8:
        _fill_constants(made, graph)
    return made


def _change_entry(table: Any, keys: Any, rng: Rng) -> None:
    present = [key for key in keys if key in table]
    if present:
        key = pick(rng, present)
        table[key] = changed_field(table[key], rng)


def _change_numbers(buffer: Any, rng: Rng) -> None:
    """One of the four-byte numbers that a constant holds."""
    data = np.array(buffer.get("data", np.zeros(0, np.uint8)))
    if data.size >= 4:
        words = data[: data.size // 4 * 4].view(np.int32)
        place = int(rng.integers(words.size))
        words[place] = int(pick(rng, NUMBERS[:-2])) if rng.random() < 0.7 else int(words[place]) ^ 1
        buffer["data"] = data


WIDTHS = {0: 4, 1: 2, 2: 4, 3: 1, 4: 8, 6: 1, 7: 2, 9: 1, 10: 8, 12: 8, 15: 4, 16: 2}
"""Bytes of the elements by the number of their type."""


def _fill_constants(model: Any, graph: Any) -> None:
    for tensor in graph.get("tensors", ()):
        number = tensor.get("buffer", 0)
        buffer = model["buffers"][number] if 0 <= number < len(model["buffers"]) else {}
        shape = [int(size) for size in tensor.get("shape", ())]
        nbytes = int(np.prod(shape, dtype=np.float64)) * WIDTHS.get(tensor.get("type", 0), 0)
        if (
            buffer.get("data") is not None
            and len(buffer["data"])
            and 0 < nbytes < 1 << 16
            and min(shape, default=1) > 0
        ):
            buffer["data"] = np.resize(buffer["data"], nbytes)


def _changed_array(value: np.ndarray, rng: Rng) -> np.ndarray:
    made = value.copy()
    kind = int(rng.integers(4))
    if kind == 0 or not made.size:
        return np.append(made, made[-1:] if made.size else np.zeros(1, made.dtype)).astype(value.dtype)
    if kind == 1:
        return made[: int(rng.integers(made.size))]
    place = int(rng.integers(made.size))
    with np.errstate(all="ignore"):
        new = np.array(pick(rng, NUMBERS) if kind == 2 else int(made[place]) + int(pick(rng, (1, -1, 2)))
                       if made.dtype.kind in "iu" else pick(rng, (0.0, 3e38, float("nan"))))  # fmt: skip
        made[place] = new.astype(value.dtype)
    return made


# Protobuf messages, by the reflection of the package protobuf


def damaged_message(message: Any, rng: Rng) -> bytes:
    """The serialized message with a few of its fields changed, left out, repeated or exchanged."""
    for _ in range(int(pick(rng, (1, 1, 1, 2, 3)))):
        found = list(_fields(message))
        if found:
            _change(*pick(rng, found), rng)
    return bytes(message.SerializeToString())


def _fields(message: Any) -> Iterator[tuple[Any, Any]]:
    """Every message with a field that is set in it."""
    for field, value in message.ListFields():
        if field.name in ("raw_data", "doc_string"):
            continue
        yield message, field
        if field.type == field.TYPE_MESSAGE:
            for inner in value if _is_repeated(field) else [value]:
                yield from _fields(inner)


def _is_repeated(field: Any) -> bool:
    return (hasattr(field, "is_repeated") and field.is_repeated) or getattr(field, "label", 0) == 3


def _change(message: Any, field: Any, rng: Rng) -> None:
    if rng.random() < 0.1:
        message.ClearField(field.name)
        return
    value = getattr(message, field.name)
    if not _is_repeated(field):
        if field.type != field.TYPE_MESSAGE:
            setattr(message, field.name, _other(field, value, rng))
        return
    place = int(rng.integers(len(value)))
    if rng.random() < 0.25:
        del value[place]
    elif field.type == field.TYPE_MESSAGE:
        value.add().CopyFrom(value[place])
    elif rng.random() < 0.3:
        value.append(value[place])
    else:
        value[place] = _other(field, value[place], rng)


def _other(field: Any, value: Any, rng: Rng) -> Any:
    if field.cpp_type == field.CPPTYPE_STRING:
        text = pick(
            rng,
            ("", "x", "../../x", "\x1b[2J", "SAME_UPPER", "Add", "Conv", "Identity", "Reshape", "Constant"),
        )
        return text.encode() if isinstance(value, bytes) else text
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return pick(rng, (0.0, -1.0, 3e38, float("nan"), float("inf")))
    if field.cpp_type == field.CPPTYPE_BOOL:
        return not value
    if field.cpp_type == field.CPPTYPE_ENUM:
        return pick(rng, sorted(field.enum_type.values_by_number))
    number = value + int(pick(rng, (1, -1, 2))) if rng.random() < 0.5 else pick(rng, NUMBERS)
    narrow = field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32)
    low = (
        0 if field.cpp_type in (field.CPPTYPE_UINT32, field.CPPTYPE_UINT64) else -(2**31 if narrow else 2**63)
    )
    return min(max(number, low), 2**31 - 1 if narrow else 2**63 - 1)
