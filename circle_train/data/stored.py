"""Arrays as they lie in files: who reads which, and where the header's word on type and shape is checked before memory
is taken for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib import import_module
from math import prod
from typing import Any

import numpy as np
from numpy.lib.npyio import NpzFile

from circle_train.available import available_bytes
from circle_train.data.coercion import NUMERIC
from circle_train.errors import DataError
from circle_train.ir import Tensor
from circle_train.ir.mapped import open_bytes, require_file
from circle_train.ir.tensor_type import Array

FilePath = str | os.PathLike[str]
Reader = Callable[[FilePath, Sequence[Tensor]], Any]

READERS: dict[str, Reader] = {}
"""By file suffix: what turns a path into an array, a list of them or a dict by name."""

LARGE = 64 << 20
"""Bytes from which on is asked what memory is left."""


def refuse_vast(nbytes: int, what: str) -> None:
    """DataError where something unpacks to more bytes than there are: a thousandth of them suffices to say so."""
    free = available_bytes() if nbytes >= LARGE else None
    if free is not None and nbytes > free:
        raise DataError(
            f"{what} unpacks to {nbytes:,} bytes, {free:,} are left; give an .npy file, which is mapped and not unpacked"
        )


def array_in(path: FilePath, dtype: np.dtype[Any], shape: tuple[int, ...], start: int) -> Array:
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


def member(archive: NpzFile, name: str) -> Array:
    """One array of an open .npz file; numpy gives the bytes of whatever else lies in it."""
    packed = {entry.filename: entry.file_size for entry in archive.zip.infolist()}  # type: ignore[union-attr]
    refuse_vast(packed.get(f"{name}.npy", packed.get(name, 0)), f"'{name}' in the archive")
    found: Array = archive[name]
    if not isinstance(found, np.ndarray):
        raise DataError(f"'{name}' in the archive is no array; write it with numpy.savez")
    return found


def reads(*suffixes: str) -> Callable[[Reader], Reader]:
    """Register a reader for files of these suffixes."""

    def add(reader: Reader) -> Reader:
        READERS.update(dict.fromkeys(suffixes, reader))
        return reader

    return add


@reads(".npy")
def read_npy(path: FilePath, tensors: Sequence[Tensor]) -> Any:
    """Mapped, not loaded, where it is large."""
    with open(path, "rb") as file:
        version = np.lib.format.read_magic(file)
        read_header = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}
        if version[0] not in read_header:
            raise DataError(f"'{path}' holds records with named fields, expected plain numbers")
        shape, is_fortran, dtype = read_header[version[0]](file)
        start = file.tell()
    array = array_in(path, dtype, shape[::-1] if is_fortran else shape, start)
    return array.T if is_fortran else array


@reads(".npz")
def read_npz(path: FilePath, tensors: Sequence[Tensor]) -> Any:
    """The only array; those saved without names, in order; or all, by name."""
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: member(archive, name) for name in archive.files}
    if len(arrays) == 1:
        return next(iter(arrays.values()))
    unnamed = [arrays.get(f"arr_{i}") for i in range(len(arrays))]
    return arrays if any(array is None for array in unnamed) else unnamed


def read(path: FilePath, tensors: Sequence[Tensor]) -> Any:
    suffix = os.path.splitext(path)[1]
    for home in ("files", "raw"):
        import_module(f"circle_train.data.{home}")  # each registers its own
    reader = READERS.get(suffix.lower())
    if reader is None:
        raise DataError(f"'{path}' ends in '{suffix}', expected one of {', '.join(sorted(READERS))}")
    try:
        require_file(path)
        return reader(path, tensors)
    except DataError:
        raise
    except Exception as error:  # damaged files make numpy, zipfile and zlib raise what they like
        raise DataError(f"'{path}' cannot be read: {error}; expected a whole {suffix} file") from error
