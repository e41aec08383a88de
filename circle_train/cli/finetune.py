"""`circle-train finetune`: from a folder of labelled samples to a model file that names its classes."""

from __future__ import annotations

import argparse
import logging
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

from circle_train.cli.runs.look import add_look
from circle_train.cli.runs.places import MODELS, exported, refuse_bad_output, unused
from circle_train.cli.runs.record import is_finished, resumed, write_record
from circle_train.cli.runs.samples import add_kind, samples_of
from circle_train.cli.settings import (
    add_json,
    add_shapes,
    load_model,
    positive,
    print_json,
    print_lines,
    refuse_idle,
    told,
    trainable_of,
)
from circle_train.data.labelled import Labelled
from circle_train.errors import ConfigError
from circle_train.finetuning.account import Result
from circle_train.finetuning.deeper import DEEPER_LENGTH
from circle_train.finetuning.finetune import HEAD_LENGTH, Finetuning
from circle_train.finetuning.recipe import PATIENCE, VARIANTS, Recipe
from circle_train.finetuning.result import summary
from circle_train.finetuning.stages import Stages
from circle_train.format.atomic import make_folder, write_text
from circle_train.model import Model
from circle_train.printable import as_json, printable
from circle_train.session.shipping.ship import Shipped
from circle_train.settings.quantization import SCHEMES

