"""How a run began, in its folder: so that `--resume RUN` asks for nothing again."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from circle_train.cli.runs.run_folder import LAST, REPORT
from circle_train.errors import ConfigError
from circle_train.format.atomic import write_text
from circle_train.ir.mapped import require_file
from circle_train.release import VERSION

RECORD = "run.json"
PATHS = (
    "model", "input", "expected", "checkpoint", "export", "export_circleplus", "export_checkpoint",
    "folder", "output", "tokenizer",
)  # fmt: skip
CHANGEABLE = ("resume", "epochs", "threads", "json", "debug")
"""What may be said beside --resume: how far and how fast, not what."""
OURS = ("run", "parser", "resume", "run_dir", "json", "debug")
"""Of the parsed words, what is of no run."""


def write_record(folder: Path, options: argparse.Namespace) -> None:
    """All words of the command, paths from the root on."""
    words = {name: value for name, value in vars(options).items() if name not in OURS}
    for name in (*PATHS, "validation"):
        word = words.get(name)
        if word and (name != "validation" or os.path.isdir(word)):
            words[name] = os.path.abspath(word)
    command = options.parser.prog.split()[-1]
    text = json.dumps({"version": VERSION, "command": command, "options": words}, indent=2)
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
    words = _read(folder / RECORD, options.parser.prog)
    changed = {
        name: getattr(options, name) for name in ("epochs", "threads") if getattr(options, name) is not None
    }
    rest = {name: getattr(options, name) for name in OURS if hasattr(options, name)}
    return argparse.Namespace(**{**words, **rest, **changed, "run_dir": str(folder)})


def is_finished(folder: Path, options: argparse.Namespace) -> bool:
    """Whether the run was whole with as many epochs; the report is written last."""
    return (folder / REPORT).exists() and _read(folder / RECORD, options.parser.prog)[
        "epochs"
    ] == options.epochs


def checkpoint_in(folder: Path) -> Path | None:
    """Where the run left off."""
    last = folder / LAST
    return last if last.exists() else None


def _read(path: Path, program: str) -> dict[str, Any]:
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
            f"`{program} --run-dir` made"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ConfigError(f"--resume {path.parent}: {path.name} is damaged; begin the run anew") from None
    if command != program.rsplit(maxsplit=1)[-1]:
        raise ConfigError(
            f"--resume {path.parent}: that is a run of `circle-train {command}`; resume it there"
        )
    return words
