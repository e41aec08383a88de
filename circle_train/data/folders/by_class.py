"""Files by class: which there are, and which of them are whole."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from circle_train.data.folders.listing import Listing
from circle_train.errors import DataError, shown
from circle_train.ir.tensor_type import Array

HIDDEN = (".", "__")
"""What the names of folders and files begin with that are nobody's samples."""

PARTS = {"train", "training", "test", "testing", "val", "valid", "validation", "eval", "dev"}
"""What people call folders that hold classes and are none."""
Found = TypeVar("Found")


def files_by_class(
    folder: Path, suffixes: Sequence[str], what: str, unread: Sequence[str] = ()
) -> tuple[Listing, Array, tuple[str, ...]]:
    """Files of these suffixes, the class's number of each, and the classes: sub-folders that hold any, in order.

    `unread` are further suffixes of such files, which count so that somebody says that they cannot be read.
    """
    if not folder.is_dir():
        raise DataError(f"'{folder}' is no folder, expected one with a folder of {what} for each class")
    counts: dict[str, int] = {}

    def names() -> Iterator[str]:
        for label in _inside(folder, lambda entry: entry.is_dir()):
            for name in _files(folder, label, (*suffixes, *unread)):
                counts[label] = counts.get(label, 0) + 1
                yield name

    files = Listing(folder, names())
    if len(counts) < 2 or {name.lower() for name in counts} <= PARTS:
        raise DataError(_no_classes(folder, tuple(counts), suffixes, what))
    return files, np.repeat(np.arange(len(counts), dtype=np.int32), [*counts.values()]), tuple(counts)


def intact(
    files: Sequence[Path], look: Callable[[Path], Found], what: str, skip: bool
) -> tuple[Array, list[Found], tuple[str, ...]]:
    """Places of the files of which `look` makes something, and that; all of which it cannot are named at once, or left out."""
    found, bad, good = [], [], np.ones(len(files), bool)
    for place, file in enumerate(files):
        try:
            found.append(look(file))
        except Exception as error:  # damaged files make decoders raise what they like
            named = str(file) in str(error)
            bad.append(shown(error) if named else f"'{file}' ({shown(error)})")
            good[place] = False
    if bad and not skip:
        listed = "; ".join(bad[:5]) + (f"; and {len(bad) - 5} more" if len(bad) > 5 else "")
        raise DataError(
            f"{len(bad)} of {len(files)} {what} cannot be read: {listed}; repair or remove them, or skip them "
            "(skip_damaged=True, --skip-damaged)"
        )
    return np.flatnonzero(good), found, tuple(bad)


def _no_classes(folder: Path, names: tuple[str, ...], suffixes: Sequence[str], what: str) -> str:
    """What lies there instead of a folder for each class, and what to give."""
    if len(names) > 1:
        held = f"'{folder}' holds {' and '.join(names)}, which are parts of a data set and no classes"
        return f"{held}; give one of them, '{folder / max(names, key=lambda name: name.startswith('train'))}'"
    if names:
        inner = _inside(folder / names[0], lambda entry: entry.is_dir())
        if len(inner) > 1:
            held = f"'{folder}' holds {what} only in '{names[0]}', where {' and '.join(inner[:2])} lie"
            return f"{held}; give '{folder / names[0]}'"
    elif loose := _inside(folder, lambda entry: os.path.splitext(entry.name)[1].lower() in suffixes):
        return f"'{folder}' holds {len(loose)} {what} beside each other; put those of each class into a folder of its own"
    found = f"{what} only in '{names[0]}'" if names else f"no {what}"
    return f"'{folder}' holds {found}; expected a folder for each of two or more classes with {', '.join(suffixes)}"


def _files(folder: Path, inside: str, suffixes: Sequence[str]) -> Iterator[str]:
    """Names of the files below a sub-folder, in order; no pipes, which would be waited for, and no links to folders."""

    def counts(entry: os.DirEntry[str]) -> bool:
        return entry.is_dir(follow_symlinks=False) or (
            os.path.splitext(entry.name)[1].lower() in suffixes and entry.is_file()
        )

    for name in _inside(folder / inside, counts):
        path = os.path.join(inside, name)
        if os.path.splitext(name)[1].lower() in suffixes and os.path.isfile(folder / path):
            yield path
        else:
            yield from _files(folder, path, suffixes)


def _inside(folder: Path, counts: Callable[[os.DirEntry[str]], bool]) -> list[str]:
    """Names of what counts in a folder, in order."""
    try:
        with os.scandir(folder) as entries:
            return sorted(e.name for e in entries if not e.name.startswith(HIDDEN) and counts(e))
    except OSError as error:
        raise DataError(f"'{folder}' cannot be read ({error.strerror}); check the permissions") from None
