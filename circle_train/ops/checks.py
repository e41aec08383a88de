"""What type rules ask of operands: axes in range, values that must be known, integer element types."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from circle_train.errors import DataError, ModelError
from circle_train.ir import DType, TensorType
from circle_train.ir.size import Size
from circle_train.ir.tensor_type import Array

INDEX_TYPES = (DType.INT32, DType.INT64, DType.INT16, DType.INT8, DType.UINT8, DType.UINT16, DType.UINT32)


def axis_in(op: str, axis: int, rank: int) -> int:
    """The axis counted from the front."""
    if not -rank <= axis < rank:
        raise ModelError(
            f"{op}: axis {axis} does not exist in a tensor of rank {rank}; expected {-rank} to {rank - 1}"
        )
    return axis % rank


def axes_in(op: str, axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """The distinct axes counted from the front, in order."""
    return tuple(sorted({axis_in(op, int(axis), rank) for axis in axes}))


def integers(op: str, name: str, type_: TensorType) -> None:
    """Refuse an index operand whose elements are no integers."""
    if type_.dtype not in INDEX_TYPES:
        raise ModelError(f"{op}: {name} has element type {type_.dtype.name}, expected integers such as INT32")


def booleans(op: str, name: str, type_: TensorType) -> None:
    """Refuse an operand that is not BOOL."""
    if type_.dtype is not DType.BOOL:
        raise ModelError(
            f"{op}: {name} has element type {type_.dtype.name}, expected BOOL; insert a comparison"
        )


def has_rank(op: str, name: str, type_: TensorType, *ranks: int) -> None:
    """Refuse an operand of another rank."""
    if type_.rank not in ranks:
        expected = " or ".join(map(str, ranks))
        raise ModelError(f"{op}: {name} is {type_}, of rank {type_.rank}; expected rank {expected}")


def vector(op: str, name: str, type_: TensorType, length: int) -> list[int] | None:
    """The integers of a vector operand of that length, one per axis; None where they are not known yet."""
    integers(op, name, type_)
    if type_.rank != 1 or type_.shape[0] not in (length, -1):
        raise ModelError(f"{op}: {name} is {type_}, expected a vector of {length} integers, one per axis")
    return None if type_.value is None else sizes_in(type_.value)


def scalar(op: str, name: str, type_: TensorType) -> int | None:
    """The one integer of an operand; None where it is not known yet."""
    integers(op, name, type_)
    if type_.size != 1 and type_.is_static:
        raise ModelError(f"{op}: {name} is {type_}, expected one integer")
    return None if type_.value is None else sizes_in(type_.value)[0]


def sizes_in(value: Array) -> list[int]:
    """The integers that an operand holds; a Size is one."""
    return [number(n) for n in value.reshape(-1).tolist()]


def number(value: Any) -> int:
    """An operand's element; a Size is one."""
    return value if isinstance(value, Size) else int(value)  # type: ignore[return-value]


def length(op: str, name: str, type_: TensorType) -> int:
    """How many numbers a vector operand holds, where that decides the result's rank."""
    integers(op, name, type_)
    if type_.rank != 1 or not type_.is_static:
        raise ModelError(f"{op}: {name} is {type_}, expected a vector whose length is known before running")
    return type_.shape[0]


def same_size(a: int, b: int) -> bool:
    """Whether two sizes may be equal; -1 may be any."""
    return a == b or -1 in (a, b)


def indices_below(op: str, indices: Array, size: int) -> None:
    """Refuse, while running, indices that point outside an axis."""
    if indices.size and (indices.min() < 0 or indices.max() >= size):
        worst = indices.min() if indices.min() < 0 else indices.max()
        raise DataError(
            f"{op}: index {int(worst)} is outside the axis of {size} elements; expected 0 to {size - 1}"
        )
