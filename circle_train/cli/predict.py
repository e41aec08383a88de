"""`circle-train predict`: a model's outputs for data files."""

from __future__ import annotations

import argparse
import csv
import io
import sys
from typing import Any

import numpy as np

from circle_train.cli.look import add_look, asked_look
from circle_train.cli.runs.places import refuse_bad_output
from circle_train.cli.settings import (
    add_engine,
    add_json,
    add_shapes,
    known_config,
    load_model,
    print_json,
    print_lines,
)
from circle_train.cli.train import add_data
from circle_train.errors import ConfigError
from circle_train.finetuning import answers
from circle_train.format.atomic import atomic_write
from circle_train.model import Model
from circle_train.printable import as_json
from circle_train.session import TrainSession
from circle_train.settings.config import TrainConfig


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("predict", help="the model's outputs for data files")
    parser.add_argument("model", help="a .circle, .tflite or .onnx file")
    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="photographs, or folders of them, for a model that finetune wrote",
    )
    add_shapes(parser)
    add_data(parser, labels=False, required=False)
    parser.add_argument("--checkpoint", metavar="FILE", help="take the weights from here")
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="write .npy, or .npz for several outputs; of files .csv or .json (default: print)",
    )
    parser.add_argument(
        "--batch-size", type=int, default=32, metavar="N", help="samples at a time (default: 32)"
    )
    parser.add_argument(
        "--top", type=int, default=1, metavar="N", help="classes to name for each file (default: 1)"
    )
    add_look(parser)
    add_engine(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    refuse_bad_output(options.output, (".csv", ".json") if options.files else (".npy", ".npz"))
    model = load_model(options, options.model)
    if bool(options.files) == bool(options.input):
        raise ConfigError(
            "give the files to name (circle-train predict net.tflite photo.jpg), or arrays with --input"
        )
    return _name_files(options, model) if options.files else _predict(options, model)


def _name_files(options: argparse.Namespace, model: Model) -> int:
    """The likeliest classes of each file."""
    if options.checkpoint:
        raise ConfigError("--checkpoint goes with --input; export the checkpoint first: circle-train export")
    found = answers(model, options.files, asked_look(options), options.threads)
    rows = [(str(answer.path), answer.best(max(options.top, 1))) for answer in found]
    data = [{"file": path, **dict(named)} for path, named in rows]
    if options.output:
        text = as_json(data) if options.output.lower().endswith(".json") else _csv(rows)
        with atomic_write(options.output) as file:
            file.write(f"{text.rstrip()}\n".encode())
    elif options.json:
        print_json(data)
    else:
        width = max(len(path) for path, _ in rows) if len(rows) > 1 else 0
        print_lines(f"{path:{width}}  {_named(best)}" if width else _named(best) for path, best in rows)
    return 0


def _named(best: list[tuple[str, float]]) -> str:
    return ", ".join(f"{name} {100 * score:.0f} %" for name, score in best)


def _csv(rows: list[tuple[str, list[tuple[str, float]]]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["file", "class", "score"])
    writer.writerows((path, name, f"{score:.6g}") for path, named in rows for name, score in named)
    return text.getvalue()


def _predict(options: argparse.Namespace, model: Model) -> int:
    config = (known_config(model, options.checkpoint) or TrainConfig()).replace(batch_size=options.batch_size)
    session = TrainSession(model, config, threads=options.threads, backend=options.backend)
    if options.checkpoint:
        session.load_checkpoint(options.checkpoint)
    found = session.predict(options.input)
    outputs = found if isinstance(found, list) else [found]
    named = dict(zip([info.name for info in model.outputs], outputs, strict=True))
    if options.output:
        _write(options.output, named)
    elif options.json:
        print_json({name: array.tolist() for name, array in named.items()})
    else:
        for name, array in named.items():
            print_lines([f"{name} {array.shape}"])
            np.savetxt(sys.stdout, array.reshape(len(array), -1), fmt="%.6g")
    return 0


def _write(path: str, named: dict[str, np.ndarray[Any, Any]]) -> None:
    if path.endswith(".npz"):
        with atomic_write(path) as file:
            np.savez(file, **named)  # type: ignore[arg-type]
    elif path.endswith(".npy") and len(named) == 1:
        with atomic_write(path) as file:
            np.save(file, next(iter(named.values())))
    else:
        raise ConfigError(
            f"--output {path}: expected a name in .npz, or in .npy for a single output ({len(named)} here)"
        )
