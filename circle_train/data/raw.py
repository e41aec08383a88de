"""ONERT's raw data files: no header; all samples of the first tensor, then all of the second, …"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any, BinaryIO

import numpy as np

from circle_train.data.coercion import public_name
from circle_train.data.stored import FilePath, array_in, reads
from circle_train.errors import DataError
from circle_train.format.atomic import atomic_write
from circle_train.ir import Tensor
from circle_train.ir.tensor_type import Array

CHUNK = 1 << 24
"""About how many bytes are converted at a time."""

Convert = Callable[[Array], Array]


@reads(".bin", ".raw")
def read_raw(path: FilePath, tensors: Sequence[Tensor]) -> Any:
    """The tensors' samples, mapped into memory; the file must hold a whole number of them."""
    samples = [_sample_bytes(tensor) for tensor in tensors]
    size = os.stat(path).st_size
    count, rest = divmod(size, sum(samples))
    if rest or not count:
        each = " + ".join(
            f"{nbytes} ('{public_name(t)}')" for t, nbytes in zip(tensors, samples, strict=True)
        )
        raise DataError(
            f"'{path}' has {size} bytes, expected a multiple of {sum(samples)} = {each} bytes a sample; "
            "raw files hold all samples of the first tensor, then all of the next"
        )
    arrays, offset = [], 0
    for tensor, nbytes in zip(tensors, samples, strict=True):
        shape = (count, *tensor.shape[1:])
        arrays.append(array_in(path, _dtype(tensor), shape, offset))
        offset += count * nbytes
    return arrays[0] if len(arrays) == 1 else arrays


def write_raw(
    path: FilePath, arrays: Iterable[tuple[Array, Array | None, Convert]]
) -> tuple[int, list[tuple[int, ...]]]:
    """Write (samples, which of them in which order, conversion) one by one; bytes and sample shapes.

    Only a few megabytes are in memory at a time, so that mapped arrays of any size can be written.
    """
    total, shapes = 0, []
    with atomic_write(path) as file:
        for array, order, convert in arrays:
            nbytes, shape = _write(file, array, order, convert)
            total += nbytes
            shapes.append(shape)
    return total, shapes


def _write(
    file: BinaryIO, array: Array, order: Array | None, convert: Convert
) -> tuple[int, tuple[int, ...]]:
    count = len(array) if order is None else len(order)
    rows = max(CHUNK // max(array[:1].nbytes, 1), 1)
    written, shape = 0, ()
    for start in range(0, count, rows):
        chosen = slice(start, min(start + rows, count))
        chunk = convert(np.asarray(array[chosen if order is None else order[chosen]]))
        written += file.write(np.ascontiguousarray(chunk).data)
        shape = chunk.shape[1:]
    return written, shape


def _sample_bytes(tensor: Tensor) -> int:
    if any(size < 1 for size in tensor.shape[1:]):
        raise DataError(
            f"'{public_name(tensor)}' has shape {tensor.shape}: a raw file needs known sizes; give .npy"
        )
    return prod(tensor.shape[1:]) * _dtype(tensor).itemsize


def _dtype(tensor: Tensor) -> np.dtype[Any]:
    dtype = tensor.dtype.numpy
    if dtype is None:
        raise DataError(
            f"'{public_name(tensor)}' holds {tensor.dtype.name}, which a raw file cannot; give a .npy file"
        )
    little: np.dtype[Any] = dtype.newbyteorder("<")
    return little
