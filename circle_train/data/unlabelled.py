"""Samples of which nobody says what they are, for a model whose file says how it reads them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from circle_train.data.arrays import Arrays
from circle_train.data.labelled import Labelled
from circle_train.data.pictures import SUFFIXES as PICTURES, UNREAD, Images
from circle_train.data.recordings import SUFFIXES as RECORDINGS, Piece, Sounds
from circle_train.data.rows import Origin, archive_in, found_in, numbers_of, read_table, starts_of
from circle_train.data.texts.text import Texts
from circle_train.data.texts.tokenizer import Tokenizer
from circle_train.errors import ConfigError, DataError
from circle_train.format.metadata.description import Description
from circle_train.ir.tensor_type import Array

TEXTS = (".txt",)
SUFFIXES = {"image": PICTURES, "audio": RECORDINGS, "text": TEXTS}
"""Of the files that are samples, by the kind of a model's input."""
TABLES = (".csv", ".npz")


def files_of(paths: Sequence[str | os.PathLike[str]], kind: str) -> list[Path]:
    """The files themselves, and all of the kind in folders, hidden ones left out."""
    suffixes = SUFFIXES[kind]
    found: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            known = {*suffixes, *(UNREAD if kind == "image" else ())}
            inside = sorted(p for p in path.rglob("*") if p.suffix.lower() in known and p.is_file())
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


def unlabelled(
    paths: Sequence[Any],
    asked: Description,
    classes: Sequence[str],
    tokenizer: str | os.PathLike[str] | None = None,
) -> Labelled:
    """Files that are a sample each."""
    labels = np.zeros(len(paths), np.int32)
    if asked.kind == "audio":
        pieces = [Piece(path) for path in paths]
        return Sounds(pieces, labels, tuple(classes), validation=0.0, asked=asked)
    if asked.kind == "text":
        if tokenizer is None:
            raise ConfigError("the model reads texts: give its vocabulary, --tokenizer tokenizer.json")
        return Texts(
            list(paths), labels, tuple(classes), validation=0.0, tokenizer=Tokenizer(Path(tokenizer))
        )
    return Images(list(paths), labels, tuple(classes), validation=0.0, asked=asked)


def texts_in(
    paths: Sequence[str | os.PathLike[str]], known: Description
) -> tuple[list[str], list[Path | str]]:
    """Files of a text each, and the rows of tables; and the name of each."""
    names: list[str] = []
    texts: list[Path | str] = []
    for path in files_of(paths, "text"):
        if path.suffix.lower() != ".csv":
            names.append(str(path))
            texts.append(path)
            continue
        header, rows = read_table(path)
        usual = tuple(header) if len(header) == 1 else ("text",)
        (column,) = found_in(header, Origin(origin_of(known).columns[:1] or usual), path).columns
        names += [f"{path}:{line}" for line in range(2, 2 + len(rows))]
        texts += [row[header.index(column)] for row in rows]
    return names, texts


def rows_in(
    paths: Sequence[str | os.PathLike[str]], known: Description
) -> tuple[list[str], Arrays]:  # fmt: skip
    """Rows of tables, windows of their rows, or arrays in .npz files, and the name of each: the file and its line."""
    names: list[str] = []
    samples: list[Array] = []
    for path in map(Path, paths):
        if path.suffix.lower() not in TABLES:
            raise DataError(f"'{path}': the model reads numbers, expected {' or '.join(TABLES)}")
        lines, found = _of_table(path, known) if path.suffix.lower() == ".csv" else _of_archive(path)
        names += [f"{path}:{line}" for line in lines]
        samples += found
    return names, Arrays(samples, np.zeros(len(samples), np.int32), known.labels, validation=0.0)


def origin_of(known: Description) -> Origin:
    """Where the samples stood that the model was trained on; empty for what others wrote."""
    said = known.details
    names = [said.get(name, ()) for name in ("columns", "targets")]
    group, length = said.get("group"), said.get("length")
    is_whole = (
        all(isinstance(some, (list, tuple)) and all(isinstance(one, str) for one in some) for some in names)
        and isinstance(group, str | None)
        and (length is None or (type(length) is int and length > 0))
    )
    if not is_whole:
        raise ConfigError("what the model's file says of its samples is damaged; give arrays with --input")
    return Origin(tuple(names[0]), tuple(names[1]), group, length)


def _of_table(path: Path, known: Description) -> tuple[list[int], list[Array]]:
    header, rows = read_table(path)
    said = origin_of(known)
    columns = found_in(header, Origin(said.columns), path).columns
    numbers = numbers_of(rows, header, columns, path)
    if said.length is None:
        return list(range(2, 2 + len(rows))), list(numbers)
    place = header.index(said.group) if said.group in header else None
    marks = ["" if place is None else row[place] for row in rows]
    starts = starts_of(marks, said.length, said.length)
    if not starts:
        raise DataError(f"'{path}' has {len(rows)} rows, the model reads windows of {said.length}")
    return [start + 2 for start in starts], [numbers[start : start + said.length] for start in starts]


def _of_archive(path: Path) -> tuple[list[int], list[Array]]:
    arrays = archive_in(path)
    if "x" not in arrays:
        raise DataError(f"'{path}' has no array 'x', it holds {', '.join(arrays)}")
    return list(range(len(arrays["x"]))), list(arrays["x"])
