"""Windows of sensors and rows of tables as labelled samples."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from circle_train.data.labelled import Labelled
from circle_train.data.rows import (
    Origin,
    archive_in,
    classes_of,
    found_in,
    numbered,
    numbers_of,
    read_table,
    starts_of,
)
from circle_train.errors import ConfigError, DataError
from circle_train.format.metadata.description import Description
from circle_train.ir import Tensor
from circle_train.ir.tensor_type import Array
from circle_train.record import record


@record
class Arrays(Labelled):
    """Samples that lie in memory or in a mapped file; each column of the last axis is normalised by itself."""

    kind: ClassVar[str] = "features"

    origin: Origin = field(default_factory=Origin)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of what a sample's last axis holds."""
        return self.origin.columns

    def describe(self, tensor: Tensor, known: Description | None) -> Description:
        found, wanted = self.items[0].shape, (tensor.shape_signature or tensor.shape)[1:]
        if _essential(found) != _essential(wanted) and not _agree(found, wanted):
            shapes = ["×".join(map(str, shape)) or "one number" for shape in (found, wanted)]
            raise DataError(
                f"{self.name or 'the data'}: a sample is {shapes[0]}, '{tensor.name}' takes {shapes[1]}"
            )
        mean, std = self.asked.mean, self.asked.std
        if known is not None and known.kind == self.kind and known.mean and len(known.mean) in (1, found[-1]):
            mean, std = known.mean, known.std
        return Description(
            kind="features", mean=mean, std=std, labels=self.classes, scores=self.scores, details=self.origin.details
        )  # fmt: skip

    def decode(self, item: Any, how: Description, random: np.random.Generator | None) -> Array:
        return np.asarray(item, np.float32)


def windows(  # noqa: PLR0913 -- the columns of a recording, each by name
    source: str | os.PathLike[str] | tuple[Any, Any],
    *,
    label: str = "label",
    group: str | None = None,
    length: int | None = None,
    step: int | None = None,
    columns: Sequence[str] | None = None,
    validation: float | None = None,
    normalise: bool = True,
) -> Arrays:
    """Windows of sensors: an .npz file of `x` (windows × time × channels) and labels, a .csv file of a row a moment, or (x, y).

    Args:
        source: the file, or arrays of windows and labels.
        label, group: names of the arrays or columns; windows of one group (a person, a device) train or validate together.
        length, step: of windows in rows, for .csv files; where the label or group changes a window ends.
        columns: of a .csv file, those that the model reads; unless given all but label and group.
        validation: the fraction that validates (default: a fifth, of 1,000 samples and more a tenth).
        normalise: subtract each channel's mean and divide by its deviation; both go into the export.
    """
    origin = Origin(tuple(columns or ()), (label,), group, length)
    labels: Array | list[str]
    if isinstance(source, tuple) or Path(source).suffix.lower() != ".csv":
        told = {"length": length, "step": step, "columns": columns}
        if given := [name for name, value in told.items() if value is not None]:
            raise ConfigError(
                f"{given[0]} is for .csv files; windows of arrays are cut already: leave it out"
            )
    if isinstance(source, tuple):
        x, labels, groups, name = np.asarray(source[0]), np.asarray(source[1]), None, "the data"
    else:
        path = Path(source)
        name = str(path)
        if path.suffix.lower() == ".csv":
            x, labels, groups, origin = _cut_rows(path, origin, step)
        else:
            x, labels, groups = _of_archive(path, label, group)
    return _labelled(x, labels, groups, validation=validation, normalise=normalise, name=name, origin=origin)


def table(
    path: str | os.PathLike[str],
    *,
    label: str | Sequence[str],
    group: str | None = None,
    columns: Sequence[str] | None = None,
    validation: float | None = None,
    normalise: bool = True,
) -> Arrays:
    """Rows of a .csv file: words in the label's column are classes, numbers with fractions are values to foresee.

    Args:
        path: the file; its first row names the columns.
        label: the column to foresee, or several: of zeros and ones they are labels, else values.
        group: a column; rows of one group train or validate together.
        columns: those that the model reads; unless given all but label and group.
        validation: the fraction that validates (default: a fifth, of 1,000 samples and more a tenth).
        normalise: subtract each column's mean and divide by its deviation; both go into the export.
    """
    header, rows = read_table(Path(path))
    wanted = [label] if isinstance(label, str) else list(label)
    origin = found_in(header, Origin(tuple(columns or ()), tuple(wanted), group), path)
    x = numbers_of(rows, header, origin.columns, path)
    groups = None if group is None else numbered([row[header.index(group)] for row in rows])[0]
    if isinstance(label, str):
        labels: Array | list[str] = [row[header.index(label)] for row in rows]
    else:
        labels = numbers_of(rows, header, wanted, path)
    names = tuple(wanted) if len(wanted) > 1 and set(np.unique(labels)) <= {0.0, 1.0} else ()
    return _labelled(
        x, labels, groups, validation=validation, normalise=normalise, name=str(path), origin=origin, several=names
    )  # fmt: skip


