"""`circle-train train`: from a model and data files to a trained model, a checkpoint and a run folder."""

from __future__ import annotations

import argparse
from pathlib import Path

from circle_train.cli.runs.look import add_look
from circle_train.cli.runs.places import MODELS, refuse_bad_output
from circle_train.cli.runs.record import is_finished, resumed
from circle_train.cli.runs.training import Training
from circle_train.cli.settings import (
    add_engine,
    add_json,
    add_shapes,
    add_training,
    config_of,
    load_model,
    positive,
    print_json,
    print_lines,
    refuse_idle,
)
from circle_train.errors import ConfigError
from circle_train.fitting.saving import CHECKPOINTS
from circle_train.model import Model
from circle_train.session import TrainSession
from circle_train.session.fit import describe_choice

EPILOG = """\
examples:
  circle-train train net.tflite --input x.npy --expected y.npy --loss categorical_crossentropy --export trained.tflite
  circle-train train net.circle --input x.bin --expected y.bin --epochs 5 --run-dir run
  circle-train train --resume run
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog, parser.formatter_class = EPILOG, argparse.RawDescriptionHelpFormatter
    parser.add_argument("model", nargs="?", help="a .circle, .tflite or .onnx file")
    add_shapes(parser)
    add_data(parser, required=False)
    parser.add_argument(
        "--epochs", type=int, metavar="N", help="passes over the data (default: the model's, or 5)"
    )
    parser.add_argument(
        "--validation-split", type=float, default=0.0, metavar="F", help="fraction that validates"
    )
    parser.add_argument(
        "--keep",
        choices=["best", "last"],
        help="epoch whose weights are written, where some data validate (default: best)",
    )
    parser.add_argument("--no-shuffle", action="store_true", help="take the samples in file order")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the shuffle (default: 0)")
    add_training(parser)
    add_engine(parser)
    files = parser.add_argument_group("files")
    files.add_argument(
        "--checkpoint", metavar="FILE", help="start from this checkpoint (.ckpt or .safetensors)"
    )
    files.add_argument("--export", metavar="FILE", help="write the trained model: .circle, .tflite or .onnx")
    files.add_argument(
        "--export-circleplus", metavar="FILE", help="the same with the training settings in it"
    )
    files.add_argument("--export-checkpoint", metavar="FILE", help="write weights and optimizer state")
    files.add_argument(
        "--run-dir",
        metavar="DIR",
        help="plan, log, curves, report, checkpoints, exported model; DIR-2 where DIR holds a run",
    )
    files.add_argument(
        "--checkpoint-every",
        type=positive,
        metavar="N",
        help="write the run's checkpoint every N steps too (default: after each epoch)",
    )
    files.add_argument(
        "--resume", metavar="RUN", help="go on with the run in this folder, as it began; --epochs may be more"
    )
    add_look(parser)
    add_json(parser)
    parser.set_defaults(run=run, parser=parser)


def add_data(parser: argparse.ArgumentParser, labels: bool = True, required: bool = True) -> None:
    kinds = ".npy, .npz, .bin (ONERT's raw layout), a folder of class-named image folders"
    parser.add_argument("--input", required=required, metavar="X", help=f"the samples: {kinds}")
    if labels:
        parser.add_argument("--expected", metavar="Y", help="their labels, in the same forms")


def run(options: argparse.Namespace) -> int:
    if options.resume:
        options = resumed(options)
        if is_finished(Path(options.run_dir), options):
            return _say_finished(options)
    if not options.model or not options.input:
        options.parser.error("give MODEL and --input, or --resume RUN")
    refuse_bad_paths(options)
    if not options.run_dir:
        refuse_idle(options, ("checkpoint_every",), "--run-dir, the folder for the checkpoints")
    if not options.validation_split:
        refuse_idle(options, ("keep",), "--validation-split, by which the best epoch is known")
    model = load_model(options, options.model)
    refuse_onnx_of_others(options, model)
    session = TrainSession(
        model, config_of(options, model), seed=options.seed, threads=options.threads, backend=options.backend
    )
    refuse_idleness(session)
    if options.epochs is None:
        options.epochs = session.config.epochs or 5
    return Training(options, session).run()


def refuse_bad_paths(options: argparse.Namespace) -> None:
    """A wrong output path must not cost hours of training, nor the time to load the model."""
    refuse_bad_output(options.export, MODELS, options.model)
    refuse_bad_output(options.export_circleplus, MODELS[:2])
    refuse_bad_output(options.export_checkpoint, CHECKPOINTS)


def refuse_onnx_of_others(options: argparse.Namespace, model: Model) -> None:
    """Only what came from ONNX goes back into it."""
    if model.provenance is None:
        refuse_bad_output(options.export, MODELS[:2])


def refuse_idleness(session: TrainSession) -> None:
    """A command that would train nothing."""
    if not session.plan.parameters:
        raise ConfigError(
            f"nothing would be trained: {describe_choice(session.config.trainable)} holds no parameter; "
            "circle-train check MODEL shows what each choice trains"
        )


def _say_finished(options: argparse.Namespace) -> int:
    said = f"{options.run_dir}: all {options.epochs} epochs are done, there is nothing to go on with"
    if options.json:
        print_json({"done": True, "epochs": options.epochs})
    else:
        print_lines([f"{said}; --epochs {2 * options.epochs} would train further"])
    return 0
