"""Arrays as they lie in files: where the header's word on type and shape is checked before memory is taken for it."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from circle_train.data.coercion import NUMERIC
from circle_train.errors import DataError
from circle_train.ir.mapped import open_bytes
from circle_train.ir.tensor_type import Array


def array_in(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], start: int) -> Array:
    """The array that lies in a file from a byte on; mapped where the file is large."""
    if dtype.kind not in NUMERIC or not dtype.itemsize:
        raise DataError(f"'{path}' holds elements of type {dtype}, expected numbers")
    if any(size < 0 for size in shape):
        raise DataError(f"'{path}' says it has shape {shape}, expected sizes from 0")
    data = open_bytes(path)
    expected = start + prod(shape) * dtype.itemsize
    if len(data) < expected:
        raise DataError(f"'{path}' has {len(data)} bytes, its header asks for {expected}; get an intact copy")
    return np.frombuffer(data, dtype, prod(shape), start).reshape(shape)


def member(archive: Mapping[str, Any], name: str) -> Array:
    """One array of an open .npz file; numpy gives the bytes of whatever else lies in it."""
    found: Array = archive[name]
    if not isinstance(found, np.ndarray):
        raise DataError(f"'{name}' in the archive is no array; write it with numpy.savez")
    return found
