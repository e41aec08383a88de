"""Data files for training: split, scaled, laid out and one-hot as asked, in ONERT's raw layout."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import floor, isfinite
from pathlib import Path
from typing import Any

import numpy as np

from circle_train.data.coercion import NUMERIC
from circle_train.data.files import one_hot, read_csv, read_idx, read_image_folder, require_classes
from circle_train.data.raw import write_raw
from circle_train.data.stored import member
from circle_train.errors import ConfigError, DataError, shown
from circle_train.format.atomic import make_folder
from circle_train.ir.mapped import require_file
from circle_train.ir.tensor_type import Array
from circle_train.kinds import require_seed
from circle_train.record import record


@record
class Source:
    """Samples and, if there are any, labels with their classes' names."""

    x: Array
    y: Array | None = None
    classes: tuple[str, ...] = ()


@record
class Preparation:
    """What to do to the samples on their way.

    Inputs become float32 (x - offset) / scale. `parts` are names with a fraction (below 1), a count, or
    None for the rest.
    """

    parts: tuple[tuple[str, float | None], ...] = (("train", None),)
    classes: int | None = None
    """One-hot labels with so many classes; 0: as many as there are."""
    scale: float = 1.0
    offset: float = 0.0
    transpose: tuple[int, ...] | None = None
    """Order of a sample's axes, e.g. (2, 0, 1) from NHWC to NCHW."""
    add_channel: bool = False
    """Give N×H×W images a last axis of one channel."""
    seed: int | None = None
    """Shuffle before splitting."""


@record
class Made:
    """A file that was written."""

    path: Path
    samples: int
    shape: tuple[int, ...]
    dtype: str
    nbytes: int


def open_source(
    path: str | os.PathLike[str],
    labels: str | os.PathLike[str] | None = None,
    label_column: str | int | None = None,
    image_size: tuple[int, int] = (224, 224),
) -> Source:
    """Samples and labels of a .npy, .npz, .csv or idx file, or a folder of images by class."""
    file = Path(path)
    y = None if labels is None else _read_array(Path(labels), "labels")
    if file.is_dir():
        images, numbers, names = read_image_folder(file, image_size)
        return Source(images, numbers if y is None else y, tuple(names))
    if file.suffix == ".npz":
        x, found = _read_npz(file)
        return Source(x, found if y is None else y)
    if file.suffix == ".csv":
        numbers, found, names = _guarded(file, lambda: read_csv(file, label_column))
        return Source(numbers, found if y is None else y, tuple(names))
    return Source(_read_array(file, "samples"), y)


def prepare(source: Source, how: Preparation, out: str | os.PathLike[str], prefix: str = "") -> list[Made]:
    """Write `{prefix.}{part}.input.{N}.bin` and `.output.{N}.bin` for every part; what was made."""
    for what, array in (("samples", source.x), ("labels", source.y)):
        if array is not None and (not array.ndim or array.dtype.kind not in NUMERIC):
            raise DataError(
                f"the {what} are of type {array.dtype} and shape {array.shape}, expected rows of numbers"
            )
    if how.seed is not None:
        require_seed(how.seed)
    count = len(source.x)
    if not count or (source.y is not None and len(source.y) != count):
        labels = "no" if source.y is None else len(source.y)
        raise DataError(
            f"there are {count} samples and {labels} labels, expected as many of each, at least one"
        )
    order = np.arange(count) if how.seed is None else np.random.default_rng(how.seed).permutation(count)
    convert_y = None if source.y is None else _label_conversion(source.y, how.classes)
    folder = Path(out)
    make_folder(folder, "folder")
    made, start = [], 0
    for name, size in part_sizes(how.parts, count):
        chosen = order[start : start + size]
        start += size
        stem = f"{prefix}.{name}" if prefix else name
        made.append(
            _write(folder / f"{stem}.input.{size}.bin", source.x, chosen, lambda chunk: _input(chunk, how))
        )
        if source.y is not None:
            made.append(_write(folder / f"{stem}.output.{size}.bin", source.y, chosen, convert_y))
    return made


