"""Rows of tables and arrays of archives, as they are read: words, numbers, classes."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from circle_train.data.stored import member
from circle_train.errors import DataError
from circle_train.ir.mapped import require_file
from circle_train.ir.tensor_type import Array
from circle_train.record import record

MOST_EXACT = 2**53
"""Up to which float64 tells whole numbers apart."""
LARGEST_TABLE = 2 << 30
"""Bytes of a .csv file, which is read whole."""


@record
class Origin:
    """Where samples stood in a table, so that what was trained finds them again: it is stored in the model's file."""

    columns: tuple[str, ...] = ()
    """What the model reads, in this order."""
    targets: tuple[str, ...] = ()
    """What is to be foreseen."""
    group: str | None = None
    length: int | None = None
    """Rows of a window; None where each row is a sample."""

    @property
    def details(self) -> dict[str, Any]:
        """For the model's description."""
        return {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in vars(self).items()
            if value
        }


def found_in(header: Sequence[str], origin: Origin, path: Any) -> Origin:
    """With the columns that the model reads; all that are named must be there."""
    known, apart = set(header), {*origin.targets, origin.group}
    for name in (*origin.targets, *([origin.group] if origin.group else []), *origin.columns):
        if name not in known:
            raise DataError(
                f"'{path}' has no column '{name}', its columns are {', '.join(header)}; name one of these, or rename it there"
            )
    if origin.columns:
        return origin
    return replace(origin, columns=tuple(name for name in header if name not in apart))


def read_table(path: Path) -> tuple[list[str], list[list[str]]]:
    """Names of the columns, and rows of as many words."""
    try:
        require_file(path)
        if path.stat().st_size > LARGEST_TABLE:
            raise DataError(
                f"'{path}' has {path.stat().st_size:,} bytes, expected at most {LARGEST_TABLE:,}; give an .npz file"
            )
        with open(path, newline="", encoding="utf-8-sig") as file:
            header, *rows = [row for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error, ValueError) as error:
        raise DataError(
            f"'{path}' cannot be read as a table ({error}); give a .csv file with names in its first row"
        ) from None
    uneven = next((number for number, row in enumerate(rows, 2) if len(row) != len(header)), None)
    if uneven is not None or not rows:
        found = f"row {uneven} has other columns than the first" if uneven else "there are no rows"
        raise DataError(f"'{path}': {found}; expected {len(header)} in each")
    return header, rows


def numbered(words: Sequence[str]) -> tuple[Array, tuple[str, ...]]:
    """Numbers of words, and the words in order; numpy's texts would all be as long as the longest."""
    names = sorted(set(words))
    places = {name: place for place, name in enumerate(names)}
    return np.array([places[word] for word in words], np.int32), tuple(names)


def classes_of(labels: Array | list[str]) -> tuple[Array, tuple[str, ...]]:
    """Class numbers and names; numbers with fractions stay what they are."""
    words = labels if isinstance(labels, list) else _words_in(labels)
    if words is not None:
        try:
            labels = np.array([float(word) for word in words])
        except ValueError:
            return numbered(words)
    labels = np.asarray(labels)
    if not np.isfinite(labels).all():
        raise DataError("labels hold numbers that are none; leave those rows out")
    if (abs(labels) > MOST_EXACT).any():
        raise DataError(
            f"labels reach {abs(labels).max():g}, expected at most {MOST_EXACT}; give classes as words"
        )
    if (labels != np.floor(labels)).any():
        return labels.astype(np.float32), ()
    values, places = np.unique(labels.astype(np.int64), return_inverse=True)
    return places.reshape(-1).astype(np.int32), tuple(map(str, values))


def _words_in(labels: Array) -> list[str] | None:
    """None where the labels are numbers."""
    if labels.dtype.kind not in "US":
        return None
    return [
        one.decode("utf-8", "replace") if isinstance(one, bytes) else str(one)
        for one in labels.ravel().tolist()
    ]


def archive_in(path: Path) -> dict[str, Array]:
    """All arrays of an .npz file."""
    try:
        require_file(path)
        with np.load(path, allow_pickle=False) as archive:
            return {name: member(archive, name) for name in archive.files}
    except Exception as error:  # damaged files make numpy, zipfile and zlib raise what they like
        raise DataError(
            f"'{path}' cannot be read ({error}); give an .npz file of arrays, or a .csv file"
        ) from None


def starts_of(marks: Sequence[Any], length: int, step: int) -> list[int]:
    """First rows of the windows in which the mark stays the same."""
    ends = [i for i in range(1, len(marks)) if marks[i] != marks[i - 1]]
    return [
        start
        for begin, end in zip([0, *ends], [*ends, len(marks)], strict=True)
        for start in range(begin, end - length + 1, step)
    ]


def numbers_of(rows: list[list[str]], header: list[str], columns: Sequence[str], path: Any) -> Array:
    """These columns as numbers."""
    first = {name: place for place, name in reversed(list(enumerate(header)))}
    places = [first[name] for name in columns]
    try:
        return np.array([[float(row[place]) for place in places] for row in rows], np.float32)
    except ValueError as error:
        raise DataError(
            f"'{path}': {error}; expected a number in every column that the model reads (columns=, --columns)"
        ) from None
