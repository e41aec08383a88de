"""`circle-train COMMAND …`."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, NoReturn

from circle_train import __version__
from circle_train.cli.runs.ending import ended
from circle_train.likeness import likeness

COMMANDS = {
    "demo": ("demo", "the whole flow in a few seconds, on handwritten digits that come along"),
    "finetune": ("finetune", "from a folder of labelled samples to a trained model that names them"),
    "info": ("info", "inputs, outputs, operators, parameters, size, Circle+ settings"),
    "check": ("check", "which operators can be trained, and what every last-n choice costs"),
    "convert": ("convert", ".onnx, .tflite or .circle to .circle or .tflite"),
    "plus": ("onert.plus", "Circle+: print, write or remove a model's training settings"),
    "artifacts": ("artifacts", "make a training package for a device"),
    "data": ("data", "make raw data files: split, scaled, one-hot"),
    "train": ("train", "train a model on data files"),
    "eval": ("evaluate", "loss and metrics on data files; nothing is trained"),
    "predict": ("predict", "the model's outputs for data files"),
    "export": ("export", "write an inference model with the weights of a checkpoint"),
    "quantize": ("quantize", "write a model of floats in integers, or in half floats"),
    "federate": ("federate.command", "make and run a fleet's app for Flower"),
    "doctor": ("doctor", "engine, processor, threads, versions and extras of this installation"),
}
"""By their names, the modules, each imported when its command is meant, and what the help says of them."""

EPILOG = """\
the first five minutes:
  circle-train demo                                  train, validate, export and compare on data that come along
  circle-train finetune photos/ --model net.tflite -o mine.tflite    a folder for each class: train, name, write
  circle-train check net.tflite                      what of your model can be trained, and what each choice costs
  circle-train train net.tflite --input x.npy --expected y.npy --trainable last:5 --export trained.tflite
"""


class Parser(argparse.ArgumentParser):
    """Says what a mistaken option may have meant; options are written out."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "allow_abbrev": False})

    def error(self, message: str) -> NoReturn:
        found = re.search(r"unrecognized arguments: (-\S+)", message)
        super().error(message + (_meant(found[1].partition("=")[0]) if found else ""))


def _meant(option: str) -> str:
    """Whose option it is, or which one of any command it may stand for."""
    known = {
        one.prog.removeprefix("circle-train "): one._option_string_actions for one in _and_below(parser())
    }
    if owners := [name for name, options in known.items() if option in options]:
        return f"; it is an option of {', '.join(owners)}"
    words = [word for options in known.values() for word in options if word[:2] == "--"]
    name = likeness(option.lstrip("-"), [word[2:].replace("-", "_") for word in words])
    return name.replace("'", "'--", 1).replace("_", "-")


def _and_below(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """This parser and those of its commands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for one in action.choices.values():
                yield from _and_below(one)


def parser(asked: str | None = None) -> argparse.ArgumentParser:
    """The command line: whole, or as far as the command that is asked for needs it."""
    top = Parser(
        prog="circle-train",
        description="Fine-tune .circle, .tflite and .onnx models, and get an inference file back.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--debug", action="store_true", help="show where in the code an error arose")
    top.add_argument("--version", action="version", version=f"circle-train {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, (module, says) in COMMANDS.items():
        command = commands.add_parser(name, help=says)
        if asked in (None, name):
            import_module(f"circle_train.cli.{module}").add_arguments(command)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 1 a user's error, 2 wrong usage."""
    words = sys.argv[1:] if arguments is None else arguments
    return ended(lambda: _run(words), "--debug" in words)


def _run(words: Sequence[str]) -> int | None:
    if not words:
        parser("").print_help(sys.stderr)
        raise SystemExit(2)
    asked = next((word for word in words if not word.startswith("-")), "")
    options = parser(asked).parse_args(words)
    status: int | None = options.run(options)
    return status


if __name__ == "__main__":
    sys.exit(main())
