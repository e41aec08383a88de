"""Single files and folders of them as samples of a model that says how it wants them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from circle_train.data.images import SUFFIXES as PICTURES
from circle_train.data.images import Images
from circle_train.data.labelled import Labelled
from circle_train.errors import DataError
from circle_train.format.metadata.description import Description

SUFFIXES = {"image": PICTURES}
"""Of the files that are samples, by the kind of a model's input."""


def files_of(paths: Sequence[str | os.PathLike[str]], kind: str) -> list[Path]:
    """The files themselves, and all of the kind in folders, hidden ones left out."""
    suffixes = SUFFIXES[kind]
    found: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.suffix.lower() in suffixes)
            found += [
                p for p in inside if not any(part.startswith(".") for part in p.relative_to(path).parts)
            ]
        elif path.exists():
            found.append(path)
        else:
            raise DataError(f"'{path}': there is no such file or folder")
    if not found:
        raise DataError(f"{', '.join(map(str, paths))}: no file ends in {', '.join(suffixes)}")
    return found


def unlabelled(paths: Sequence[Path], asked: Description, classes: Sequence[str]) -> Labelled:
    """Samples of which nobody says what they are."""
    return Images(list(paths), np.zeros(len(paths), np.int32), tuple(classes), validation=0.0, asked=asked)
