"""`circle-train artifacts`: a training package for a device."""

from __future__ import annotations

import argparse

from circle_train.cli.settings import (
    add_json,
    add_shapes,
    add_training,
    config_of,
    load_model,
    print_json,
    print_lines,
    refuse_idle,
)
from circle_train.session import TrainSession
from circle_train.session.packages import make_artifacts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Write a folder that TrainSession opens where onnx is not installed."
    parser.add_argument("model", metavar="MODEL", help=".onnx, .circle or .tflite")
    add_shapes(parser)
    parser.add_argument("--out", required=True, metavar="DIR", help="the package's folder")
    parser.add_argument(
        "--requires-grad",
        nargs="+",
        metavar="NAME",
        help="parameters to train, by name or pattern ('head.*')",
    )
    parser.add_argument(
        "--frozen", nargs="+", metavar="NAME", help="parameters that stay, by name or pattern"
    )
    parser.add_argument("--batch-norm", choices=["frozen", "train"], help="which statistics training uses")
    parser.add_argument(
        "--extra-output", action="append", metavar="NAME", help="a tensor that every step reports"
    )
    parser.add_argument("--nominal", action="store_true", help="leave the weights out")
    parser.add_argument("--checkpoint", metavar="FILE", help="a checkpoint to go on from")
    add_training(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    model = load_model(options, options.model)
    config = config_of(options, model)
    if options.batch_norm:
        config = config.replace(batch_norm=options.batch_norm)
    if options.extra_output:
        config = config.replace(extra_outputs=options.extra_output)
    if options.requires_grad:
        refuse_idle(options, ("trainable",), "a choice without --requires-grad, which says the same")
        config = config.replace(trainable=options.requires_grad)
    if options.frozen:
        config = config.replace(frozen=options.frozen)
    folder = make_artifacts(
        model, options.out, config, nominal=options.nominal, checkpoint=options.checkpoint
    )
    parameters = TrainSession(folder).parameters
    trained = list(parameters.trainable())
    nbytes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    if options.json:
        print_json(
            {"package": str(folder), "trained": trained, "parameters": len(parameters), "bytes": nbytes}
        )
    else:
        sizes = (f"  {name}  {size} bytes" for name, size in nbytes.items())
        print_lines([f"{folder}: {len(trained)} of {len(parameters)} parameters are trained", *sizes])
    return 0
