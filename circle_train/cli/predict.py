"""`circle-train predict`: a model's outputs for data files."""

from __future__ import annotations

import argparse
import csv
import io
import sys
import zipfile
from typing import Any

import numpy as np

from circle_train.cli.runs.look import READS, add_look, asked_look, look_of
from circle_train.cli.runs.places import refuse_bad_output
from circle_train.cli.settings import (
    add_engine,
    add_json,
    add_shapes,
    known_config,
    load_model,
    positive,
    print_json,
    print_lines,
    refuse_idle,
)
from circle_train.cli.train import add_data
from circle_train.errors import ConfigError
from circle_train.finetuning.answers import Question, answers
from circle_train.format.atomic import atomic_write, write_text
from circle_train.model import Model
from circle_train.printable import as_json, printable
from circle_train.session import TrainSession
from circle_train.settings.config import TrainConfig


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="a .circle, .tflite or .onnx file")
    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="photographs, recordings or texts, folders of them, or tables, for a model that finetune wrote",
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
        "--batch-size", type=positive, default=32, metavar="N", help="samples at a time (default: 32)"
    )
    parser.add_argument(
        "--top", type=positive, metavar="N", help="classes to name for each sample (default: 1)"
    )
    parser.add_argument(
        "--tokenizer", metavar="FILE", help="of texts: the model's tokenizer.json or vocab.txt"
    )
    add_look(parser)
    add_engine(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    refuse_bad_output(options.output, (".csv", ".json") if options.files else (".npy", ".npz"))
    if options.output:
        refuse_idle(options, ("json",), "what is printed; --output FILE.json writes it")
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
    _refuse_look(options, model)
    question = Question(
        asked_look(options), options.tokenizer, options.batch_size, options.threads, options.backend
    )
    found = answers(model, options.files, question)
    rows = [(answer.name, answer.best(options.top), answer.meaning) for answer in found]
    data = [{"file": name, **dict(named)} for name, named, _ in rows]
    if options.output:
        text = as_json(data) if options.output.lower().endswith(".json") else _csv(rows)
        write_text(options.output, f"{text.rstrip()}\n")
        print_lines([f"wrote {options.output}: {len(rows)} {'sample' if len(rows) == 1 else 'samples'}"])
    elif options.json:
        print_json(data)
    else:
        width = max(len(name) for name, _, _ in rows) if len(rows) > 1 else 0
        said = ((name, _named(best, meaning)) for name, best, meaning in rows)
        print_lines(f"{name:{width}}  {words}" if width else words for name, words in said)
    return 0


def _refuse_look(options: argparse.Namespace, model: Model) -> None:
    """Words that say nothing of this model's samples."""
    kind = "image" if model.description is None else model.description.kind
    given = look_of(options)
    if given and kind != "image":
        raise ConfigError(
            f"--{next(iter(given))} is for pictures, but the model reads {READS.get(kind, kind)}"
        )
    if options.tokenizer and kind != "text":
        raise ConfigError(f"--tokenizer is for texts, but the model reads {READS.get(kind, kind)}")


def _named(best: list[tuple[str, float]], meaning: str) -> str:
    if meaning == "values":
        return ", ".join(f"{name} {value:.6g}" for name, value in best)
    return ", ".join(f"{name} {100 * score:.0f} %" for name, score in best)


def _csv(rows: list[tuple[str, list[tuple[str, float]], str]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["file", "class", "score"])
    writer.writerows((path, name, f"{score:.6g}") for path, named, _ in rows for name, score in named)
    return text.getvalue()


def _predict(options: argparse.Namespace, model: Model) -> int:
    for name in ("top", "tokenizer", *look_of(options)):
        if getattr(options, name) is not None:
            raise ConfigError(f"--{name} goes with files to name; arrays of --input are taken as they are")
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
        with atomic_write(path) as file, zipfile.ZipFile(file, "w") as archive:
            # not by savez, which takes the names "file" and "allow_pickle" for its own
            for name, array in named.items():
                with archive.open(f"{printable(name)}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, np.asarray(array), allow_pickle=False)
    elif path.endswith(".npy") and len(named) == 1:
        with atomic_write(path) as file:
            np.save(file, next(iter(named.values())))
    else:
        raise ConfigError(
            f"--output {path}: expected a name in .npz, or in .npy for a single output ({len(named)} here)"
        )
