"""`circle-train COMMAND …`."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from circle_train import __version__
from circle_train.cli import (
    artifacts,
    check,
    convert,
    data,
    demo,
    doctor,
    evaluate,
    export,
    finetune,
    info,
    predict,
    quantize,
    train,
)
from circle_train.cli.federate import command as federate
from circle_train.cli.onert import plus
from circle_train.cli.runs.ending import ended, take_any_text
from circle_train.likeness import likeness

COMMANDS = (
    demo,
    finetune,
    info,
    check,
    convert,
    plus,
    artifacts,
    data,
    train,
    evaluate,
    predict,
    export,
    quantize,
    federate,
    doctor,
)

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
        hint = ""
        owners = [] if found is None else self._owners(found[1].partition("=")[0])
        if owners:
            hint = f"; it is an option of {', '.join(owners)}"
        elif found:
            words = [word for parser in self._all() for word in parser._option_string_actions]
            name = likeness(
                found[1].lstrip("-").partition("=")[0],
                [w[2:].replace("-", "_") for w in words if w[:2] == "--"],
            )
            hint = name.replace("'", "'--", 1).replace("_", "-") or hint
        super().error(message + hint)

    def _owners(self, word: str) -> list[str]:
        """The commands that know it."""
        return [
            str(parser.prog).rpartition(" ")[2]
            for parser in self._all()
            if word in parser._option_string_actions
        ]

    def _all(self) -> Iterator[argparse.ArgumentParser]:
        """This parser and those of its commands."""
        yield self
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                yield from action.choices.values()


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = Parser(
        prog="circle-train",
        description="Fine-tune .circle, .tflite and .onnx models, and get an inference file back.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--debug", action="store_true", help="show where in the code an error arose")
    top.add_argument("--version", action="version", version=f"circle-train {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_parser(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 1 a user's error, 2 wrong usage."""
    take_any_text()
    options = parser().parse_args(arguments)
    return ended(lambda: options.run(options), options.debug)


if __name__ == "__main__":
    sys.exit(main())
