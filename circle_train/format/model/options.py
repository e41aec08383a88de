"""Between an operator's dataclass fields and its option table, by their common names."""

from __future__ import annotations

import enum
import typing
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from circle_train.format.flatbuffer.decode import DTYPES, Damage, Table
from circle_train.format.flatbuffer.schema import TABLES, UNIONS
from circle_train.ops.base import Op


class _Option(NamedTuple):
    """A dataclass field that is a schema field too."""

    name: str
    default: Any
    """The schema's, for fields that the file leaves out; the dataclass's default is for ops that we make."""
    convert: Callable[[Any], Any]
    dtype: np.dtype[Any] | None
    """Of a vector."""


_OPTIONS: dict[type[Op], tuple[_Option, ...]] = {}


def options_of(cls: type[Op]) -> tuple[_Option, ...]:
    """The fields that an operator class shares with its option table."""
    if cls not in _OPTIONS:
        _OPTIONS[cls] = _shared_fields(cls)
    return _OPTIONS[cls]


def _shared_fields(cls: type[Op]) -> tuple[_Option, ...]:
    if cls.options is None:
        return ()
    facts = {fact[0]: fact for fact in TABLES[cls.options] if fact is not None}
    hints = typing.get_type_hints(cls)
    shared = [facts[field.name] for field in fields(cls) if field.name in facts]
    return tuple(
        _Option(
            name,
            default,
            _converter(hints[name], type_),
            DTYPES.get(type_.strip("[]")) if "[" in type_ else None,
        )
        for name, type_, default, _ in shared
    )


@cache
def tag_of(table: str) -> tuple[str, int]:
    """The union field of an Operator that holds an option table, and the table's tag there."""
    for union, name in (("BuiltinOptions", "builtin_options"), ("BuiltinOptions2", "builtin_options_2")):
        for tag, member in UNIONS[union].items():
            if member == table:
                return name, tag
    raise KeyError(f"{table} is a member of no union of options")


def _converter(hint: Any, type_: str) -> Callable[[Any], Any]:
    if isinstance(hint, type) and issubclass(hint, enum.IntEnum):
        return hint
    if "[" in type_:
        return lambda value: () if value is None else tuple(value.tolist())
    if type_ == "string":
        return lambda value: value or ""
    return lambda value: value


def read_options(cls: type[Op], table: Table | None) -> tuple[Op, Table | None]:
    """The operator that an option table describes, and the fields that its class does not know."""
    given = table or {}
    options = options_of(cls)
    values = {}
    for name, default, convert, _ in options:
        try:
            values[name] = convert(given.get(name, default))
        except ValueError:
            raise Damage(
                f"{cls.options}.{name} is {given.get(name, default)}, which is none of its values"
            ) from None
    op = cls(**values)
    if table is None:
        return op, None
    return op, {name: value for name, value in table.items() if name not in values}


def write_options(op: Op, rest: Table | None) -> Table:
    """The option table of an operator; `rest` are the fields that its class does not know."""
    table: Table = dict(rest or {})
    for name, _, _, dtype in options_of(type(op)):
        value = getattr(op, name)
        if dtype is not None:
            table[name] = np.array(value, dtype)
        else:
            table[name] = int(value) if isinstance(value, enum.IntEnum) else value
    return table


def is_default(op: Op) -> bool:
    """Whether a missing option table says the same."""
    return all(getattr(op, name) == convert(default) for name, default, convert, _ in options_of(type(op)))
