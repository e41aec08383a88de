"""Where a command writes: looked at before a model is loaded, and never in the way of what is there."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from circle_train.errors import CircleTrainError, ConfigError
from circle_train.finetuning.account import Result
from circle_train.session.shipping.ship import Shipped

MODELS = (".tflite", ".circle", ".onnx")


def refuse_bad_output(path: str | None, suffixes: Sequence[str], source: str = "") -> None:
    """A wrong output path must not cost the training; `source` is the model's file, where it counts."""
    if path is None:
        return
    place = Path(path)
    if is_circle_file(source):
        suffixes = [suffix for suffix in suffixes if suffix != ".onnx"]
    if place.suffix.lower() not in suffixes:
        hint = (
            "; only a model that came from .onnx goes back into .onnx"
            if place.suffix.lower() == ".onnx"
            else ""
        )
        raise ConfigError(
            f"{path}: the suffix is '{place.suffix}', expected one of {', '.join(suffixes)}{hint}"
        )
    folder = place.resolve().parent
    if not folder.is_dir():
        raise ConfigError(f"{path}: there is no folder {folder}; make it first")
    if place.is_dir() or not os.access(place if place.exists() else folder, os.W_OK):
        raise ConfigError(f"{path}: it cannot be written; choose another place")


def exported(result: Result, path: str, quantize: str | None) -> Shipped | None:
    """Written where it was to be; where that fails in the end (the disk is full), what was learned is left elsewhere."""
    try:
        return result.export(path, quantize=quantize)
    except CircleTrainError as error:
        folder = Path(tempfile.mkdtemp(prefix="circle-train-"))
        try:
            result.export(folder / Path(path).name)
        except CircleTrainError:
            shutil.rmtree(folder, ignore_errors=True)
            raise error from None
        raise ConfigError(f"{error}; what was learned is in {folder / Path(path).name}") from None


def is_circle_file(source: str) -> bool:
    """Whether it cannot have come from ONNX; a package's folder can."""
    return source.lower().endswith((".tflite", ".circle"))


def unused(path: str | os.PathLike[str]) -> Path:
    """This name, or with a number behind it where something is there."""
    wish = Path(path)
    found, number = wish, 2
    while found.exists() and not (found.is_dir() and not any(found.iterdir())):
        found, number = wish.with_name(f"{wish.stem}-{number}{wish.suffix}"), number + 1
    return found
