"""Files that exist whole or not at all."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import BinaryIO

from circle_train.errors import ConfigError

try:
    import fcntl
except ImportError:  # Windows, where an open file cannot be deleted anyway
    fcntl = None  # type: ignore[assignment]

TOKEN = 6
"""Random bytes in a temporary name."""
FLAGS = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0)


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write into, taking the place of `path` when the block ends well, vanishing otherwise."""
    with atomic_writes([path]) as (file,):
        yield file


@contextmanager
def atomic_writes(paths: Sequence[str | os.PathLike[str]]) -> Iterator[list[BinaryIO]]:
    """Files that belong together: none takes its place before all are on the disk; they do in the order given."""
    targets = [_target(path) for path in paths]
    made: list[str] = []
    now = paths[0]
    try:
        with ExitStack() as opened:
            files = []
            for path, target in zip(paths, targets, strict=True):
                now = path
                sweep(target)
                files.append(opened.enter_context(_temporary(target, made)))
            yield files
            for path, file in zip(paths, files, strict=True):
                now = path
                file.flush()
                os.fsync(file.fileno())
                if fcntl is None:  # Windows renames no open file
                    file.close()
            for path, name, target in zip(paths, tuple(made), targets, strict=True):
                now = path
                os.replace(name, target)
                _sync_folder(os.path.dirname(target))
    except BaseException as error:
        for name in made:
            with suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(name)
        if isinstance(error, OSError):
            reason = error.strerror or str(error)
            raise ConfigError(
                f"{os.fspath(now)}: cannot be written ({reason}); choose another place"
            ) from error
        raise


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """A whole file of text, or none; halves of characters, which names in model files may hold, as escapes."""
    with atomic_write(path) as file:
        file.write(text.encode(errors="backslashreplace"))


def make_folder(path: str | os.PathLike[str], what: str, names: Iterable[str] = ()) -> None:
    """The folder, there after a power cut too; ConfigError where it cannot be.

    Nobody asked for the `names` in it that are written without being told: none may be a link that leads out of the folder,
    or whoever hands somebody a folder decides which other file is overwritten.
    """
    home = folder = _target(path)
    made = []
    while folder and not os.path.isdir(folder) and os.path.dirname(folder) != folder:
        made.append(folder)
        folder = os.path.dirname(folder)
    try:
        os.makedirs(path, exist_ok=True)
        for new in made:
            _sync_folder(os.path.dirname(new))
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(
            f"{what} {os.fspath(path)} cannot be made: {reason}; choose another place"
        ) from None
    for name in names:
        if os.path.dirname(found := os.path.realpath(os.path.join(home, name))) != home:
            raise ConfigError(
                f"{what} {os.fspath(path)}: '{name}' is a link to '{found}', expected a file in the folder; remove the link"
            )


def sweep(target: str) -> None:
    """Remove what a killed process left of this file; whoever still writes holds a lock on his."""
    folder, name = os.path.split(target)
    entries: list[str] = []
    left_over = re.compile(rf"\.{re.escape(name[:100])}\.[0-9a-f]{{{2 * TOKEN}}}")
    with suppress(PermissionError):  # a folder that can be written but not read
        entries = os.listdir(folder)
    for path in (os.path.join(folder, entry) for entry in entries if left_over.fullmatch(entry)):
        if os.path.isfile(path):
            with suppress(OSError), open(path, "rb") as file:
                _lock(file, wait=False)
                os.unlink(path)


def _target(path: str | os.PathLike[str]) -> str:
    """Where a file of this name lies, links followed; no system has names with a NUL or half of a character."""
    with suppress(ValueError):
        if b"\0" not in os.fsencode(path):
            return os.path.realpath(os.fspath(path))
    raise ConfigError(f"{os.fspath(path)}: cannot be written (no file can have this name); choose another")


def _temporary(target: str, made: list[str]) -> BinaryIO:
    """A new file beside the target, readable by those who may read the target, under a lock until it is closed."""
    folder, name = os.path.split(target)
    while True:
        path = os.path.join(folder, f".{name[:100]}.{os.urandom(TOKEN).hex()}")
        mode = _mode_of(target)
        made.append(path)
        file = os.fdopen(os.open(path, FLAGS, 0o666 if mode is None else mode & 0o600), "wb")
        with suppress(OSError):  # a file system without locks has no sweeping either
            _lock(file, wait=True)
        if mode is not None:
            os.chmod(path, mode)
        if os.path.exists(path):  # and was not swept before it was locked
            return file
        file.close()
        made.remove(path)


def _mode_of(target: str) -> int | None:
    """Who may do what with the file that is there; None where there is none."""
    try:
        return stat.S_IMODE(os.stat(target).st_mode) & 0o777
    except FileNotFoundError:
        return None


def _lock(file: BinaryIO, wait: bool) -> None:
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def _sync_folder(folder: str) -> None:
    """The new name survives a power cut too, where the system lets folders be synced."""
    if os.name == "posix" and os.access(folder, os.R_OK):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
