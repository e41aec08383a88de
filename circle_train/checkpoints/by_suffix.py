"""A session's state to a file and back: whole, or not at all.

The suffix decides: `.ckpt` is ONERT's format, `.safetensors` ours; ONNX Runtime's `checkpoint` is known by its
identifier, and read only. Everything is read and compared with the
session before the first weight changes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from circle_train.checkpoints import (
    onert as onert_checkpoint,
    ort as ort_state,
    ort_file as ort_checkpoint,
    own as named_checkpoint,
)
from circle_train.checkpoints.ort_file import is_ort_checkpoint
from circle_train.checkpoints.safetensors import Data
from circle_train.checkpoints.slices import FileSlices
from circle_train.errors import CheckpointError, refusing
from circle_train.format.atomic import atomic_write
from circle_train.ir import Module
from circle_train.ir.mapped import SMALL, FileMap, open_bytes
from circle_train.runtime.state import State
from circle_train.runtime.undisturbed import Undisturbed
from circle_train.runtime.weights import Layout
from circle_train.settings.config import TrainConfig

SUFFIXES = {".ckpt": onert_checkpoint, ".safetensors": named_checkpoint}


def save(path: str | os.PathLike[str], module: Module, state: State, config: TrainConfig, seed: int) -> None:
    """Write a session's state; a file that was there stays until the new one is complete."""
    pieces = _format_of(path).encode_state(module, state, config, seed)
    with atomic_write(path) as file:
        file.writelines(pieces)


def load(
    path: str | os.PathLike[str], module: Module, state: State, config: TrainConfig, inward: Layout
) -> int | None:
    """Take over a file's state, and give its seed; CheckpointError, and nothing changed, where it does not fit."""
    where = os.fspath(path)
    with refusing(CheckpointError, f"checkpoint {where}", "nothing was changed, load another one"):
        data = _read(where)
        if not isinstance(data, FileSlices) and is_ort_checkpoint(data):
            beside = f"{where}.data"
            external = bytes(_map(beside)) if os.path.exists(beside) else None
            found = ort_checkpoint.read(bytes(data), external, where)
            changes = ort_state.changes_of(found, state, config, inward, where)
        else:
            changes = _format_of(where).decode_state(data, module, state, config, where)
        if isinstance(data, (FileMap, FileSlices)) and (change := data.change()):
            raise CheckpointError(f"checkpoint {change}; nothing was changed, load it again")
    with Undisturbed() as undisturbed:
        undisturbed.begin()
        changes.apply(state)
    return changes.seed


def stored_config(path: str | os.PathLike[str]) -> TrainConfig | None:
    """What a checkpoint says of the settings it was written under, if anything."""
    where = os.fspath(path)
    data = _read(where)
    if not isinstance(data, FileSlices) and is_ort_checkpoint(data):
        return None
    with refusing(CheckpointError, f"checkpoint {where}", "load another one"):
        found: TrainConfig | None = _format_of(path).stored_config(data, where)
    return found


def _read(path: str) -> Data | FileSlices:
    """The bytes of a small file; of a large one of ours as it is asked for, array by array; others mapped."""
    is_ours = os.path.splitext(path)[1].lower() == ".safetensors"
    with _opening(path):
        if is_ours and os.path.isfile(path) and os.path.getsize(path) >= SMALL:
            return FileSlices(path)
    return _map(path)


def _map(path: str) -> Data:
    with _opening(path):
        return open_bytes(path)


@contextmanager
def _opening(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"checkpoint {path} cannot be read ({error.strerror}); give the path of a saved one"
        ) from None


def _format_of(path: str | os.PathLike[str]) -> ModuleType:
    suffix = os.path.splitext(os.fspath(path))[1].lower()
    if suffix not in SUFFIXES:
        raise CheckpointError(
            f"checkpoint {os.fspath(path)}: the suffix is '{suffix}', expected {' or '.join(SUFFIXES)}"
        )
    return SUFFIXES[suffix]
