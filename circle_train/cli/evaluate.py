"""`circle-train eval`: loss and metrics of a model on data files."""

from __future__ import annotations

import argparse
from typing import Any

from circle_train.cli.look import add_look
from circle_train.cli.settings import (
    add_json,
    add_shapes,
    add_training,
    config_of,
    load_model,
    print_json,
    print_lines,
)
from circle_train.cli.train import add_data, opened_input
from circle_train.session import TrainSession


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("eval", help="loss and metrics on data files; nothing is trained")
    parser.add_argument("model", help="a .circle, .tflite or .onnx file")
    add_shapes(parser)
    add_data(parser)
    parser.add_argument("--checkpoint", metavar="FILE", help="take the weights from here")
    add_training(parser)
    add_look(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    model = load_model(options, options.model)
    session = TrainSession(model, config_of(options, model), threads=options.threads, backend=options.backend)
    if options.checkpoint:
        session.load_checkpoint(options.checkpoint)
    found = session.evaluate(opened_input(options, session), options.expected)
    if options.json:
        print_json(found)
    else:
        print_lines([" - ".join(f"{name}: {value:.4f}" for name, value in found.items())])
    return 0
