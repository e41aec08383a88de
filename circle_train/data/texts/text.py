"""Texts by class: folders of .txt files, or a table with a column of texts; cut into tokens by the model's own vocabulary."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from circle_train.data.folders.by_class import files_by_class
from circle_train.data.labelled import Labelled
from circle_train.data.rows import Origin, classes_of, found_in, numbered, read_table
from circle_train.data.texts.tokenizer import LARGEST_TEXT, Tokenizer
from circle_train.errors import ConfigError, DataError
from circle_train.format.metadata.description import Description
from circle_train.ir import Tensor
from circle_train.ir.tensor_type import Array
from circle_train.record import record

LONGEST = 512
"""Tokens of a sample, where the model takes any number."""


@record
class Texts(Labelled):
    """Texts, which become token numbers when a batch asks for them."""

    kind: ClassVar[str] = "text"

    tokenizer: Tokenizer | None = None
    longest: int | None = None
    origin: Origin = field(default_factory=Origin)

    def describe(self, tensor: Tensor, known: Description | None) -> Description:
        sizes = (tensor.shape_signature or tensor.shape)[1:]
        if len(sizes) != 1 or tensor.dtype.is_float:
            raise ConfigError(f"input '{tensor.name}' is {tensor.type}, expected batch × tokens of integers")
        if self.longest and sizes[0] > 0 and self.longest != sizes[0]:
            raise ConfigError(
                f"length is {self.longest}, but '{tensor.name}' takes {sizes[0]} tokens; leave it out"
            )
        said = known.details.get("tokens") if known is not None and known.kind == "text" else None
        length = sizes[0] if sizes[0] > 0 else self.longest or said or LONGEST
        details = {"tokens": length} | self.origin.details
        return replace(
            known or Description(kind="text"), kind="text", labels=self.classes, scores=self.scores, details=details
        )  # fmt: skip

    def decode(self, item: Any, how: Description, random: np.random.Generator | None) -> Array:
        assert self.tokenizer is not None
        text = _read(item) if isinstance(item, Path) else item
        ids = self.tokenizer(text)
        count = int(how.details["tokens"])
        row = np.full(count, self.tokenizer.padding, np.int64)
        row[: min(len(ids), count)] = ids[:count]
        return row

    def shape(self, how: Description) -> tuple[int, ...]:
        return (int(how.details["tokens"]),)


def text(  # noqa: PLR0913 -- where texts, labels and tokens come from, each by name
    source: str | os.PathLike[str],
    *,
    tokenizer: str | os.PathLike[str],
    label: str = "label",
    column: str = "text",
    group: str | None = None,
    length: int | None = None,
    validation: float | None = None,
) -> Texts:
    """Texts in a folder for each class (`mails/spam/001.txt`), or rows of a .csv file with a column of texts.

    Args:
        source: the folder or file.
        tokenizer: the model's own: tokenizer.json, or vocab.txt of a BERT.
        label, column, group: names of the columns of a .csv file.
        length: tokens of a sample, where the model takes any number (default: 512).
        validation: the fraction that validates (default: a fifth, of 1,000 samples and more a tenth).
    """
    path, cutter = Path(source), Tokenizer(Path(tokenizer))
    groups, origin = None, Origin()
    if path.is_dir():
        if label != "label" or column != "text" or group is not None:
            raise ConfigError(
                f"'{path}' is a folder, in which each class has its own; label, column and group are of .csv files"
            )
        items: Sequence[Any]
        labels: Array
        items, labels, classes = files_by_class(path, (".txt",), "texts")
    else:
        header, rows = read_table(path)
        origin = found_in(header, Origin((column,), (label,), group), path)
        items = [row[header.index(column)] for row in rows]
        labels, classes = classes_of([row[header.index(label)] for row in rows])
        groups = numbered([row[header.index(group)] for row in rows])[0] if group else None
    return Texts(
        items, labels, classes, groups=groups, validation=validation, name=str(path), tokenizer=cutter, longest=length,
        origin=origin,
    )  # fmt: skip


def _read(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(4 * LARGEST_TEXT).decode("utf-8", "replace")
    except OSError as error:
        raise DataError(f"'{path}' cannot be read ({error.strerror}); check the path") from None
