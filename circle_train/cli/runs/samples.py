"""Which samples a command means: photographs, recordings, texts, tables or windows of sensors."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from circle_train import data
from circle_train.cli.runs.look import look_of
from circle_train.data.labelled import Labelled
from circle_train.data.pictures import SUFFIXES as PICTURES
from circle_train.data.recordings import SUFFIXES as RECORDINGS
from circle_train.errors import ConfigError

KINDS = ("images", "sounds", "text", "table", "windows")
BELONGS = {
    "label": ("table", "text", "windows"),
    "group": ("table", "text", "windows"),
    "columns": ("table", "windows", "text"),
    "length": ("windows", "text"),
    "step": ("windows",),
    "tokenizer": ("text",),
    "seconds": ("sounds",),
    "sample_rate": ("sounds",),
    "skip_damaged": ("images", "sounds"),
}
"""Options, and the kinds that they are for."""


def add_kind(parser: argparse.ArgumentParser) -> None:
    """What samples there are, and how they are cut."""
    group = parser.add_argument_group("samples")
    group.add_argument(
        "--kind",
        choices=["auto", *KINDS],
        default="auto",
        help="of samples (default: auto, by what is there)",
    )
    group.add_argument(
        "--label",
        metavar="COLUMN",
        help="of a .csv file: what is to be foreseen, or several as a,b (default: label)",
    )
    group.add_argument(
        "--columns",
        type=lambda word: word.split(","),
        metavar="A,B",
        help="of a .csv file: what the model reads (default: all but label and group; of texts the column 'text')",
    )
    group.add_argument(
        "--group", metavar="COLUMN", help="people or devices: each trains or validates as a whole"
    )
    group.add_argument("--length", type=int, metavar="N", help="rows of a window, tokens of a text")
    group.add_argument(
        "--step", type=int, metavar="N", help="rows from window to window (default: its length)"
    )
    group.add_argument(
        "--tokenizer", metavar="FILE", help="of texts: the model's tokenizer.json or vocab.txt"
    )
    group.add_argument(
        "--seconds", type=float, metavar="S", help="cut recordings into windows of this length"
    )
    group.add_argument(
        "--sample-rate", type=int, metavar="HZ", help="of the model's input (default: the model's, or 16000)"
    )


def samples_of(options: argparse.Namespace) -> Labelled:
    """The samples that these words mean."""
    kind = _kind(Path(options.folder)) if options.kind == "auto" else options.kind
    if options.tokenizer and options.kind == "auto":
        kind = "text"
    told = {name: getattr(options, name) for name in BELONGS}
    given = {name: value for name, value in told.items() if value is not None and value is not False}
    look = look_of(options)
    wrong = [name for name in given if kind not in BELONGS[name]] or (list(look) if kind != "images" else [])
    if wrong:
        fit = " and ".join(BELONGS.get(wrong[0], ("images",)))
        raise ConfigError(
            f"--{wrong[0].replace('_', '-')} is for {fit}, but '{options.folder}' holds {kind} (--kind says otherwise)"
        )
    words = [word for word in options.augment.split(",") if word and word != "auto"]
    varied = {"augment": "all" if words == ["all"] else words} if words else {}
    if varied and kind not in ("images", "sounds"):
        raise ConfigError(f"--augment is for images and sounds, but '{options.folder}' holds {kind}")
    if kind == "table":
        label = given.pop("label", "label")
        given["label"] = label.split(",") if "," in label else label
    if kind == "text" and "columns" in given:
        given["column"] = ",".join(given.pop("columns"))
    if kind == "text" and "tokenizer" not in given:
        raise ConfigError(
            "texts need the model's vocabulary: --tokenizer tokenizer.json, or vocab.txt of a BERT"
        )
    make: Any = getattr(data, kind)
    found: Labelled = make(
        options.folder, validation=_validation(options.validation, kind), **given, **look, **varied
    )
    return found


def _kind(path: Path) -> str:
    """What a folder holds most of; .npz are windows, .csv a table."""
    if path.suffix.lower() == ".npz":
        return "windows"
    if path.suffix.lower() == ".csv":
        return "table"
    counts = dict.fromkeys(("images", "sounds", "text"), 0)
    for _, folders, names in os.walk(path):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            suffix = os.path.splitext(name)[1].lower()
            counts["images"] += suffix in PICTURES
            counts["sounds"] += suffix in RECORDINGS
            counts["text"] += suffix == ".txt"
        if sum(counts.values()) > 1000:
            break
    return max(counts, key=lambda kind: counts[kind])


def _validation(word: str | None, kind: str) -> float | str | None:
    if word is None:
        return None
    try:
        return float(word)
    except ValueError:
        if kind == "images":
            return word
        raise ConfigError(f"--validation is '{word}', expected a fraction like 0.2") from None
