"""`circle-train COMMAND …`."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence

from circle_train import __version__
from circle_train.cli import (
    artifacts,
    check,
    convert,
    data,
    demo,
    evaluate,
    export,
    info,
    plus,
    predict,
    train,
)
from circle_train.errors import CircleTrainError
from circle_train.printable import printable

COMMANDS = (demo, info, check, convert, plus, artifacts, data, train, evaluate, predict, export)

EPILOG = """\
the first five minutes:
  circle-train demo                                  train, validate, export and compare on data that come along
  circle-train check net.tflite                      what of your model can be trained, and what each choice costs
  circle-train train net.tflite --input x.npy --expected y.npy --trainable last:5 --export trained.tflite
"""


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="circle-train",
        description="Fine-tune .circle, .tflite and .onnx models, and get an inference file back.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"circle-train {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_parser(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 1 a user's error, 2 wrong usage."""
    options = parser().parse_args(arguments)
    warnings.showwarning = _show_warning
    try:
        status: int = options.run(options)
        sys.stdout.flush()
        return status
    except CircleTrainError as error:
        return _fail(str(error))
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        return _fail(f"{error.filename or 'input or output'}: {error.strerror or error}")
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _fail(message: str) -> int:
    print(f"error: {printable(message)}", file=sys.stderr)
    return 1


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """One line, without the place in our code."""
    print(f"warning: {printable(str(message))}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
