"""Files and folders as samples of a model, in the size and scale that its file or the caller says."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from circle_train.data.dataset import Dataset, Stream, open_data, training_count
from circle_train.data.files import one_hot
from circle_train.data.images import SUFFIXES as PICTURES
from circle_train.data.images import Images
from circle_train.data.images import images as pictures
from circle_train.data.labelled import Labelled
from circle_train.data.sounds import SUFFIXES as RECORDINGS
from circle_train.data.sounds import Piece, Sounds, sounds
from circle_train.errors import DataError
from circle_train.format.metadata.description import Description
from circle_train.ir import Tensor
from circle_train.record import record

SPLIT_SEED = 0
"""Of which samples of a folder validate: the same ones in every run, so that a resumed fit goes on with them."""
SUFFIXES = {"image": PICTURES, "audio": RECORDINGS}
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
    labels = np.zeros(len(paths), np.int32)
    if asked.kind == "audio":
        pieces = [Piece(path) for path in paths]
        return Sounds(pieces, labels, tuple(classes), validation=0.0, asked=asked)
    return Images(list(paths), labels, tuple(classes), validation=0.0, asked=asked)


@record
class Folder(Dataset):
    """A folder of pictures by class as inputs and targets; a part that is split off has its share of each class."""

    source: Labelled
    how: Description
    tensors: tuple[Tensor, Tensor]
    """The input and the target."""

    def split(self, fraction: float) -> tuple[Dataset, Dataset | None]:
        if training_count(len(self), fraction) == len(self):
            return self, None
        train, held_out = replace(self.source, validation=fraction, held_out=None).parts(SPLIT_SEED)
        other = None if held_out is None else _folder(held_out, self.how, self.tensors)
        return _folder(train, self.how, self.tensors), other


def open_any(
    x: Any, y: Any, inputs: Sequence[Tensor], targets: Sequence[Tensor], known: Description | None
) -> Dataset | Stream:
    """What `open_data` takes, and folders of pictures; `known` is what the model says of its input. Without targets nobody
    asks for classes."""
    if y is None and isinstance(x, (str, os.PathLike)) and os.path.isdir(x):
        if len(targets) == 1:
            return open_folder(x, inputs, targets, known, Description())
        if not targets and (known is None or known.kind in SUFFIXES):
            return _open_unlabelled(x, inputs, known)
    return open_data(x, y, inputs, targets)


def _open_unlabelled(
    path: str | os.PathLike[str], inputs: Sequence[Tensor], known: Description | None
) -> Dataset:
    """All files of a folder and of those within, in the size and scale that the model says."""
    _require_one(path, inputs)
    kind = "image" if known is None else known.kind
    source = unlabelled(files_of([path], kind), Description(kind=kind), known.labels if known else ())
    return Dataset([source.open(inputs[0], _scaled(source.describe(inputs[0], known)))], [])


def _require_one(path: str | os.PathLike[str], inputs: Sequence[Tensor]) -> None:
    if len(inputs) != 1:
        raise DataError(
            f"'{path}' is a folder of samples, but the model takes {len(inputs)} inputs; give arrays"
        )


def _scaled(how: Description) -> Description:
    """Pixels become 0 … 1 where neither the model's file nor the caller says otherwise."""
    return replace(how, mean=(0.0,), std=(255.0,)) if how.mean is None and how.kind == "image" else how


def open_folder(
    path: str | os.PathLike[str], inputs: Sequence[Tensor], targets: Sequence[Tensor], known: Description | None,
    asked: Description,
) -> Folder:  # fmt: skip
    """Pictures by class for a model."""
    _require_one(path, inputs)
    source = _samples_in(path, known, asked)
    how = _scaled(source.describe(inputs[0], known))
    source = _numbered(source, known.labels if known else (), targets[0])
    return _folder(source, how, (inputs[0], targets[0]))


def _samples_in(
    path: str | os.PathLike[str], known: Description | None, asked: Description
) -> Labelled:  # fmt: skip
    """Samples by class, of the kind that the model takes."""
    if known is not None and known.kind == "audio":
        return replace(sounds(path, validation=0.0), asked=replace(asked, kind="audio"))
    return replace(pictures(path, validation=0.0), asked=asked)


def _folder(source: Labelled, how: Description, tensors: tuple[Tensor, Tensor]) -> Folder:
    labels = (
        source.labels
        if not tensors[1].dtype.is_float
        else one_hot(source.labels, tensors[1].shape[-1], "labels")
    )
    return Folder([source.open(tensors[0], how)], [labels], source, how, tensors)


def _numbered(source: Labelled, labels: Sequence[str], target: Tensor) -> Labelled:
    """Classes by the model's own numbers, where it knows their names."""
    if set(source.classes) <= set(labels):
        numbers = np.array([labels.index(name) for name in source.classes], np.int32)
        return replace(source, labels=numbers[source.labels])
    width = target.shape[-1] if target.dtype.is_float else None
    if width is not None and len(source.classes) != width:
        found = f"'{source.name}' has {len(source.classes)} classes, but the model tells {width} apart"
        raise DataError(
            f"{found}; give it a new head for them: model.with_head(classes), or circle-train finetune"
        )
    return source
