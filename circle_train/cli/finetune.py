"""`circle-train finetune`: from a folder of labelled samples to a model file that names its classes."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

from circle_train.cli.look import add_look
from circle_train.cli.runs.places import MODELS, refuse_bad_output, unused
from circle_train.cli.runs.samples import add_kind, samples_of
from circle_train.cli.settings import (
    add_json,
    add_shapes,
    load_model,
    print_json,
    print_lines,
    told,
    trainable_of,
)
from circle_train.data.labelled import Labelled
from circle_train.errors import ConfigError
from circle_train.finetuning import Result, finetune
from circle_train.finetuning.finetune import EPOCHS, HEAD_EPOCHS, LOG
from circle_train.finetuning.result import summary
from circle_train.format.atomic import make_folder, write_text
from circle_train.model import Model
from circle_train.printable import as_json
from circle_train.session.shipping.ship import Shipped
from circle_train.settings.quantization import SCHEMES

NEXT = {"image": "PHOTO", "audio": "RECORDING", "features": "TABLE", "text": "TEXT --tokenizer FILE"}
"""What may be named with the model next, by the kind of its input."""
EPILOG = """\
examples:
  circle-train finetune photos/ --model mobilenet.tflite -o animals.tflite
  circle-train finetune photos/ --model mobilenet.tflite -o animals.tflite --budget 150MB,60s
  circle-train finetune photos/ --model mobilenet.tflite -o animals.tflite --quantize int8
  circle-train predict animals.tflite photo.jpg
"""


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "finetune",
        help="from a folder of labelled samples to a trained model that names them",
        description="A new classifier is put on the model and trained, then the last layers with it; the best weights "
        "are written, with the classes' names and the scale of the pixels in the file.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "folder",
        help="a folder for each class with its photographs, recordings or texts; or a .csv or .npz file",
    )
    parser.add_argument(
        "--model", required=True, metavar="NET", help="the .tflite, .circle or .onnx file to start from"
    )
    parser.add_argument(
        "-o", "--output", required=True, metavar="OUT", help="what to write: .tflite, .circle or .onnx"
    )
    parser.add_argument(
        "--quantize",
        choices=SCHEMES,
        help="ship it in integers, calibrated on these samples and judged on those held out: int8 for phones and "
        "microcontrollers (see circle-train quantize)",
    )
    add_shapes(parser)
    parser.add_argument(
        "--classes",
        default="auto",
        metavar="auto|N",
        help="how many classes there are to be (default: auto, the folders)",
    )
    add_kind(parser)
    add_look(parser)
    course = parser.add_argument_group("course")
    course.add_argument(
        "--validation",
        default="0.2",
        metavar="F|DIR",
        help="fraction of each class that validates, or another folder (default: 0.2)",
    )
    course.add_argument(
        "--epochs",
        type=int,
        metavar="N",
        help=f"passes at the most in each phase (default: {HEAD_EPOCHS} and {EPOCHS})",
    )
    course.add_argument(
        "--patience",
        type=int,
        default=5,
        metavar="N",
        help="epochs without gain that end a phase (default: 5)",
    )
    course.add_argument(
        "--augment", default="", metavar="LIST", help="vary pictures: flip,crop,colour or all (default: none)"
    )
    course.add_argument(
        "--trainable",
        default="auto",
        metavar="WHAT",
        help="of the second phase: auto, none, all, last:N, names",
    )
    course.add_argument(
        "--budget",
        metavar="SIZE,TIME",
        help="memory of a step and processor time in all, e.g. 150MB,60s: trials find out what to train within it",
    )
    course.add_argument(
        "--learning-rate", type=float, metavar="X", help="of the head; later a tenth (default: 0.003)"
    )
    course.add_argument(
        "--batch-size", type=int, default=16, metavar="N", help="samples a step (default: 16)"
    )
    course.add_argument(
        "--balanced", action="store_true", help="let rare classes count as much as frequent ones"
    )
    course.add_argument("--skip-damaged", action="store_true", help="leave out files that cannot be read")
    course.add_argument(
        "--threads", type=int, metavar="N", help="threads to use (default: one for each core)"
    )
    course.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of split, order and variation (default: 0)"
    )
    parser.add_argument("--run-dir", metavar="DIR", help="report.html, metrics.json and plan.txt of this run")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    refuse_bad_output(options.output, MODELS, options.model)
    model = load_model(options, options.model)
    if model.provenance is None:
        refuse_bad_output(options.output, MODELS[:2])
    if options.run_dir:
        options.run_dir = str(unused(options.run_dir)) if Path(options.run_dir).is_dir() else options.run_dir
        make_folder(options.run_dir, "run folder")
    data = samples_of(options)
    _check_classes(options.classes, data)
    if not options.json:
        _announce(options, model, data)
    try:
        with told(LOG, not options.json):
            result = finetune(
                model, data, epochs=options.epochs, patience=options.patience, batch_size=options.batch_size, seed=options.seed,
                trainable="auto" if options.trainable == "auto" else trainable_of(options.trainable),
                learning_rate=options.learning_rate, class_weights="balanced" if options.balanced else None,
                threads=options.threads, budget=options.budget, verbose=0 if options.json else "auto",
            )  # fmt: skip
    except KeyboardInterrupt:
        print(
            "stopped; nothing was written: the same command begins again, --epochs N makes it shorter",
            file=sys.stderr,
        )
        return 130
    shipped = result.export(options.output, quantize=options.quantize)
    if options.run_dir:
        _fill(Path(options.run_dir), options, result, shipped)
    _report(options, result, shipped)
    return 0


def _fill(folder: Path, options: argparse.Namespace, result: Result, shipped: Shipped | None) -> None:
    """What the run leaves behind for people and for programs."""
    files = [options.model, options.output]
    result.report(folder / "report.html", shlex.join(["circle-train", *sys.argv[1:]]), files, shipped)
    for name, text in (("metrics.json", as_json(summary(result))), ("plan.txt", str(result.session.plan))):
        write_text(folder / name, f"{text}\n")


def _announce(options: argparse.Namespace, model: Model, data: Labelled) -> None:
    counts = zip(data.classes, data.counts() if data.classes else (), strict=True)
    print_lines(
        [
            ", ".join(
                [f"{options.folder}: {len(data)} samples", *(f"{name} {count}" for name, count in counts)]
            )
        ]
    )
    if data.skipped:
        print_lines([f"left out: {len(data.skipped)} that cannot be read, the first: {data.skipped[0]}"])
    if set(model.labels) >= set(data.classes):
        print_lines(
            [f"{options.model} knows these classes already; it gets a new head for them all the same"]
        )


def _report(options: argparse.Namespace, result: Result, shipped: Shipped | None) -> None:
    if options.json:
        became = {} if shipped is None else {"shipped": shipped.facts}
        print_json({**summary(result), "output": options.output, **became})
        return
    print_lines(
        [
            *str(result).splitlines()[1:],  # the first was told at the start
            *([] if shipped is None else str(shipped).splitlines()),
            f"wrote {options.output}{' and labels.txt' * bool(result.data.classes)}"
            + (f" and {options.run_dir}/report.html" if options.run_dir else "")
            + f"; next: circle-train predict {options.output} {NEXT[result.how.kind]}",
        ]
    )


def _check_classes(wish: str, data: Labelled) -> None:
    if wish == "auto":
        return
    if not wish.isdigit() or int(wish) != len(data.classes):
        found = f"{len(data.classes)} folders: {', '.join(data.classes)}"
        raise ConfigError(f"--classes is {wish}, but there are {found}; leave it out or mend the folders")
