"""Looking things up in a file's tables, so that a wrong index is told with its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from circle_train.errors import ModelError
from circle_train.format.flatbuffer.decode import Damage, Table
from circle_train.ir.verify import MOST_OPERANDS

Item = TypeVar("Item")


@contextmanager
def at(place: str) -> Iterator[None]:
    """Damage found inside lies at this place of the table outside."""
    try:
        yield
    except Damage as damage:
        damage.place.append(place)
        raise
    except ModelError as error:
        within = Damage(str(error))
        within.place.append(place)
        raise within from error


def pick(items: Sequence[Item], index: int, what: str) -> Item:
    """The index-th item, if there is one."""
    if not 0 <= index < len(items):
        raise Damage(f"{what} {index} does not exist, there are {len(items)}")
    return items[index]


def unknown_of(table: Table) -> Table:
    """The slots of a newer schema."""
    return {slot: value for slot, value in table.items() if isinstance(slot, int)}


def tables_of(table: Table, field: str) -> list[Table]:
    """A vector of tables, empty where the file has none."""
    tables: list[Table] = table.get(field, [])
    return tables


def indices_of(table: Table, field: str, most: int = MOST_OPERANDS) -> list[int]:
    """A vector of indices, empty where the file has none."""
    value: Any = table.get(field)
    if value is not None and len(value) > most:
        raise Damage(f"there are {len(value)} {field}, expected at most {most}")
    return [] if value is None else [int(index) for index in value.tolist()]
