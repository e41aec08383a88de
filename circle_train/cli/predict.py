"""`circle-train predict`: a model's outputs for data files."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np

from circle_train.cli.settings import (
    add_engine,
    add_json,
    add_shapes,
    known_config,
    load_model,
    print_json,
    print_lines,
)
from circle_train.cli.train import add_data
from circle_train.errors import ConfigError
from circle_train.format.atomic import atomic_write
from circle_train.session import TrainSession
from circle_train.settings.config import TrainConfig


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("predict", help="the model's outputs for data files")
    parser.add_argument("model", help="a .circle, .tflite or .onnx file")
    add_shapes(parser)
    add_data(parser, labels=False)
    parser.add_argument("--checkpoint", metavar="FILE", help="take the weights from here")
    parser.add_argument(
        "--output", metavar="FILE", help="write .npy, or .npz for several outputs (default: print)"
    )
    parser.add_argument(
        "--batch-size", type=int, default=32, metavar="N", help="samples at a time (default: 32)"
    )
    add_engine(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    model = load_model(options, options.model)
    config = (known_config(model, options.checkpoint) or TrainConfig()).replace(batch_size=options.batch_size)
    session = TrainSession(model, config, threads=options.threads, backend=options.backend)
    if options.checkpoint:
        session.load_checkpoint(options.checkpoint)
    found = session.predict(options.input)
    outputs = found if isinstance(found, list) else [found]
    named = dict(zip([info.name for info in model.outputs], outputs, strict=True))
    if options.output:
        _write(options.output, named)
    elif options.json:
        print_json({name: array.tolist() for name, array in named.items()})
    else:
        for name, array in named.items():
            print_lines([f"{name} {array.shape}"])
            np.savetxt(sys.stdout, array.reshape(len(array), -1), fmt="%.6g")
    return 0


def _write(path: str, named: dict[str, np.ndarray[Any, Any]]) -> None:
    if path.endswith(".npz"):
        with atomic_write(path) as file:
            np.savez(file, **named)  # type: ignore[arg-type]
    elif path.endswith(".npy") and len(named) == 1:
        with atomic_write(path) as file:
            np.save(file, next(iter(named.values())))
    else:
        raise ConfigError(
            f"--output {path}: expected a name in .npz, or in .npy for a single output ({len(named)} here)"
        )
