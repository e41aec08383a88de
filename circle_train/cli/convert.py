"""`circle-train convert`: between ONNX, TFLite and Circle, compared on random inputs."""

from __future__ import annotations

import argparse
from typing import Any

from circle_train.errors import ConversionError
from circle_train.model import load
from circle_train.conversion import convert_file


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("convert", help=".onnx, .tflite or .circle to .circle or .tflite")
    parser.add_argument("input", help="a .onnx, .tflite or .circle file")
    parser.add_argument("output", help="a .circle or .tflite file")
    parser.add_argument("--engine", choices=["direct", "onnx2tf"], default="direct", help="who converts ONNX")
    parser.add_argument("--io", choices=["onnx", "nhwc"], default="onnx", help="layout of ONNX inputs and outputs")
    parser.add_argument("--fold-batchnorm", action="store_true", help="fold batch normalization into convolutions")
    parser.add_argument(
        "--verify", action=argparse.BooleanOptionalAction, default=True, help="compare both models on random inputs"
    )
    parser.set_defaults(run=run)