def part_sizes(parts: Sequence[tuple[str, float | None]], count: int) -> list[tuple[str, int]]:
    """How many samples each part gets: fractions of all, counts as they are, None what is left."""
    sizes = [
        None if size is None else floor(size * count + 1e-6) if 0 < size < 1 else int(size)
        for _, size in parts
    ]
    open_parts = [name for (name, _), size in zip(parts, sizes, strict=True) if size is None]
    if len(open_parts) > 1:
        raise ConfigError(f"the parts {', '.join(open_parts)} have no size; only one can take the rest")
    left = count - sum(size for size in sizes if size is not None)
    given = [left if size is None else size for size in sizes]
    if left < 0 or min(given, default=0) < 1:
        wanted = ", ".join(f"{name} {size}" for (name, _), size in zip(parts, given, strict=True))
        raise DataError(f"{count} samples cannot be split into {wanted}; ask for fewer, at least one each")
    return [(name, size) for (name, _), size in zip(parts, given, strict=True)]


def _write(path: Path, array: Array, chosen: Array, convert: Any) -> Made:
    dtype = convert(np.asarray(array[chosen[:1]])).dtype
    nbytes, (shape,) = write_raw(path, [(array, chosen, convert)])
    return Made(path, len(chosen), shape, str(dtype), nbytes)


def _input(chunk: Array, how: Preparation) -> Array:
    values = chunk.astype(np.float32)
    if how.offset or how.scale != 1:
        values = (values - np.float32(how.offset)) / np.float32(how.scale)
    if how.add_channel and values.ndim == 3:
        values = values[..., np.newaxis]
    if how.transpose is not None:
        values = values.transpose(0, *(axis + 1 for axis in how.transpose))
    return values


def _label_conversion(labels: Array, classes: int | None) -> Any:
    """Labels as float32 or int32, or as one-hot rows."""
    if classes is None:
        kind = np.float32 if np.asarray(labels[:1]).dtype.kind == "f" else np.int32
        return lambda chunk: chunk.astype(kind)
    largest = float(np.max(labels))
    if not classes and not isfinite(largest):
        raise DataError(f"labels: the largest is {largest}, expected numbers of classes")
    number = classes or int(largest) + 1
    require_classes(np.asarray(labels), number, "labels")
    return lambda chunk: one_hot(chunk, number, "labels")


def _read_array(path: Path, what: str) -> Array:
    """One array of a .npy, .npz or idx file, mapped where that is possible."""
    if path.suffix == ".npy":
        found: Array = _guarded(path, lambda: np.load(path, mmap_mode="r", allow_pickle=False))
        return found
    if path.suffix == ".npz":
        return _read_npz(path)[0]
    if path.suffix in ("", ".gz", ".idx") or path.name.endswith("ubyte"):
        idx: Array = _guarded(path, lambda: read_idx(path))
        return idx
    raise DataError(
        f"{what}: '{path}' ends in '{path.suffix}', expected .npy, .npz, .csv, idx or a folder of images"
    )


def _read_npz(path: Path) -> tuple[Array, Array | None]:
    """The arrays x and y, or the only array."""
    found: tuple[Array, Array | None] = _guarded(path, lambda: _unpacked(path))
    return found


def _unpacked(path: Path) -> tuple[Array, Array | None]:
    with np.load(path, allow_pickle=False) as archive:
        if "x" in archive.files:
            return member(archive, "x"), member(archive, "y") if "y" in archive.files else None
        if len(archive.files) == 1:
            return member(archive, archive.files[0]), None
        raise DataError(f"'{path}' holds {', '.join(archive.files)}, expected 'x' and 'y', or one array")


def _guarded(path: Path, read: Any) -> Any:
    try:
        require_file(path)
        return read()
    except DataError:
        raise
    except Exception as error:  # damaged files make numpy, zipfile and zlib raise what they like
        raise DataError(f"'{path}' cannot be read: {shown(error)}; give an intact file") from error