def _is_small(x: Array) -> bool:
    """Whether all are numbers that float32 can hold."""
    return bool(np.isfinite(x).all()) and bool((abs(x) <= np.finfo(np.float32).max).all())


def _labelled(  # noqa: PLR0913 -- what Arrays are made of
    x: Array, labels: Array | list[str], groups: Array | None, *, validation: float | None, normalise: bool, name: str,
    origin: Origin, several: tuple[str, ...] = (),
) -> Arrays:  # fmt: skip
    _refuse_strange(x, labels, groups, name)
    if x.dtype.kind not in "fiub" or (x.dtype.kind == "f" and not _is_small(x)):
        raise DataError(f"{name}: samples hold {x.dtype} or numbers that are none; expected finite numbers")
    is_rows = isinstance(labels, np.ndarray) and labels.ndim > 1
    numbers, classes = (labels, several) if is_rows else classes_of(labels)
    data = Arrays(
        list(x), np.asarray(numbers), classes, groups=groups, validation=validation, name=name, origin=origin
    )  # fmt: skip
    if not normalise:
        return data
    train, _ = data.parts(seed=0)
    known = np.stack(train.items).astype(np.float64).reshape(-1, x.shape[-1])
    mean, std = known.mean(0), known.std(0)
    asked = Description(mean=tuple(map(float, mean)), std=tuple(map(float, np.where(std > 1e-12, std, 1.0))))
    return replace(data, asked=asked)


def _refuse_strange(x: Array, labels: Array | list[str], groups: Array | None, name: str) -> None:
    """Samples of at least one number each, as many labels, and what they may be."""
    if x.ndim < 2 or not x[:1].size:
        raise DataError(
            f"{name}: samples have shape {x.shape}, expected samples × numbers, at least one of each"
        )
    others = {"labels": labels, "groups": np.zeros(len(x)) if groups is None else groups}
    for what, found in others.items():
        if isinstance(found, np.ndarray) and (not 1 <= found.ndim <= 2 or found.dtype.kind not in "fiubUS"):
            raise DataError(
                f"{name}: {what} hold {found.dtype} of shape {found.shape}, expected numbers or words"
            )
        if len(found) != len(x):
            raise DataError(
                f"{name}: there are {len(x)} samples and {len(found)} {what}, expected as many of each"
            )


def _of_archive(path: Path, label: str, group: str | None) -> tuple[Array, Array, Array | None]:
    """x, labels and groups of an .npz file."""
    found = archive_in(path)
    name = "y" if label == "label" not in found else label
    wanted = ["x", name, *([group] if group else [])]
    if missing := [one for one in wanted if one not in found]:
        raise DataError(f"'{path}' has no array '{missing[0]}', it holds {', '.join(found)}")
    return found["x"], found[name], found[group] if group else None


def _cut_rows(
    path: Path, origin: Origin, step: int | None
) -> tuple[Array, list[str], Array | None, Origin]:  # fmt: skip
    """Windows of rows in which neither label nor group changes."""
    length, group = origin.length, origin.group
    if length is None or length < 1 or (step is not None and step < 1):
        raise ConfigError(
            f"windows of '{path}': length is {length} and step {step}, expected how many rows a window has"
        )
    header, rows = read_table(path)
    origin = found_in(header, origin, path)
    numbers = numbers_of(rows, header, origin.columns, path)
    marks = [
        (row[header.index(origin.targets[0])], row[header.index(group)] if group else "") for row in rows
    ]
    starts = starts_of(marks, length, step or length)
    if not starts:
        raise DataError(f"'{path}': no stretch of one label has {length} rows; make windows shorter")
    x = np.stack([numbers[start : start + length] for start in starts])
    groups = numbered([marks[start][1] for start in starts])[0] if group else None
    return x, [marks[start][0] for start in starts], groups, origin


def _essential(shape: Sequence[int]) -> list[int]:
    return [size for size in shape if size != 1]


def _agree(found: Sequence[int], wanted: Sequence[int]) -> bool:
    """Whether sizes are the same where they are fixed."""
    return len(found) == len(wanted) and all(w in (-1, f) for f, w in zip(found, wanted, strict=True))
