"""Rows of numbers that are read a few at a time: where they are many, in a file instead of in memory."""

from __future__ import annotations

import mmap
import os

import numpy as np

from circle_train.ir.tensor_type import Array
from circle_train.record import record

LARGE = 16 << 20
"""Bytes from which on they lie in a file."""


@record
class Rows:
    """An array, and the file's mapping that it is a view of, if it is one."""

    array: Array
    mapping: mmap.mmap | None = None

    def let_go(self) -> None:
        """What was read or written lately is the file's affair again, and no memory of this process."""
        if self.mapping is not None:
            self.mapping.madvise(mmap.MADV_DONTNEED)


def rows(shape: tuple[int, int], dtype: np.dtype[np.generic]) -> Rows:
    """As many, with nothing in them yet. The file has no name, and its room on the disk is taken before the first is written:
    where there is none, or where a system cannot promise it, they lie in memory."""
    nbytes = shape[0] * shape[1] * dtype.itemsize
    if nbytes < LARGE or not hasattr(os, "posix_fallocate"):
        return Rows(np.empty(shape, dtype))
    import tempfile  # and what finds names for files: for those alone whose rows are many

    try:
        with tempfile.TemporaryFile(prefix="circle-train-") as file:
            os.posix_fallocate(file.fileno(), 0, nbytes)
            mapping = mmap.mmap(file.fileno(), nbytes)
    except OSError:
        return Rows(np.empty(shape, dtype))
    return Rows(np.frombuffer(mapping, dtype).reshape(shape), mapping)
