"""How pictures become a model's input: words that several commands know."""

from __future__ import annotations

import argparse
import os
from typing import Any

from circle_train.cli.settings import print_lines
from circle_train.data.opening import open_folder
from circle_train.data.pictures import CROPS, asked_of
from circle_train.errors import ConfigError
from circle_train.format.metadata.description import Description
from circle_train.session import TrainSession

LOOK = ("scale", "offset", "size", "crop")
READS = {"image": "pictures", "audio": "recordings", "text": "texts", "features": "numbers"}
"""What a model takes, by its kind."""


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
    given = {name: getattr(options, name) for name in LOOK}
    return {name: value for name, value in given.items() if value is not None}


def asked_look(options: argparse.Namespace) -> Description:
    """These words as a description that leaves the rest to the model's file."""
    return asked_of(**look_of(options))


def opened_input(options: argparse.Namespace, session: TrainSession) -> Any:
    """The samples; of those that the model's file says how to read it is said what becomes of them."""
    tokenizer = getattr(options, "tokenizer", None)
    known = session.model.description
    kind = "image" if known is None else known.kind
    if options.expected or not (os.path.isdir(options.input) or getattr(options, "folder", None)):
        if given := [*look_of(options), *(["tokenizer"] if tokenizer else [])]:
            raise ConfigError(
                f"--{given[0]} is for folders of {'texts' if given[0] == 'tokenizer' else 'pictures'}; arrays are taken as "
                "they are"
            )
        return options.input
    if tokenizer and kind != "text":
        raise ConfigError(f"--tokenizer is for texts, but the model reads {READS.get(kind, kind)}")
    if (given := list(look_of(options))) and kind != "image":
        raise ConfigError(f"--{given[0]} is for pictures, but the model reads {READS.get(kind, kind)}")
    program = session.program
    folder = open_folder(
        options.input, program.inputs, program.targets, known, asked_look(options), tokenizer
    )
    if not options.json:
        print_lines([f"{options.input}: {len(folder)} samples, {folder.how}"])
    return folder


def _numbers(word: str) -> float | tuple[float, ...]:
    """For argparse."""
    try:
        values = tuple(float(part) for part in word.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"'{word}' is no number, nor one for each channel as 124,116,104"
        ) from None
    return values[0] if len(values) == 1 else values


def _size(word: str) -> tuple[int, int]:
    """For argparse."""
    height, _, width = word.lower().partition("x")
    if not (height.isdecimal() and (width or height).isdecimal()):
        raise argparse.ArgumentTypeError(f"'{word}' is no size, like 224x224 (height × width)")
    return int(height), int(width or height)
