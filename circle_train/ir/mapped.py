"""Constants that are views of a mapped file."""

from __future__ import annotations

import mmap

import numpy as np

from circle_train.ir.tensor_type import Array


def mapped(array: Array) -> mmap.mmap | None:
    """The mapped file that the array is a view of: pages that were only read to be copied need not stay in memory."""
    base: object = array
    while isinstance(base, (np.ndarray, memoryview)):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    if not isinstance(base, mmap.mmap) or not hasattr(mmap, "MADV_DONTNEED"):
        return None
    return base if memoryview(base).readonly else None
