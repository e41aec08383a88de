"""What an operator makes of whole numbers that are sizes: its elements as expressions of those that are open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from circle_train.errors import FOREIGN, ModelError
from circle_train.ir import TensorType
from circle_train.ir.size import Number, Size, floor_divided, largest, smallest
from circle_train.ir.sizes.judge import Undecided, judged_by
from circle_train.ir.tensor_type import Array
from circle_train.ops.base import Op

LONGEST = 4096
"""Elements of a vector whose values are followed."""
KEEPING = ("CAST", "FLOOR", "CEIL", "ROUND")
"""Operators that leave whole numbers as they are."""


def computed(op: Op, inputs: Sequence[TensorType | None]) -> list[Array] | None:
    """The elements of outputs that hold whole numbers, as expressions; None where they have none."""
    values = [None if type_ is None else _whole(type_.value) for type_ in inputs]
    if any(value is None and type_ is not None for value, type_ in zip(values, inputs, strict=True)):
        return None
    try:
        with judged_by(None):
            outputs = _computed(op, values, inputs)
    except (Undecided, ModelError, *FOREIGN):
        return None
    return None if any(array.size > LONGEST for array in outputs) else outputs


def _whole(value: Array | None) -> Array | None:
    """Floats that are whole numbers as integers, beside which sizes can stand."""
    if value is None or value.dtype.kind != "f" or value.size > LONGEST:
        return value
    with np.errstate(invalid="ignore"):
        integers = value.astype(np.int64)
    return integers if np.array_equal(integers, value) else value


def _computed(op: Op, values: Sequence[Any], types: Sequence[TensorType | None]) -> list[Array]:
    if op.name in KEEPING:
        return [values[0]]
    is_float = any(type_ is not None and type_.dtype.is_float for type_ in types)
    extreme = {
        "MAXIMUM": largest,
        "MINIMUM": smallest,
        "FLOOR_DIV": floor_divided,
        "DIV": _exact_quotient if is_float else _truncated,
    }.get(op.name)
    if extreme is not None:
        return [np.asarray(np.frompyfunc(extreme, 2, 1)(*values), object)]
    return [np.asarray(array) for array in op.compute(values)]


def _exact_quotient(top: Number, bottom: Number) -> Number:
    """Of floats: where it is a whole number whatever the sizes are."""
    quotient = floor_divided(top, bottom)
    if isinstance(rest := top - quotient * bottom, Size) or rest:
        raise Undecided("the quotient of sizes is no whole number")
    return quotient


def _truncated(top: Number, bottom: Number) -> Number:
    """Integers are divided towards 0."""
    if not bottom >= 0:
        raise Undecided("a size is divided by a negative one")
    low = top.low if isinstance(top, Size) else top
    if low is not None and low >= 0:
        return floor_divided(top, bottom)
    positive, negative = (largest(0, floor_divided(part, bottom)) for part in (top, -top))
    quotient: Number = positive - negative
    return quotient
