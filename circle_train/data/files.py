"""Readers of common data files: idx (the MNIST family), CSV, folders of images by class."""

from __future__ import annotations

import csv
import gzip
import io
import os
from collections.abc import Sequence
from itertools import islice
from math import prod
from typing import Any

import numpy as np

from circle_train.data.pictures import images
from circle_train.data.rows import numbered
from circle_train.data.stored import FilePath, array_in, reads, refuse_vast
from circle_train.errors import DataError
from circle_train.format.metadata.description import Description
from circle_train.ir import Tensor
from circle_train.ir.tensor_type import Array

MOST_CLASSES = 1_000_000
"""Beyond, a label is damage, or a number that is no class's: rows of zeros and a one would fill the disk."""
IDX_DTYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


@reads(".gz", ".idx", "")
def read_path(path: FilePath, tensors: Sequence[Tensor]) -> Any:
    """An idx file, plain or compressed, or the pictures of a folder, by class, as 0 … 1 in the model's size."""
    if not os.path.isdir(path):
        return read_idx(path)
    source = images(path, validation=0.0, scale=255.0)
    return source.open(tensors[0], source.describe(tensors[0], None))[:]


@reads(".csv")
def read_csv_numbers(path: FilePath, tensors: Sequence[Tensor]) -> Array:
    """All columns as numbers."""
    return read_csv(path, None)[0]


def read_idx(path: FilePath) -> Array:
    """The array of an idx file; mapped, unless it is compressed."""
    if os.path.splitext(path)[1] == ".gz":
        with gzip.open(path, "rb") as file:
            head = file.read(1024)
            dtype, shape, start = _idx_header(head, path)
            expected = start + prod(shape) * dtype.itemsize
            refuse_vast(expected, f"'{path}'")
            content = head + file.read(max(expected + 1 - len(head), 0))  # and not what a bomb holds
        _check_size(path, len(content), expected)
        return np.frombuffer(content, dtype, offset=start).reshape(shape)
    with open(path, "rb") as file:
        head = file.read(1024)
    dtype, shape, start = _idx_header(head, path)
    _check_size(path, os.stat(path).st_size, start + prod(shape) * dtype.itemsize)
    return array_in(path, dtype, shape, start)


def read_csv(path: FilePath, label: str | int | None) -> tuple[Array, Array | None, list[str]]:
    """Numbers of every column but the label's; the labels as class numbers, and their names, if any."""
    with open(path, newline="", encoding="utf-8-sig") as file:
        text = file.read()
    rows = list(islice(csv.reader(io.StringIO(text)), 1))
    if not rows:
        raise DataError(f"'{path}' is empty, expected rows of numbers")
    header = rows[0] if not _is_numeric(rows[0], label) else []
    columns = [index for index in range(len(rows[0])) if index != _column(label, header, rows[0], path)]
    numbers = _load(text, path, bool(header), np.float32, columns)
    if len(columns) == len(rows[0]):
        return numbers, None, []
    (column,) = set(range(len(rows[0]))) - set(columns)
    words = _load(text, path, bool(header), np.object_, [column])[:, 0].tolist()
    try:
        classes = np.array([float(word) for word in words])
    except ValueError:
        places, names = numbered(words)
        return numbers, places, list(names)
    whole = bool((classes == np.floor(classes)).all())
    return numbers, classes.astype(np.int32 if whole else np.float32), []


def read_image_folder(path: FilePath, size: tuple[int, int]) -> tuple[Array, Array, list[str]]:
    """uint8 NHWC images of three channels resized to (height, width), class numbers, and the subfolders' names."""
    source = images(path, validation=0.0)
    how = Description(kind="image", size=size, channels=3, details={"crop": "center"})
    pictures = np.stack([source.decode(item, how, None) for item in source.items])
    return pictures, source.labels, list(source.classes)


def one_hot(labels: Array, classes: int, place: str) -> Array:
    """Float32 rows with a one at the class number."""
    require_classes(labels, classes, place)
    flat = np.asarray(labels).reshape(-1)
    rows = np.zeros((len(flat), classes), np.float32)
    rows[np.arange(len(flat)), flat.astype(np.int64)] = 1
    return rows


def require_classes(labels: Array, classes: int, place: str) -> None:
    """Every label must be a class's number."""
    if not 0 < classes <= MOST_CLASSES:
        raise DataError(
            f"{place}: they go up to {classes - 1:.10g}, expected at most {MOST_CLASSES:,} classes"
        )
    flat = np.asarray(labels).reshape(-1)
    wrong = (flat < 0) | (flat >= classes) | (flat != np.floor(flat))
    if wrong.any():
        first = int(np.argmax(wrong))
        raise DataError(
            f"{place}: label {flat[first]} at position {first}, expected whole numbers 0 … {classes - 1}"
        )


def _idx_header(head: bytes, path: FilePath) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    """Element type, shape and where the elements start."""
    if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in IDX_DTYPES or len(head) < 4 + 4 * head[3]:
        raise DataError(
            f"'{path}' starts with {head[:4].hex(' ') or 'nothing'}, expected an idx file (00 00 type rank)"
        )
    shape = np.frombuffer(head, ">u4", head[3], 4)
    return np.dtype(IDX_DTYPES[head[2]]), tuple(int(size) for size in shape), 4 + 4 * head[3]


def _check_size(path: FilePath, found: int, expected: int) -> None:
    if found != expected:
        raise DataError(
            f"'{path}' has {found} bytes (unpacked), its header asks for {expected}; get an intact copy"
        )


def _is_numeric(row: Sequence[str], label: str | int | None) -> bool:
    """Whether a row is data rather than a header: a name in the label's place decides nothing by itself."""
    numbers = 0
    for word in row:
        try:
            float(word)
            numbers += 1
        except ValueError:
            continue
    return numbers >= len(row) - (label is not None) and numbers > 0


def _column(
    label: str | int | None, header: Sequence[str], first: Sequence[str], path: FilePath
) -> int | None:
    if label is None:
        return None
    if isinstance(label, str) and not label.lstrip("-").isdigit():
        if label not in header:
            raise DataError(
                f"'{path}' has no column '{label}', its columns are {', '.join(header) or 'not named'}"
            )
        return header.index(label)
    index = int(label)
    if not -len(first) <= index < len(first):
        raise DataError(f"'{path}' has {len(first)} columns, there is no column {index}")
    return index % len(first)


def _load(text: str, path: FilePath, header: bool, dtype: Any, columns: Sequence[int]) -> Array:
    try:
        found: Array = np.loadtxt(
            io.StringIO(text),
            dtype,
            delimiter=",",
            skiprows=int(header),
            usecols=columns,
            ndmin=2,
            quotechar='"',
        )
    except ValueError as error:
        raise DataError(f"'{path}': {error}; expected a number in every cell but the label's") from None
    return found
