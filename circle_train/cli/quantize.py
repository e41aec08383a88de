"""`circle-train quantize`: a model of floats in integers, or in half floats."""

from __future__ import annotations

import argparse

from circle_train.cli.runs.places import refuse_bad_output
from circle_train.cli.settings import add_shapes, known_config, load_model, print_lines, refuse_idle
from circle_train.errors import ConfigError
from circle_train.session import TrainSession
from circle_train.session.shipping.ship import ship
from circle_train.settings.config import TrainConfig
from circle_train.settings.quantization import IO, ON_LOSS, RANGES, SCHEMES, Int8

SUFFIXES = (".tflite", ".circle", ".onnx")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="a .circle, .tflite or .onnx file")
    add_shapes(parser)
    parser.add_argument(
        "out", help="a .tflite or .circle file; of an .onnx file also .onnx, with QuantizeLinear"
    )
    parser.add_argument(
        "--calibration",
        metavar="X",
        help="samples as the model takes them, without labels: .npy, .npz or .bin; or a folder of photographs, where the model "
        "says how it takes them; a hundred or so",
    )
    parser.add_argument(
        "--scheme",
        choices=SCHEMES,
        default="int8",
        help="int8: everything in 8 bits (default); int16x8: activations in 16; dynamic: weights alone; float16: half floats",
    )
    parser.add_argument(
        "--io", choices=IO, help="what the model takes and gives (default: int8 where the scheme is)"
    )
    parser.add_argument(
        "--ranges",
        choices=RANGES,
        help="what of an activation its scale covers: the smallest squared error (default), all but the outermost, all",
    )
    parser.add_argument("--samples", type=int, metavar="N", help="how many calibrate at most (default: 256)")
    group = parser.add_argument_group("what it costs")
    group.add_argument(
        "--validation",
        nargs="+",
        metavar="X Y",
        help="samples and labels, or a folder of photographs by class, on which both models are measured",
    )
    group.add_argument(
        "--loss", metavar="NAME", help="of the labels (default: the file's, or categorical_crossentropy)"
    )
    group.add_argument("--metric", metavar="NAME", help="measured (default: accuracy)")
    group.add_argument("--tolerance", type=float, metavar="T", help="how much of the metric may be lost")
    group.add_argument("--on-loss", choices=ON_LOSS, help="when more is: write nothing (default), or warn")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    refuse_bad_output(options.out, SUFFIXES, options.model)
    is_onnx = options.out.lower().endswith(".onnx")
    if is_onnx:
        refuse_idle(options, ("io",), "a .tflite or .circle file; an .onnx file takes and gives floats")
    validation = options.validation and tuple(options.validation)
    if validation and len(validation) > 2:
        raise ConfigError(
            f"--validation is {' '.join(validation)}, expected samples and labels, or one folder"
        )
    if not validation:
        refuse_idle(
            options,
            ("loss", "metric", "tolerance", "on_loss"),
            "--validation, on which both models are measured",
        )
    given = {name: getattr(options, name) for name in ("ranges", "samples", "on_loss")}
    settings = Int8(
        calibration=options.calibration, io=options.io, scheme=options.scheme, tolerance=options.tolerance,
        validation=validation[0] if validation and len(validation) == 1 else validation,
        **{name: value for name, value in given.items() if value is not None},
    )  # fmt: skip
    if not settings.needs_samples:
        refuse_idle(
            options, ("calibration", "ranges", "samples"), "the schemes int8 and int16x8, which calibrate"
        )
    if settings.tolerance is None:
        refuse_idle(options, ("on_loss",), "--tolerance, which says how much may be lost")
    model = load_model(options, options.model)
    if settings.validation is None and not is_onnx:
        said = str(ship(model, options.out, settings))
    else:
        config = known_config(model, None) or TrainConfig(loss=options.loss or "categorical_crossentropy")
        session = TrainSession(model, config.replace(batch_size=1, metrics=[options.metric or "accuracy"]))
        said = str(session.export(options.out, quantize=settings))
    print_lines(said.splitlines())
    return 0
