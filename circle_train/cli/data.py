"""`circle-train data`: raw data files from .npy, .npz, .csv, idx files and folders of images."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from circle_train.cli.settings import add_json, print_json, print_lines, refuse_idle
from circle_train.data.prepare import Made, Preparation, open_source, prepare
from circle_train.errors import ConfigError
from circle_train.report.plan import size, table

SIZE = "224x224"
LAYOUTS = {"nhwc": None, "nchw": (2, 0, 1), "nchw-to-nhwc": (1, 2, 0)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", help=".npy, .npz (x and y), .csv, idx (also .gz), or a folder with a folder per class"
    )
    parser.add_argument(
        "--labels", metavar="FILE", help="labels of SOURCE, where it does not hold them: .npy or idx"
    )
    parser.add_argument(
        "--label-column", metavar="C", help="column of a .csv that holds the labels: name or index"
    )
    parser.add_argument("--out", default="out", metavar="DIR", help="where to write (default: out)")
    parser.add_argument("--prefix", default="", metavar="P", help="what the files' names begin with")
    parser.add_argument(
        "--split", nargs="+", default=["train"], metavar="NAME[:SIZE]",
        help="parts by fraction or count, e.g. train test:0.2 or train:1000 test:100; one may take the rest",
    )  # fmt: skip
    parser.add_argument(
        "--one-hot",
        nargs="?",
        type=int,
        const=0,
        metavar="N",
        help="one-hot labels of N classes (default: as many as found)",
    )
    parser.add_argument("--scale", type=float, default=1.0, metavar="S", help="divide samples by S, e.g. 255")
    parser.add_argument(
        "--offset", type=float, default=0.0, metavar="O", help="subtract O before dividing, e.g. 127.5"
    )
    parser.add_argument(
        "--layout", choices=sorted(LAYOUTS), default="nhwc",
        help="nchw: move the channels of N×H×W×C samples to the front; nchw-to-nhwc: to the back",
    )  # fmt: skip
    parser.add_argument(
        "--channel", action="store_true", help="give N×H×W samples a last axis of one channel"
    )
    parser.add_argument("--size", metavar="HxW", help=f"size of a folder's images (default: {SIZE})")
    parser.add_argument("--seed", type=int, metavar="N", help="shuffle before splitting (default: in order)")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if not Path(options.source).is_dir():
        refuse_idle(options, ("size",), "a folder of images")
    if Path(options.source).suffix.lower() != ".csv":
        refuse_idle(options, ("label_column",), "a .csv file")
    source = open_source(
        options.source, options.labels, options.label_column, _image_size(options.size or SIZE)
    )
    how = Preparation(
        parts=tuple(_part(word) for word in options.split),
        classes=options.one_hot,
        scale=options.scale,
        offset=options.offset,
        transpose=LAYOUTS[options.layout],
        add_channel=options.channel,
        seed=options.seed,
    )
    made = prepare(source, how, options.out, options.prefix)
    if options.json:
        print_json({"classes": list(source.classes), "files": [_facts(file) for file in made]})
        return 0
    rows = [("file", "samples", "of", "type", "size")]
    rows += [(str(m.path), str(m.samples), _times(m.shape), m.dtype, size(m.nbytes)) for m in made]
    print_lines(table(rows))
    if source.classes:
        print_lines(["classes: " + ", ".join(f"{n} {name}" for n, name in enumerate(source.classes))])
    return 0


def _part(word: str) -> tuple[str, float | None]:
    """NAME, NAME:FRACTION or NAME:COUNT."""
    name, _, amount = word.partition(":")
    if not amount:
        return name, None
    try:
        value = float(amount)
    except ValueError:
        value = 0.0
    if not name or value <= 0 or (value >= 1 and value != int(value)):
        raise ConfigError(f"--split: '{word}', expected NAME, NAME:FRACTION below 1 or NAME:COUNT")
    return name, value


def _image_size(word: str) -> tuple[int, int]:
    height, _, width = word.lower().partition("x")
    if not (height.isdigit() and width.isdigit() and int(height) and int(width)):
        raise ConfigError(f"--size is '{word}', expected HEIGHTxWIDTH, e.g. 224x224")
    return int(height), int(width)


def _facts(made: Made) -> dict[str, Any]:
    return {
        "file": str(made.path),
        "samples": made.samples,
        "shape": list(made.shape),
        "dtype": made.dtype,
        "bytes": made.nbytes,
    }


def _times(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "one number"