LOG = logging.getLogger("circle_train.finetuning")
"""What the course says of itself: phases, trials, the end of a budget."""
NEXT = {"image": "PHOTO", "audio": "RECORDING", "features": "TABLE", "text": "TEXT --tokenizer FILE"}
"""What may be named with the model next, by the kind of its input."""
EPILOG = """\
examples:
  circle-train finetune photos/ --model mobilenet.tflite -o animals.tflite
  circle-train finetune photos/ --model mobilenet.tflite -o animals.tflite --budget 150MB,60s
  circle-train finetune photos/ --model mobilenet.tflite -o animals.tflite --quantize int8
  circle-train predict animals.tflite photo.jpg
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "A new classifier is put on the model and trained, then all layers with it; the best weights "
        "are written, with the classes' names and the scale of the pixels in the file."
    )
    parser.epilog, parser.formatter_class = EPILOG, argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "folder",
        nargs="?",
        help="a folder for each class with its photographs, recordings or texts; or a .csv or .npz file",
    )
    parser.add_argument("--model", metavar="NET", help="the .tflite, .circle or .onnx file to start from")
    parser.add_argument("-o", "--output", metavar="OUT", help="what to write: .tflite, .circle or .onnx")
    parser.add_argument(
        "--quantize",
        choices=SCHEMES,
        help="ship it in integers, calibrated on these samples and judged on those held out: int8 for phones and "
        "microcontrollers; MediaPipe's clients take float files, or what circle-train quantize --io uint8 makes of them",
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
    _add_course(course)
    _add_steps(course)
    parser.add_argument(
        "--run-dir",
        metavar="DIR",
        help="report.html, metrics.json, plan.txt and checkpoints; DIR-2 where there is one",
    )
    parser.add_argument(
        "--checkpoint-every",
        type=positive,
        metavar="N",
        help="write the run's checkpoint every N steps too (default: after each epoch)",
    )
    parser.add_argument("--resume", metavar="RUN", help="go on with a stopped run, as it began")
    add_json(parser)
    parser.set_defaults(run=run, parser=parser)


def _add_course(course: argparse._ArgumentGroup) -> None:
    """How long, and on what."""
    course.add_argument(
        "--validation",
        metavar="F|DIR",
        help="fraction of each class that validates, or another folder (default: 0.2, of 1,000 samples and more 0.1)",
    )
    course.add_argument(
        "--epochs",
        type=int,
        metavar="N",
        help=f"passes at the most in each phase (default: {HEAD_LENGTH.fewest} to {HEAD_LENGTH.most}, then "
        f"{DEEPER_LENGTH.fewest} to {DEEPER_LENGTH.most}, the more samples the fewer)",
    )
    course.add_argument(
        "--patience",
        type=int,
        metavar="N",
        help=f"epochs without gain that end a phase (default: {PATIENCE})",
    )
    course.add_argument(
        "--augment",
        default="auto",
        metavar="LIST",
        help="vary pictures: flip,crop,colour,mixup; recordings: speed,shift,volume,noise,mixup; or all (but mixup), none "
        "(default: auto, pictures by flip and crop while all layers learn, if those held out bear it)",
    )
    course.add_argument(
        "--variants",
        type=positive,
        metavar="N",
        help=f"forms of each sample that a frozen beginning is shown, with --augment (default: {VARIANTS})",
    )
    course.add_argument(
        "--label-smoothing",
        type=float,
        metavar="F",
        help="share of each label that goes to all classes alike (default: none for the head, 0.1 later)",
    )


def _add_steps(course: argparse._ArgumentGroup) -> None:
    """What is trained, and how."""
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
        "--learning-rate",
        type=float,
        metavar="X",
        help="of the head; later a tenth, falling (default: 0.003, later 0.0001)",
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


def run(options: argparse.Namespace) -> int:
    if options.resume:
        options = resumed(options)
        if is_finished(Path(options.run_dir), options):
            return _say_finished(options)
    if not (options.folder and options.model and options.output):
        options.parser.error("give the samples, --model and -o, or --resume RUN")
    if not options.run_dir:
        refuse_idle(options, ("checkpoint_every",), "--run-dir, the folder for the checkpoints")
    refuse_bad_output(options.output, MODELS, options.model)
    model = load_model(options, options.model)
    if model.provenance is None:
        refuse_bad_output(options.output, MODELS[:2])
    data = samples_of(options)
    _check_classes(options.classes, data)
    if options.run_dir and not options.resume:
        options.run_dir = str(unused(options.run_dir)) if Path(options.run_dir).is_dir() else options.run_dir
        make_folder(options.run_dir, "run folder")
        write_record(Path(options.run_dir), options)
    if not options.json:
        _announce(options, model, data)
    with tempfile.TemporaryDirectory(prefix="circle-train-") as other:
        stages = Stages(options.run_dir or other, options.checkpoint_every, is_kept=bool(options.run_dir))
        try:
            with told(LOG, not options.json):
                course = Finetuning(model, data, _recipe(options), options.threads, stages)
                result = course.run((), 0 if options.json else "auto")
        except KeyboardInterrupt:
            return _stop(options, stages)
        shipped = exported(result, options.output, options.quantize)
    if options.run_dir:
        _fill(Path(options.run_dir), options, result, shipped)
        stages.clear()
    _report(options, result, shipped)
    return 0


def _recipe(options: argparse.Namespace) -> Recipe:
    return Recipe(
        epochs=options.epochs, patience=options.patience, batch_size=options.batch_size, seed=options.seed,
        trainable="auto" if options.trainable == "auto" else trainable_of(options.trainable),
        learning_rate=options.learning_rate, class_weights="balanced" if options.balanced else None,
        label_smoothing=options.label_smoothing, variants=options.variants, budget=options.budget,
    )  # fmt: skip


def _stop(options: argparse.Namespace, stages: Stages) -> int:
    """What was learned by Ctrl-C is kept, and it is said how to go on."""
    place = stages.folder
    if not options.run_dir:
        place = unused(f"{Path(options.output).stem}-run")
        shutil.copytree(stages.folder, place)
        write_record(place, options)
    go_on = shlex.join(["circle-train", "finetune", "--resume", str(place)])
    print(printable(f"stopped; what was learned is in {place}; to go on: {go_on}"), file=sys.stderr)
    return 130


def _say_finished(options: argparse.Namespace) -> int:
    if options.json:
        print_json({"done": True, "output": options.output})
    else:
        print_lines(
            [
                f"{options.run_dir}: the run is done, {options.output} is written; there is nothing to go on with"
            ]
        )
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
    if data.classes and set(model.labels) >= set(data.classes):
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
