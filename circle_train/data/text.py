"""Texts by class: folders of .txt files, or a table with a column of texts; cut into tokens by the model's own vocabulary."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from circle_train.data.arrays import classes_of, read_table
from circle_train.data.images import files_by_class
from circle_train.data.labelled import Labelled
from circle_train.errors import ConfigError, DataError
from circle_train.format.metadata.description import Description
from circle_train.ir import Tensor
from circle_train.ir.tensor_type import Array
from circle_train.record import record

LONGEST = 512
"""Tokens of a sample, where the model takes any number."""
LARGEST = 16 << 20
"""Bytes of a text."""


@record
class Texts(Labelled):
    """Texts, which become token numbers when a batch asks for them."""

    kind: ClassVar[str] = "text"

    tokenizer: Any = None
    longest: int | None = None

    def describe(self, tensor: Tensor, known: Description | None) -> Description:
        sizes = (tensor.shape_signature or tensor.shape)[1:]
        if len(sizes) != 1 or tensor.dtype.is_float:
            raise ConfigError(f"input '{tensor.name}' is {tensor.type}, expected batch × tokens of integers")
        said = known.details.get("tokens") if known is not None and known.kind == "text" else None
        length = sizes[0] if sizes[0] > 0 else self.longest or said or LONGEST
        details = {"tokens": length}
        return replace(
            known or Description(kind="text"), kind="text", labels=self.classes, scores=self.scores, details=details
        )  # fmt: skip

    def decode(self, item: Any, how: Description, random: np.random.Generator | None) -> Array:
        text = _read(item) if isinstance(item, Path) else item
        ids = self.tokenizer.encode(text).ids
        count = int(how.details["tokens"])
        padding = self.tokenizer.token_to_id("[PAD]") or self.tokenizer.token_to_id("<pad>") or 0
        row = np.full(count, padding, np.int64)
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
    validation: float = 0.2,
) -> Texts:
    """Texts in a folder for each class (`mails/spam/001.txt`), or rows of a .csv file with a column of texts.

    Args:
        source: the folder or file.
        tokenizer: the model's own: tokenizer.json, or vocab.txt of a BERT.
        label, column, group: names of the columns of a .csv file.
        length: tokens of a sample, where the model takes any number (default: 512).
        validation: the fraction that validates.
    """
    path, cutter = Path(source), tokenizer_in(Path(tokenizer))
    groups = None
    if path.is_dir():
        files, classes = files_by_class(path, (".txt",), "texts")
        items: list[Any] = [file for file, _ in files]
        labels: Array = np.array([number for _, number in files], np.int32)
    else:
        header, rows = read_table(path)
        for name in (label, column, *([group] if group else [])):
            if name not in header:
                raise DataError(f"'{path}' has no column '{name}', its columns are {', '.join(header)}")
        items = [row[header.index(column)] for row in rows]
        labels, classes = classes_of(np.array([row[header.index(label)] for row in rows]))
        groups = np.array([row[header.index(group)] for row in rows]) if group else None
    return Texts(
        items, labels, classes, groups=groups, validation=validation, name=str(path), tokenizer=cutter, longest=length
    )  # fmt: skip


def tokenizer_in(path: Path) -> Any:
    """What cuts a text into numbers."""
    try:
        import tokenizers
    except ImportError as error:
        raise DataError("texts need the tokenizers package: pip install 'circle-train[text]'") from error
    try:
        if path.suffix == ".json":
            return tokenizers.Tokenizer.from_file(str(path))
        words = path.read_text(encoding="utf-8").splitlines()
        cutter = tokenizers.Tokenizer(
            tokenizers.models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]")
        )
        cutter.normalizer = tokenizers.normalizers.BertNormalizer(
            lowercase=not any(w[:1].isupper() for w in words)
        )
        cutter.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
        ends = [(name, words.index(name)) for name in ("[SEP]", "[CLS]")]
        cutter.post_processor = tokenizers.processors.BertProcessing(*ends)
        return cutter
    except Exception as error:  # the package raises bare exceptions for damaged files
        raise DataError(
            f"'{path}' cannot be read as a tokenizer ({error}); give tokenizer.json or vocab.txt"
        ) from None


def _read(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(LARGEST).decode("utf-8", "replace")
    except OSError as error:
        raise DataError(f"'{path}' cannot be read ({error.strerror}); check the path") from None
