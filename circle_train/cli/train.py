"""`circle-train train`: from a model and data files to a trained model, a checkpoint and a run folder."""

from __future__ import annotations

import argparse
import os
from typing import Any

from circle_train.cli.look import MODELS, add_look, asked_look, look_of, refuse_bad_output
from circle_train.cli.runs.run_folder import RunFolder
from circle_train.cli.settings import (
    add_json,
    add_shapes,
    add_training,
    config_of,
    load_model,
    print_json,
    print_lines,
)
from circle_train.data.opening import open_folder
from circle_train.errors import ConfigError
from circle_train.fitting.callbacks import CHECKPOINTS, EarlyStopping
from circle_train.model import Model
from circle_train.session import TrainSession

NEVER = 1 << 30
"""Epochs without gain after which a fit ends that is only to remember its best weights."""
EPILOG = """\
examples:
  circle-train train net.tflite --input x.npy --expected y.npy --loss categorical_crossentropy --export trained.tflite
  circle-train train net.circle --input x.bin --expected y.bin --epochs 5 --checkpoint run.safetensors --run-dir run
"""


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "train",
        help="train a model on data files",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", help="a .circle, .tflite or .onnx file")
    add_shapes(parser)
    add_data(parser)
    parser.add_argument(
        "--epochs", type=int, metavar="N", help="passes over the data (default: the model's, or 5)"
    )
    parser.add_argument(
        "--validation-split", type=float, default=0.0, metavar="F", help="fraction that validates"
    )
    parser.add_argument(
        "--keep",
        choices=["best", "last"],
        default="best",
        help="epoch whose weights are written, where some data validate",
    )
    parser.add_argument("--no-shuffle", action="store_true", help="take the samples in file order")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the shuffle (default: 0)")
    add_training(parser)
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
        "--run-dir", metavar="DIR", help="plan, log, curves, report, checkpoints, exported model"
    )
    add_look(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def add_data(parser: argparse.ArgumentParser, labels: bool = True, required: bool = True) -> None:
    kinds = ".npy, .npz, .bin (ONERT's raw layout), a folder of class-named image folders"
    parser.add_argument("--input", required=required, metavar="X", help=f"the samples: {kinds}")
    if labels:
        parser.add_argument("--expected", metavar="Y", help="their labels, in the same forms")


def run(options: argparse.Namespace) -> int:
    model = load_model(options, options.model)
    session = TrainSession(
        model, config_of(options, model), seed=options.seed, threads=options.threads, backend=options.backend
    )
    _refuse_bad_paths(options, model)
    x = opened_input(options, session)
    watched = "val_loss" if options.validation_split else "loss"
    folder = RunFolder(options.run_dir, session, options.model, watched) if options.run_dir else None
    if options.checkpoint:
        session.load_checkpoint(options.checkpoint)
    best = (
        [EarlyStopping("val_loss", patience=NEVER, restore_best=True)]
        if options.validation_split and options.keep == "best"
        else []
    )
    history = session.fit(
        x,
        options.expected,
        epochs=options.epochs or session.config.epochs or 5,
        validation_split=options.validation_split,
        shuffle=not options.no_shuffle,
        callbacks=[*(folder.callbacks if folder else ()), *best],
        verbose=0 if options.json else "auto",
    )
    if options.export:
        session.export(options.export)
    if options.export_circleplus:
        session.export_circleplus(options.export_circleplus)
    if options.export_checkpoint:
        session.save_checkpoint(options.export_checkpoint)
    if folder:
        folder.finish(history, (x, options.expected), options.validation_split)
    if best and not options.json:
        number = best[0].best_epoch + 1
        print_lines(
            [
                f"best epoch: {number} of {len(history.epoch)}, its weights are those written (--keep last for the last)"
            ]
        )
    if options.json:
        print_json({"history": history.history})
    return 0


def opened_input(options: argparse.Namespace, session: TrainSession) -> Any:
    """The samples; of a folder of pictures it is said what becomes of them."""
    if options.expected or not os.path.isdir(options.input):
        if given := look_of(options):
            raise ConfigError(
                f"--{next(iter(given))} is for folders of pictures; arrays are taken as they are"
            )
        return options.input
    program = session.program
    folder = open_folder(
        options.input, program.inputs, program.targets, session.model.description, asked_look(options)
    )
    if not options.json:
        print_lines([f"{options.input}: {len(folder)} pictures, {folder.how}"])
    return folder


def _refuse_bad_paths(options: argparse.Namespace, model: Model) -> None:
    """A wrong output path must not cost hours of training."""
    for path, suffixes in (
        (options.export, MODELS if model.provenance is not None else MODELS[:2]),
        (options.export_circleplus, MODELS[:2]),
        (options.export_checkpoint, CHECKPOINTS),
    ):
        if path:
            refuse_bad_output(path, suffixes)
