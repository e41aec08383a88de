"""Files appear whole, readable by whom they should be, and leave nothing behind."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import pytest

from circle_train.errors import ConfigError
from circle_train.format import atomic
from circle_train.format.atomic import atomic_write, atomic_writes

pytestmark = pytest.mark.skipif(os.name != "posix", reason="modes and locks of POSIX")


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def temporary(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("given", [0o600, 0o640, 0o444, 0o666])
def test_a_temporary_file_is_never_more_open_than_what_it_replaces(given: int, tmp_path: Path) -> None:
    target = tmp_path / "secret.safetensors"
    target.write_bytes(b"old")
    target.chmod(given)
    with atomic_write(target) as file:
        file.write(b"new")
        file.flush()
        assert [mode(path) for path in temporary(tmp_path)] == [given]
    assert mode(target) == given and target.read_bytes() == b"new"


@pytest.mark.parametrize(("umask", "expected"), [(0o022, 0o644), (0o077, 0o600)])
def test_new_files_follow_the_umask(umask: int, expected: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        with atomic_write(tmp_path / "new") as file:
            assert [mode(path) for path in temporary(tmp_path)] == [expected]
            file.write(b"new")
    finally:
        os.umask(before)
    assert mode(tmp_path / "new") == expected


def test_what_a_killed_process_left_is_swept_and_what_another_writes_is_not(tmp_path: Path) -> None:
    killed = (
        "import os, sys; from circle_train.format.atomic import atomic_write\n"
        "with atomic_write(sys.argv[1]) as file: file.write(b'half'); file.flush(); os._exit(9)"
    )
    target = tmp_path / "model.circle"
    subprocess.run([sys.executable, "-c", killed, str(target)], check=False)
    (left,) = temporary(tmp_path)
    (tmp_path / ".model.circle.backup").write_bytes(b"the user's own")
    with atomic_write(target) as slow:
        assert not left.exists()
        with atomic_write(target) as fast:
            fast.write(b"fast")
        assert target.read_bytes() == b"fast"
        slow.write(b"slow")
    assert target.read_bytes() == b"slow"
    assert [path.name for path in temporary(tmp_path)] == [".model.circle.backup"]


def test_what_only_looks_like_a_left_over_file_stays(tmp_path: Path) -> None:
    folder = tmp_path / ".model.circle.0123456789ab"
    folder.mkdir()
    with atomic_write(tmp_path / "model.circle") as file:
        file.write(b"new")
    assert folder.is_dir()


def test_a_temporary_file_that_was_swept_before_it_was_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, swept = atomic._lock, []

    def late(file: BinaryIO, wait: bool) -> None:
        if not swept:
            swept.extend(temporary(tmp_path))
            swept[0].unlink()
        lock(file, wait)

    monkeypatch.setattr(atomic, "_lock", late)
    with atomic_write(tmp_path / "model.circle") as file:
        file.write(b"whole")
    assert swept and (tmp_path / "model.circle").read_bytes() == b"whole" and not temporary(tmp_path)


def test_files_that_belong_together_are_all_old_or_all_new(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_bytes(b"old")
    with pytest.raises(RuntimeError), atomic_writes([first, second]) as (one, other):
        one.write(b"new")
        other.write(b"new")
        raise RuntimeError
    assert first.read_bytes() == b"old" and not second.exists() and not temporary(tmp_path)
    missing = pytest.raises(ConfigError, match=r"missing.b: cannot be written \(No such file or directory\)")
    with missing, atomic_writes([first, tmp_path / "missing" / "b"]):
        pass
    assert first.read_bytes() == b"old" and not temporary(tmp_path)


def test_a_temporary_file_is_made_as_closed_as_what_it_replaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only in the end: who opens it before its mode is set reads it for ever."""
    target, modes, make = tmp_path / "secret", [], os.open
    target.write_bytes(b"old")
    target.chmod(0o600)

    def noted(path: str, flags: int, mode: int = 0o777, **rest: int) -> int:
        if flags & os.O_CREAT:
            modes.append(mode)
        return make(path, flags, mode, **rest)

    monkeypatch.setattr(os, "open", noted)
    with atomic_write(target) as file:
        file.write(b"new")
    assert modes == [0o600]


@pytest.mark.skipif(os.name != "posix", reason="folders cannot be synced")
def test_the_folder_is_on_the_disk_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file before it takes its place, the folder with its name after that."""
    done: list[str] = []
    sync, replace = os.fsync, os.replace

    def synced(handle: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        sync(handle)

    def replaced(old: str, new: str) -> None:
        done.append("replace")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    with atomic_write(tmp_path / "file") as file:
        file.write(b"new")
    assert done == ["file", "replace", "folder"]
