"""How pictures become a model's input, and where models may be written: words that several commands know."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from circle_train.data.images import CROPS, asked_of
from circle_train.errors import ConfigError
from circle_train.format.metadata.description import Description

MODELS = (".tflite", ".circle", ".onnx")


def add_look(parser: argparse.ArgumentParser) -> None:
    """How pictures become a model's input."""
    look = parser.add_argument_group("pictures (default: as the model's file says)")
    look.add_argument(
        "--scale", type=_numbers, metavar="S", help="the model gets (pixel - offset) / scale, of 0 … 255"
    )
    look.add_argument(
        "--offset", type=_numbers, metavar="O", help="one number, or one for each channel as 124,116,104"
    )
    look.add_argument("--size", type=_size, metavar="HxW", help="height and width, where the model takes any")
    look.add_argument(
        "--crop",
        choices=CROPS,
        default=None,
        help="cut the middle out, distort, or add black (default: center)",
    )


def look_of(options: argparse.Namespace) -> dict[str, Any]:
    """These words as arguments of `images`."""
    given = {name: getattr(options, name) for name in ("scale", "offset", "size", "crop")}
    return {name: value for name, value in given.items() if value is not None}


def asked_look(options: argparse.Namespace) -> Description:
    """These words as a description that leaves the rest to the model's file."""
    return asked_of(**look_of(options))


def refuse_bad_output(path: str, suffixes: Sequence[str]) -> None:
    """A wrong output path must not cost the training."""
    place = Path(path)
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


def _numbers(word: str) -> float | tuple[float, ...]:
    values = tuple(float(part) for part in word.split(","))
    return values[0] if len(values) == 1 else values


def _size(word: str) -> tuple[int, int]:
    height, _, width = word.lower().partition("x")
    return int(height), int(width or height)
