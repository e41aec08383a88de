"""`circle-train finetune`: from a folder of labelled samples to a model file that names its classes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from circle_train.cli.settings import add_json, add_shapes, load_model, print_json, print_lines, trainable_of
from circle_train.data import images
from circle_train.data.images import CROPS, asked_of
from circle_train.data.labelled import Labelled
from circle_train.errors import ConfigError
from circle_train.finetuning import Result, finetune
from circle_train.finetuning.finetune import EPOCHS, HEAD_EPOCHS
from circle_train.format.metadata.description import Description
from circle_train.model import Model

EPILOG = """\
examples:
  circle-train finetune photos/ --model mobilenet.tflite -o animals.tflite
  circle-train predict animals.tflite photo.jpg
"""
MODELS = (".tflite", ".circle", ".onnx")


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "finetune",
        help="from a folder of photographs to a trained model that names them",
        description="A new classifier is put on the model and trained, then the last layers with it; the best weights "
        "are written, with the classes' names and the scale of the pixels in the file.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", help="a folder for each class with its photographs")
    parser.add_argument(
        "--model", required=True, metavar="NET", help="the .tflite, .circle or .onnx file to start from"
    )
    parser.add_argument(
        "-o", "--output", required=True, metavar="OUT", help="what to write: .tflite, .circle or .onnx"
    )
    add_shapes(parser)
    parser.add_argument(
        "--classes",
        default="auto",
        metavar="auto|N",
        help="how many classes there are to be (default: auto, the folders)",
    )
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
        "--learning-rate", type=float, metavar="X", help="of the head; later a tenth (default: 0.003)"
    )
    course.add_argument(
        "--batch-size", type=int, default=16, metavar="N", help="samples a step (default: 16)"
    )
    course.add_argument(
        "--balanced", action="store_true", help="let rare classes count as much as frequent ones"
    )
    course.add_argument("--skip-damaged", action="store_true", help="leave out pictures that cannot be read")
    course.add_argument(
        "--threads", type=int, metavar="N", help="threads to use (default: one for each core)"
    )
    course.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of split, order and variation (default: 0)"
    )
    add_json(parser)
    parser.set_defaults(run=run)


def add_look(parser: argparse.ArgumentParser) -> None:
    """How pictures become a model's input."""
    look = parser.add_argument_group("pictures (default: as the model's file says)")
    look.add_argument(
        "--scale", type=_numbers, metavar="S", help="the model gets (pixel - offset) / scale, of 0 … 255"
    )
    look.add_argument(
        "--offset", type=_numbers, metavar="O", help="one number, or one for each channel as 124,116,104"
    )
    look.add_argument("--size", type=_size, metavar="HxW", help="height and width, where the model takes any")
    look.add_argument(
        "--crop",
        choices=CROPS,
        default=None,
        help="cut the middle out, distort, or add black (default: center)",
    )


def look_of(options: argparse.Namespace) -> dict[str, Any]:
    """These words as arguments of `images`."""
    given = {name: getattr(options, name) for name in ("scale", "offset", "size", "crop")}
    return {name: value for name, value in given.items() if value is not None}


def asked_look(options: argparse.Namespace) -> Description:
    """These words as a description that leaves the rest to the model's file."""
    return asked_of(**look_of(options))


def run(options: argparse.Namespace) -> int:
    refuse_bad_output(options.output, options.model)
    model = load_model(options, options.model)
    data = images(
        options.folder,
        validation=_validation(options.validation),
        augment="all" if options.augment == "all" else [word for word in options.augment.split(",") if word],
        skip_damaged=options.skip_damaged,
        **look_of(options),
    )
    _check_classes(options.classes, data)
    if not options.json:
        _announce(options, model, data)
    result = finetune(
        model, data, epochs=options.epochs, patience=options.patience, batch_size=options.batch_size, seed=options.seed,
        trainable=options.trainable if options.trainable in ("auto", "none", "all") else trainable_of(options.trainable),
        learning_rate=options.learning_rate, class_weights="balanced" if options.balanced else None,
        threads=options.threads, verbose=0 if options.json else "auto",
    )  # fmt: skip
    result.export(options.output)
    _report(options, result)
    return 0


def refuse_bad_output(path: str, model: str) -> None:
    """A wrong output path must not cost the training."""
    place = Path(path)
    if place.suffix.lower() not in MODELS:
        raise ConfigError(f"{path}: the suffix is '{place.suffix}', expected one of {', '.join(MODELS)}")
    if place.suffix.lower() == ".onnx" and not model.lower().endswith(".onnx"):
        raise ConfigError(
            f"{path}: only a model that came from .onnx goes back into .onnx; choose .tflite or .circle"
        )
    if not place.resolve().parent.is_dir():
        raise ConfigError(f"{path}: there is no folder {place.resolve().parent}; make it first")


def _announce(options: argparse.Namespace, model: Model, data: Labelled) -> None:
    counts = ", ".join(f"{name} {count}" for name, count in zip(data.classes, data.counts(), strict=True))
    print_lines([f"{options.folder}: {len(data)} samples, {counts}"])
    if data.skipped:
        print_lines([f"left out: {len(data.skipped)} that cannot be read, the first {data.skipped[0]}"])
    if set(model.labels) >= set(data.classes):
        print_lines(
            [f"{options.model} knows these classes already; it gets a new head for them all the same"]
        )


def _report(options: argparse.Namespace, result: Result) -> None:
    if options.json:
        print_json(
            {"metrics": result.metrics, "classes": list(result.data.classes), "output": options.output}
        )
        return
    print_lines(
        [
            *str(result).splitlines(),
            f"wrote {options.output} and labels.txt; next: circle-train predict {options.output} PHOTO",
        ]
    )


def _check_classes(wish: str, data: Labelled) -> None:
    if wish == "auto":
        return
    if not wish.isdigit() or int(wish) != len(data.classes):
        found = f"{len(data.classes)} folders: {', '.join(data.classes)}"
        raise ConfigError(f"--classes is {wish}, but there are {found}; leave it out or mend the folders")


def _validation(word: str) -> float | str:
    try:
        return float(word)
    except ValueError:
        return word


def _numbers(word: str) -> float | tuple[float, ...]:
    values = tuple(float(part) for part in word.split(","))
    return values[0] if len(values) == 1 else values


def _size(word: str) -> tuple[int, int]:
    height, _, width = word.lower().partition("x")
    return int(height), int(width or height)
