"""How a run began, in its folder: so that `--resume RUN` asks for nothing again."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from circle_train.cli.runs.run_folder import LAST, RECORD, REPORT
from circle_train.cli.settings import positive
from circle_train.errors import FOREIGN, ConfigError, shown
from circle_train.format.atomic import write_text
from circle_train.ir.mapped import require_file
from circle_train.release import VERSION

PATHS = (
    "model", "input", "expected", "checkpoint", "export", "export_circleplus", "export_checkpoint",
    "folder", "output", "tokenizer",
)  # fmt: skip
OUTPUTS = ("export", "export_circleplus", "export_checkpoint", "output")
CHANGEABLE = ("resume", "epochs", "threads", "json", "debug", *OUTPUTS)
"""What may be said beside --resume: how far, how fast and where to, not what."""
NUMBERS: dict[Any, Callable[[str], float]] = {int: int, float: float, positive: positive}
"""What the parser makes of a word that is a number."""
OURS = ("run", "parser", "resume", "run_dir", "json", "debug")
"""Of the parsed words, what is of no run."""


def write_record(folder: Path, options: argparse.Namespace) -> None:
    """All words of the command, paths from the root on."""
    words = {name: value for name, value in vars(options).items() if name in _known(options.parser)}
    for name in (*PATHS, "validation"):
        word = words.get(name)
        if word and (name != "validation" or os.path.isdir(word)):
            words[name] = os.path.abspath(word)
    command = options.parser.prog.split()[-1]
    told = {"version": VERSION, "command": command, "folder": os.stat(folder).st_ino, "options": words}
    text = json.dumps(told, indent=2)
    write_text(folder / RECORD, f"{text}\n")


def resumed(options: argparse.Namespace) -> argparse.Namespace:
    """The words with which the run began, and those of how to go on with it."""
    folder = Path(options.resume)
    given = [
        name for name, value in vars(options).items()
        if name not in (*CHANGEABLE, *OURS) and value != options.parser.get_default(name)
    ]  # fmt: skip
    if given:
        raise ConfigError(
            f"--resume {folder} takes everything else from the run; leave out {given[0].replace('_', '-')}"
        )
    words, place = _read(folder / RECORD, options.parser)
    changed = {name: value for name in CHANGEABLE if (value := getattr(options, name, None)) is not None}
    if place != os.stat(folder).st_ino:
        _refuse_outputs(folder, {**words, **changed}, changed)
    rest = {name: getattr(options, name) for name in OURS if hasattr(options, name)}
    return argparse.Namespace(**{**words, **rest, **changed, "run_dir": str(folder)})


def _refuse_outputs(folder: Path, words: Mapping[str, Any], said: Mapping[str, Any]) -> None:
    """A folder that was not made here came from somebody: whoever wrote its record chooses no file of mine to overwrite."""
    home = folder.resolve()
    for name in OUTPUTS:
        path = words.get(name)
        if path and name not in said and not Path(path).resolve().is_relative_to(home):
            raise ConfigError(
                f"--resume {folder}: this folder is a copy of the one that the run began in, and would write {path}; say where "
                f"to with --{name.replace('_', '-')}"
            )


def is_finished(folder: Path, options: argparse.Namespace) -> bool:
    """Whether the run was whole with as many epochs; the report is written last."""
    words, _ = _read(folder / RECORD, options.parser)
    return (folder / REPORT).exists() and words["epochs"] == options.epochs


def checkpoint_in(folder: Path) -> Path | None:
    """Where the run left off."""
    last = folder / LAST
    return last if last.exists() else None


def _read(path: Path, parser: argparse.ArgumentParser) -> tuple[dict[str, Any], Any]:
    """The words, as they would stand if somebody had typed them, and the number of the folder that the run began in."""
    try:
        require_file(path)
        told = json.loads(path.read_text(encoding="utf-8"))
        words = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in told["options"].items()
        }
        command = told.get("command", "train")
    except OSError as error:
        raise ConfigError(
            f"--resume {path.parent}: {path.name} cannot be read ({error.strerror}); give the folder of a run that "
            f"`{parser.prog} --run-dir` made"
        ) from None
    except FOREIGN:
        raise ConfigError(f"--resume {path.parent}: {path.name} is damaged; begin the run anew") from None
    if command != parser.prog.rsplit(maxsplit=1)[-1]:
        raise ConfigError(
            f"--resume {path.parent}: that is a run of `circle-train {command}`; resume it there"
        )
    known = _known(parser)
    for name, value in words.items():
        if name not in known or not _could_be_said(known[name], value):
            raise ConfigError(
                f"--resume {path.parent}: {path.name} has {name} = {shown(value)}, as no command line does; begin the run anew"
            )
    defaults = {name: parser.get_default(name) for name in known}
    return {**defaults, **words}, told.get("folder")


def _known(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """The words that make a run."""
    return {a.dest: a for a in parser._actions if a.dest not in (*OURS, "help")}


def _could_be_said(action: argparse.Action, value: Any) -> bool:
    """Whether the parser gives such a value."""
    if value is None or isinstance(value, bool):
        return value is action.default or (action.nargs == 0 and value is not None)
    if action.type in NUMBERS:
        with suppress(ValueError, argparse.ArgumentTypeError):
            return bool(NUMBERS[action.type](str(value)) == value)
        return False
    parts = value if isinstance(value, tuple) else (value,)
    if action.type is None and isinstance(value, tuple) != isinstance(action, argparse._AppendAction):
        return False
    if action.choices is not None:
        return all(one in action.choices for one in parts)
    return all(_is_word(one) or (action.type is not None and type(one) in (int, float)) for one in parts)


def _is_word(value: Any) -> bool:
    """A system hands over no NUL and no half of a character."""
    with suppress(UnicodeEncodeError):
        return isinstance(value, str) and b"\0" not in os.fsencode(value)
    return False
