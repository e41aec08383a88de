"""Where a module carries its training settings: ONERT's record (`CIRCLE_TRAINING`, CTR0) and ours beside it.

ONERT's record holds an optimizer, a loss, their numbers and the trained operators. Whatever else a config
says stands as JSON in a second entry, which ONERT does not look for. That entry names the record it was
written with, so that a record which another program has replaced since then is taken alone.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np

from circle_train.errors import ModelError
from circle_train.format import flatbuffer
from circle_train.format.flatbuffer.decode import Table, decode
from circle_train.ir import Buffer, Metadata, Module

RECORD = "CIRCLE_TRAINING"
SETTINGS = "circle_train.settings"
IDENTIFIER = b"CTR0"


def read_record(module: Module) -> Table | None:
    """ONERT's record as a table, or None where the module carries none."""
    raw = find(module, RECORD)
    return None if raw is None else decode(raw, "ModelTraining", IDENTIFIER, source=f"metadata '{RECORD}'")


def read_settings(module: Module) -> dict[str, Any] | None:
    """Our own entry, if it belongs to the record that stands there now."""
    raw = find(module, SETTINGS)
    if raw is None:
        return None
    try:
        entry = json.loads(raw)
        settings, of_record = entry["settings"], entry["record"]
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise ModelError(
            f"metadata '{SETTINGS}' is damaged ({error}); write the training settings anew"
        ) from None
    if not isinstance(settings, dict):
        raise ModelError(
            f"metadata '{SETTINGS}' is damaged (settings are no object); write the training settings anew"
        )
    return settings if of_record == _digest(find(module, RECORD)) else None


def attach(module: Module, record: Table | None, settings: dict[str, Any] | None) -> Module:
    """A module that carries these entries in place of those it had; None takes one away."""
    raw = None if record is None else flatbuffer.encode.encode("ModelTraining", record, IDENTIFIER)
    module = put(module, RECORD, raw)
    text = None if settings is None else json.dumps({"record": _digest(raw), "settings": settings}).encode()
    return put(module, SETTINGS, text)


def find(module: Module, name: str) -> bytes | None:
    """The content of the metadata entry of this name."""
    for entry in module.metadata:
        if entry.name == name:
            return entry.buffer.bytes.tobytes()
    return None


def put(module: Module, name: str, raw: bytes | None) -> Module:
    """Replace a metadata entry where it stands, append it, or take it away."""
    old = next((entry for entry in module.metadata if entry.name == name), None)
    if raw is None:
        kept = [entry for entry in module.metadata if entry is not old]
        spare = (
            old.buffer if old is not None and all(entry.buffer is not old.buffer for entry in kept) else None
        )
        return replace(
            module, metadata=kept, buffers=[buffer for buffer in module.buffers if buffer is not spare]
        )
    entry = Metadata(name, Buffer(np.frombuffer(raw, np.uint8)))
    if old is None:
        return replace(module, metadata=[*module.metadata, entry], buffers=[*module.buffers, entry.buffer])
    metadata = [entry if known is old else known for known in module.metadata]
    buffers = [entry.buffer if buffer is old.buffer else buffer for buffer in module.buffers]
    return replace(module, metadata=metadata, buffers=buffers)


def _digest(raw: bytes | None) -> str:
    import hashlib  # brings the system's library of ciphers, which few files want

    return "" if raw is None else hashlib.sha256(raw).hexdigest()
