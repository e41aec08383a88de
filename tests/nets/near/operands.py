"""Operands that differ from another in one thing, and what becomes of them, as it is recorded in tests/data/operands.

A rule that takes less than before takes models away from people; one that takes more, or leaves more to numpy, does it by
mistake. Where it is meant: RECORD_OPERANDS=1 pytest tests/ops/test_ops_types.py tests/backends/engine/test_engine_extents.py
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from circle_train.ir.tensor_type import Array

RECORDS = Path(__file__).resolve().parents[2] / "data/operands"


def recorded(kind: str, name: str, found: dict[str, list[int]]) -> dict[str, list[int]]:
    """What was found of an operator when it was recorded; what is found now, where none was or it is to be recorded."""
    file = RECORDS / f"{kind}.json"
    known: dict[str, dict[str, list[int]]] = (
        json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    )
    if "RECORD_OPERANDS" in os.environ and found:
        lines = (f'"{key}": {json.dumps(value)}' for key, value in sorted({**known, name: found}.items()))
        file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
        return found
    return known.get(name, found)


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
