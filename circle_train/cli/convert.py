"""`circle-train convert`: between ONNX, TFLite and Circle, compared on random inputs."""

from __future__ import annotations

import argparse

from circle_train import convert
from circle_train.cli.runs.places import MODELS, refuse_bad_output
from circle_train.cli.settings import add_shapes, load_model, print_lines, refuse_idle
from circle_train.errors import CircleTrainError, ConversionError
from circle_train.model import Model
from circle_train.session import peers

TOLERANCE = 1e-3
"""Of an output's range; beyond it the conversion counts as failed."""
TOLERANCE_WHERE_ROUNDED = 5e-2
"""The same for models that round what they compute (dynamic quantization): there the last bit may tip a whole step."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = ".onnx, .tflite or .circle to .circle or .tflite"
    parser.add_argument("input", help="a .onnx, .tflite or .circle file")
    parser.add_argument("output", help="a .circle or .tflite file")
    add_shapes(parser)
    parser.add_argument("--engine", choices=["direct", "onnx2tf"], help="who converts ONNX (default: direct)")
    parser.add_argument(
        "--io", choices=["nchw", "nhwc"], help="layout of ONNX inputs and outputs (default: nchw)"
    )
    parser.add_argument(
        "--fold-batchnorm", action="store_true", help="fold batch normalization into convolutions"
    )
    parser.add_argument(
        "--float-head",
        type=int,
        metavar="N",
        help="of an integer model: the last N operators in float, so that they can be trained",
    )
    parser.add_argument(
        "--verify",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="compare both models on random inputs",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    refuse_bad_output(options.output, MODELS[:2])
    is_onnx = options.input.lower().endswith(".onnx")
    if not is_onnx:
        refuse_idle(options, ("engine", "io", "fold_batchnorm"), "an .onnx file to convert")
    if is_onnx and options.engine == "onnx2tf":
        refuse_idle(options, ("shape", "fix", "io", "fold_batchnorm"), "--engine direct")
        model = Model(convert.load_with_onnx2tf(options.input))
    else:
        model = load_model(
            options, options.input, io=options.io or "nchw", fold_batchnorm=options.fold_batchnorm
        )
    differences = _compare(options.input, model) if options.verify and is_onnx else {}
    if options.float_head is not None:
        model = model.with_float_head(options.float_head)
    model.save(options.output)
    peer = (
        [f"  {_peer(options.output)}"]
        if options.verify and options.output.lower().endswith(".tflite")
        else []
    )
    compared = (
        f"  {name}: largest difference on random inputs {difference:.1e} of its range"
        for name, difference in differences.items()
    )
    print_lines([f"{options.output}: {len(model.operators)} operators", *compared, *peer])
    return 0


def _peer(path: str) -> str:
    """What LiteRT, if it is installed, makes of the file."""
    try:
        return str(peers.compare(path) or "LiteRT is not installed: whether it runs the file was not tried")
    except CircleTrainError as error:
        return str(error)


def _compare(path: str, model: Model) -> dict[str, float]:
    differences: dict[str, float] = convert.verify(path, model.module, inputs=model.options.get("inputs"))
    worst = max(differences.values(), default=0.0)
    rounds = any(operator.name in ("ROUND", "QUANTIZE") for operator in model.operators)
    if not worst <= (TOLERANCE_WHERE_ROUNDED if rounds else TOLERANCE):
        raise ConversionError(
            f"{path}: an output differs by {worst:.1e} of its range from the original's; nothing was written"
        )
    return differences
