"""Small data sets in the MNIST family's files."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np

from circle_train.ir.tensor_type import Array


def idx(path: Path, array: Array) -> Path:
    """An idx file, compressed if its name says so."""
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wb") as file:
        file.write(header + array.astype(np.uint8).tobytes())
    return path


def make_family(folder: Path) -> Path:
    """A small data set in the form of the MNIST family: images of class k are bright in row 2k."""
    numbers = np.random.default_rng(0)
    for stem, count in (("train", 96), ("t10k", 20)):
        labels = np.arange(count) % 10
        images = numbers.integers(0, 60, (count, 28, 28))
        images[np.arange(count), 2 * labels] = 255
        idx(folder / f"{stem}-images-idx3-ubyte.gz", images)
        idx(folder / f"{stem}-labels-idx1-ubyte", labels)
    return folder
