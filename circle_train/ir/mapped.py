"""Files whose bytes are read only where somebody looks at them, and what tells that they are no longer what they were."""

from __future__ import annotations

import errno
import mmap
import os
import stat
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir.graph import Module
from circle_train.ir.tensor_type import Array

SMALL = 1 << 20
"""Bytes of a file that is read at once: who overwrites or shortens it later changes nothing here."""
PIECE = 1 << 20
"""Bytes that are looked at together where all of a file is."""


class FileMap(mmap.mmap):
    """A mapped file that notices when it is written to: what lies behind its new end kills whoever reads it."""

    path: str
    made: os.stat_result

    def change(self) -> str | None:
        """What has happened to the file since it was mapped; another file under its name has not."""
        before, now = self.made.st_size, self.size()
        if now != before:
            return f"'{self.path}' had {before} bytes when it was read and has {now}"
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        is_same = (found.st_dev, found.st_ino) == (self.made.st_dev, self.made.st_ino)
        if is_same and found.st_mtime_ns != self.made.st_mtime_ns:
            return f"'{self.path}' has been written to since it was read"
        return None


def require_file(path: str | os.PathLike[str]) -> None:
    """Raise OSError where a pipe or a device lies under this name: it may have no end, or be waited for."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(errno.EINVAL, "it is a pipe or a device, expected a file", os.fspath(path))


def open_bytes(path: str | os.PathLike[str]) -> bytes | FileMap:
    """The bytes of a file: a small one's are read, a large one's are mapped."""
    require_file(path)
    with open(path, "rb") as file:
        made = os.fstat(file.fileno())
        if made.st_size < SMALL:
            return file.read()
        found = FileMap(file.fileno(), 0, access=mmap.ACCESS_READ)
        found.path, found.made = os.path.abspath(path), made
        return found


def mapped(array: Any) -> mmap.mmap | None:
    """The mapped file that the array is a view of: pages that were only read to be copied need not stay in memory."""
    base: object = array
    while isinstance(base, (np.ndarray, memoryview)):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    if not isinstance(base, mmap.mmap) or not hasattr(mmap, "MADV_DONTNEED"):
        return None
    return base if memoryview(base).readonly else None


def release(data: Any) -> None:
    """Pages of a mapped file that have been read need not stay in memory; who looks again reads again."""
    if (file := mapped(data)) is not None:
        file.madvise(mmap.MADV_DONTNEED)


def in_pieces(data: memoryview) -> Iterator[memoryview]:
    """All of it, of a mapped file no more than a piece in memory at a time."""
    for start in range(0, len(data), PIECE):
        yield data[start : start + PIECE]
        release(data)


def files_of(arrays: Iterable[Array]) -> list[FileMap]:
    """The mapped files that some of these arrays are views of."""
    found = dict.fromkeys(mapped(array) for array in arrays)
    return [file for file in found if isinstance(file, FileMap)]


def files_behind(module: Module) -> list[FileMap]:
    """The mapped files that a module's constants are views of."""
    tensors = (tensor for graph in module.graphs for tensor in graph.all_tensors())
    constants = (tensor.buffer.behind for tensor in tensors if tensor.buffer is not None)
    return files_of([*(buffer.behind for buffer in module.buffers), *constants])


def require_unchanged(files: Iterable[FileMap]) -> None:
    """Refuse to compute with numbers of a file that has been written to."""
    for file in files:
        change = file.change()
        if change is not None:
            raise ModelError(f"{change}; load the model again, and replace files by renaming new ones")
