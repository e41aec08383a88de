"""Operands that differ from another in one thing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from circle_train.ir.tensor_type import Array


def otherwise(value: Array) -> Iterator[tuple[str, Array | None]]:
    """The operand with one thing changed: its element type, a size, its rank, a number; or none."""
    yield "absent", None
    yield "two of it", np.stack([value, value])
    yield "within one", value[None]
    with np.errstate(all="ignore"):
        for dtype in (np.float32, np.int32, np.int64, np.int8, np.bool_):
            yield f"of {np.dtype(dtype)}", value.astype(dtype)
    for axis, size in enumerate(value.shape):
        for count in {size + 1, size - 1, 1, 0} - {size, -1}:
            yield (
                f"axis {axis} of {count}",
                np.resize(value, (*value.shape[:axis], count, *value.shape[axis + 1 :])),
            )
        if size:
            yield f"without axis {axis}", value.take(0, axis)
    if value.dtype.kind == "i" and value.size <= 16:
        for place in range(value.size):
            for number in (-1, 0, 1, 7):
                changed = np.array(value)
                changed.reshape(-1)[place] = number
                yield f"number {place} is {number}", changed
