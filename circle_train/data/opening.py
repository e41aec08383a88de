"""Files and folders as samples of a model, in the size and scale that its file or the caller says."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from circle_train.data.arrays import table, windows
from circle_train.data.dataset import Dataset, Stream, open_data, training_count
from circle_train.data.files import one_hot
from circle_train.data.labelled import Labelled
from circle_train.data.pictures import images as pictures
from circle_train.data.recordings import sounds
from circle_train.data.rows import Origin
from circle_train.data.texts.text import text
from circle_train.data.unlabelled import files_of, origin_of, unlabelled
from circle_train.errors import ConfigError, DataError
from circle_train.format.metadata.description import Description
from circle_train.ir import Tensor
from circle_train.record import record

SPLIT_SEED = 0
"""Of which samples of a folder validate: the same ones in every run, so that a resumed fit goes on with them."""


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
        if not targets and (known is None or known.kind in ("image", "audio")):
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
    asked: Description, tokenizer: str | None = None,
) -> Folder:  # fmt: skip
    """Samples by class for a model; or a file of rows, for one that says which of their columns it reads."""
    _require_one(path, inputs)
    source = _samples_in(Path(path), known, asked, tokenizer)
    how = _scaled(source.describe(inputs[0], known))
    if source.scores == "softmax":
        source = _numbered(source, known.labels if known else (), targets[0])
    return _folder(source, how, (inputs[0], targets[0]))


def _samples_in(path: Path, known: Description | None, asked: Description, tokenizer: str | None) -> Labelled:
    """Samples of the kind that the model takes."""
    kind = "image" if known is None else known.kind
    if kind == "text":
        if tokenizer is None:
            raise ConfigError("the model reads texts: give its vocabulary, --tokenizer tokenizer.json")
        said = Origin() if known is None or path.is_dir() else origin_of(known)
        column, label = (
            (*names, usual)[0] for names, usual in ((said.columns, "text"), (said.targets, "label"))
        )
        return text(path, tokenizer=tokenizer, column=column, label=label, validation=0.0)
    if kind == "audio":
        return replace(sounds(path, validation=0.0), asked=replace(asked, kind="audio"))
    if kind == "features" and known is not None and not path.is_dir():
        return _rows_of(path, known)
    return replace(pictures(path, validation=0.0), asked=asked)


def _rows_of(path: Path, known: Description) -> Labelled:
    """Rows or windows with what is to be foreseen, from the columns that the model's file names."""
    origin = origin_of(known)
    if not origin.targets:
        raise ConfigError(
            f"'{path}': the model's file does not say what of it is to be foreseen; give arrays, --input and --expected"
        )
    label, columns = origin.targets[0], origin.columns or None
    if path.suffix.lower() == ".npz" or origin.length is not None:
        found = windows(
            path, label=label, group=origin.group, length=origin.length, columns=columns, validation=0.0, normalise=False
        )  # fmt: skip
    else:
        wanted = label if len(origin.targets) == 1 else list(origin.targets)
        found = table(path, label=wanted, columns=columns, validation=0.0, normalise=False)
    if known.scores == "values" and found.classes and found.labels.ndim == 1:
        numbers = np.array(list(map(float, found.classes)), np.float32)
        return replace(found, labels=numbers[found.labels], classes=())
    return found


def _folder(source: Labelled, how: Description, tensors: tuple[Tensor, Tensor]) -> Folder:
    if source.scores != "softmax":
        labels = source.targets()
    elif tensors[1].dtype.is_float:
        labels = one_hot(source.labels, tensors[1].shape[-1], "labels")
    else:
        labels = source.labels
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
