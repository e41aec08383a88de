"""`circle-train export`: weights of a checkpoint into an inference model."""

from __future__ import annotations

import argparse
from typing import Any

from circle_train.cli.settings import add_shapes, known_config, load_model, print_lines
from circle_train.session import TrainSession
from circle_train.settings.config import TrainConfig


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("export", help="write an inference model with the weights of a checkpoint")
    parser.add_argument("model", help="the model that was trained")
    add_shapes(parser)
    parser.add_argument("--checkpoint", required=True, metavar="C", help=".ckpt or .safetensors")
    parser.add_argument("out", help="a .circle, .tflite or .onnx file")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    model = load_model(options, options.model)
    config = known_config(model, options.checkpoint) or TrainConfig()
    session = TrainSession(model, config.replace(batch_size=1), backend="reference")
    session.load_checkpoint(options.checkpoint)
    session.export(options.out)
    print_lines([f"{options.out}: {options.model} with the weights of {options.checkpoint}"])
    return 0
