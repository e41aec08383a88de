"""A session's state to a file and back: whole, or not at all.

The suffix decides: `.ckpt` is ONERT's format, `.safetensors` ours; ONNX Runtime's `checkpoint` is known by its
identifier, and read only. Everything is read and compared with the
session before the first weight changes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import ModuleType
from typing import Protocol

from circle_train.checkpoints import onert as onert_checkpoint
from circle_train.checkpoints import ort as ort_state
from circle_train.checkpoints import ort_file as ort_checkpoint
from circle_train.checkpoints import own as named_checkpoint
from circle_train.checkpoints.changes import Changes
from circle_train.checkpoints.ort_file import is_ort_checkpoint
from circle_train.errors import CheckpointError, refusing
from circle_train.format.atomic import atomic_write
from circle_train.ir import Module
from circle_train.ir.mapped import FileMap, require_unchanged
from circle_train.runtime.state import State
from circle_train.runtime.weights import Parameters
from circle_train.settings.config import TrainConfig


class Loaded(Protocol):
    """A loaded model."""

    @property
    def module(self) -> Module: ...

    @property
    def files(self) -> Sequence[FileMap]: ...


class Session(Protocol):
    """What a checkpoint needs of a session."""

    seed: int

    @property
    def config(self) -> TrainConfig: ...

    @property
    def model(self) -> Loaded: ...

    @property
    def state(self) -> State: ...

    @property
    def parameters(self) -> Parameters: ...


SUFFIXES = {".ckpt": onert_checkpoint, ".safetensors": named_checkpoint}


def save(session: Session, path: str | os.PathLike[str]) -> None:
    """Write the session's state; a file that was there stays until the new one is complete."""
    form = _format_of(path)
    require_unchanged(session.model.files)
    data = form.encode_state(session.model.module, session.state, session.config, session.seed)
    with atomic_write(path) as file:
        file.write(data)


def load(session: Session, path: str | os.PathLike[str]) -> None:
    """Take over a file's state; CheckpointError, and nothing changed, where it does not fit."""
    where = os.fspath(path)
    with refusing(CheckpointError, f"checkpoint {where}", "nothing was changed, load another one"):
        changes = _changes(session, where)
    changes.apply(session.state)
    if changes.seed is not None:
        session.seed = changes.seed


def _changes(session: Session, where: str) -> Changes:
    """What the file would change, read and compared."""
    data = _read(where)
    if is_ort_checkpoint(data):
        beside = f"{where}.data"
        found = ort_checkpoint.read(data, _read(beside) if os.path.exists(beside) else None, where)
        return ort_state.changes_of(found, session.state, session.config, session.parameters.inward, where)
    form = _format_of(where)
    changes: Changes = form.decode_state(data, session.model.module, session.state, session.config, where)
    return changes


def stored_config(path: str | os.PathLike[str]) -> TrainConfig | None:
    """What a checkpoint says of the settings it was written under, if anything."""
    where = os.fspath(path)
    data = _read(where)
    if is_ort_checkpoint(data):
        return None
    with refusing(CheckpointError, f"checkpoint {where}", "load another one"):
        found: TrainConfig | None = _format_of(path).stored_config(data, where)
    return found


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
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
