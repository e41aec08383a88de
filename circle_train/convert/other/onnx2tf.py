"""The second engine: onnx2tf in a process and environment of its own, its .tflite carried into Circle."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from circle_train import format
from circle_train.convert.building.provenance import METADATA, Provenance
from circle_train.convert.onnx_file.importer import external_file
from circle_train.convert.other.restore import restore_faces
from circle_train.errors import ConversionError
from circle_train.ir import Buffer, Metadata, Module

TIMEOUT_S = 3600


def convert(source: Any, command: Sequence[str] | None = None) -> tuple[Module, Provenance]:
    """A module made by onnx2tf, or by the command given, e.g. ["/venvs/tf/bin/python", "-m", "onnx2tf"]."""
    call = list(command) if command else find()
    with tempfile.TemporaryDirectory(prefix="circle_train_onnx2tf_") as folder:
        inside = Path(folder) / "in"
        inside.mkdir()
        place, path = _as_file(source, inside)
        digest, faces = hashlib.sha256(path.read_bytes()).hexdigest(), _model(path)
        made = Path(folder) / "out"
        _run([*call, "-i", str(path), "-o", str(made)])
        module = format.read(_result(made, path))
        restore_faces(module.main, faces)
    facts = json.dumps({"engine": "onnx2tf"})
    note = Metadata(METADATA, Buffer(np.frombuffer(facts.encode(), np.uint8)))
    module.metadata.append(note)
    module.buffers.append(note.buffer)
    module.identifier = "CIR0"
    return module, Provenance(place, digest, engine="onnx2tf")


def find() -> list[str]:
    """onnx2tf as a command on the path, or as a module of this interpreter."""
    if (command := shutil.which("onnx2tf")) is not None:
        return [command]
    if find_spec("onnx2tf") is not None:
        return [sys.executable, "-m", "onnx2tf"]
    raise ConversionError(
        "engine onnx2tf: neither a command nor a module of that name was found; install it in an environment "
        "of its own (python -m venv tf && tf/bin/pip install onnx2tf tensorflow) and put its folder on PATH"
    )


def _as_file(source: Any, folder: Path) -> tuple[Path | bytes, Path]:
    """The source as it was given, and a copy for onnx2tf, which writes its simplified model over what it reads."""
    if isinstance(source, (bytes, bytearray, memoryview)) or hasattr(source, "read"):
        raw = source.read() if hasattr(source, "read") else bytes(source)
        path = folder / "model.onnx"
        path.write_bytes(raw)
        return raw, path
    given, path = Path(source), folder / "model.onnx"
    shutil.copyfile(given, path)
    for tensor in _tensors(_model(path).graph):
        for entry in tensor.external_data:
            if entry.key == "location":
                what = f"'{given}': tensor '{tensor.name}'"
                _copy(external_file(given.parent, entry.value, what), folder / entry.value, what)
    return given, path


def _tensors(graph: Any) -> Iterator[Any]:
    """Every constant of a graph and of those inside its nodes."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            for inner in (attribute.g, *attribute.graphs):
                yield from _tensors(inner)


def _copy(source: Path, target: Path, what: str) -> None:
    """External data into the temporary folder, in the same place beside the model."""
    if not os.path.isfile(source):
        raise ConversionError(f"{what} lies in '{source}', which is missing; put the file beside the model")
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def _model(path: Path) -> Any:
    """The ONNX model without its external data, for its inputs and outputs."""
    try:
        return onnx.load(str(path), load_external_data=False)
    except DecodeError as error:
        raise ConversionError(f"'{path.name}' is no ONNX model ({error}); get an intact copy") from error


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except OSError as error:
        raise ConversionError(
            f"engine onnx2tf: '{command[0]}' cannot be started ({error}); check the command"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise ConversionError(
            f"engine onnx2tf: not done after {TIMEOUT_S} s; convert the model by hand"
        ) from error
    if done.returncode:
        last = "; ".join((done.stderr or done.stdout).strip().splitlines()[-3:]) or "it said nothing"
        raise ConversionError(f"engine onnx2tf: ended with status {done.returncode}: {last}")


def _result(folder: Path, path: Path) -> bytes:
    """The float32 model that it wrote."""
    found = sorted(folder.glob("*_float32.tflite")) or sorted(folder.glob("*.tflite"))
    if not found:
        raise ConversionError(
            f"engine onnx2tf: wrote no .tflite for '{path.name}'; see its own messages by running it by hand"
        )
    return found[0].read_bytes()
