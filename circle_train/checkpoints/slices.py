"""A file of which no more is in memory, or in the process's addresses, than the array that is being read."""

from __future__ import annotations

import os
from math import prod
from typing import Any

import numpy as np

from circle_train.errors import CheckpointError
from circle_train.ir.mapped import PIECE
from circle_train.ir.tensor_type import Array


class FileSlices:
    """Reads what is asked for, from a file that stays open and must not change meanwhile."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 -- as long as somebody may ask
        self._made = os.fstat(self._file.fileno())

    def __len__(self) -> int:
        return self._made.st_size

    def __getitem__(self, at: slice) -> bytearray:
        start, end, _ = at.indices(len(self))
        found = bytearray(max(end - start, 0))
        self.read_into(memoryview(found), start)
        return found

    def read_into(self, memory: memoryview, start: int) -> None:
        """Fill the memory from this place on, piece by piece as the system gives them."""
        self._file.seek(start)
        done = 0
        while done < len(memory):
            count = self._file.readinto(memory[done : done + PIECE])
            if not count:
                raise CheckpointError(f"checkpoint {self.change()}; load another one before you go on")
            done += count

    def change(self) -> str | None:
        """What has happened to the file since it was opened."""
        now, made = os.fstat(self._file.fileno()), self._made
        if now.st_size != made.st_size:
            return f"'{self.path}' had {made.st_size} bytes when it was read and has {now.st_size}"
        is_same = now.st_mtime_ns == made.st_mtime_ns
        return None if is_same else f"'{self.path}' has been written to since it was read"


class Stored:
    """An array of a file, read whenever it is asked for; numpy takes it for one."""

    def __init__(self, file: FileSlices, start: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self.file, self.start, self.dtype, self.shape = file, start, dtype, shape

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        found = np.empty(prod(self.shape), self.dtype)
        self.file.read_into(found.view(np.uint8).data, self.start)
        return found.reshape(self.shape).astype(dtype or self.dtype, copy=False)
