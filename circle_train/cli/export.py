"""`circle-train export`: weights of a checkpoint into an inference model."""

from __future__ import annotations

import argparse

from circle_train.cli.runs.places import MODELS, refuse_bad_output
from circle_train.cli.settings import add_shapes, known_config, load_model, print_lines
from circle_train.errors import ConversionError
from circle_train.session import TrainSession, peers
from circle_train.settings.config import TrainConfig

TOLERANCE = 5e-2
"""Of an output's range: more than integers lose by rounding otherwise."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="the model that was trained")
    add_shapes(parser)
    parser.add_argument("--checkpoint", required=True, metavar="C", help=".ckpt or .safetensors")
    parser.add_argument("out", help="a .circle, .tflite or .onnx file")
    parser.add_argument(
        "--verify",
        action="store_true",
        help="run the file in LiteRT or onnxruntime, if installed, and print the difference",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    refuse_bad_output(options.out, MODELS, options.model)
    model = load_model(options, options.model)
    config = known_config(model, options.checkpoint) or TrainConfig()
    session = TrainSession(model, config.replace(batch_size=1), backend="reference")
    session.load_checkpoint(options.checkpoint)
    session.export(options.out)
    verified = [f"  {verify(options.out)}"] if options.verify else []
    print_lines([f"{options.out}: {options.model} with the weights of {options.checkpoint}", *verified])
    return 0


def verify(path: str) -> str:
    """What the runtime that is installed for the file says of it; a difference that is none of rounding is an error."""
    agreement = peers.compare(path)
    if agreement is None:
        return "no other runtime for this file is installed (pip install ai-edge-litert, or onnxruntime)"
    worst = max(agreement.differences.values(), default=0.0)
    if not worst <= TOLERANCE:
        raise ConversionError(f"{path}: {agreement}; the file was written, report this with the model")
    return str(agreement)
