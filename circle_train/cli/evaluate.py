"""`circle-train eval`: loss and metrics of a model on data files; class by class on folders of samples."""

from __future__ import annotations

import argparse
from typing import Any

from circle_train.cli.runs.look import add_look, opened_input
from circle_train.cli.settings import (
    add_json,
    add_judging,
    add_shapes,
    config_of,
    load_model,
    print_json,
    print_lines,
)
from circle_train.cli.train import add_data
from circle_train.data.opening import Folder
from circle_train.errors import ConfigError
from circle_train.finetuning.result import Judgement, examined
from circle_train.fitting.progress import numbers
from circle_train.session import TrainSession

LOSSES = {
    "softmax": "categorical_crossentropy",
    "sigmoid": "binary_crossentropy",
    "values": "mean_squared_error",
}
"""Of a model whose file says what its outputs are."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Prints what train prints: loss and metrics, and for a folder by class precision and recall of each."
    )
    parser.add_argument("model", help="a .circle, .tflite or .onnx file")
    parser.add_argument(
        "folder",
        nargs="?",
        metavar="SAMPLES",
        help="a folder for each class, or a table, for a model that finetune wrote",
    )
    add_shapes(parser)
    add_data(parser, required=False)
    parser.add_argument(
        "--tokenizer", metavar="FILE", help="of texts: the model's tokenizer.json or vocab.txt"
    )
    parser.add_argument("--checkpoint", metavar="FILE", help="take the weights from here")
    add_judging(parser)
    add_look(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if bool(options.folder) == bool(options.input):
        raise ConfigError(
            "give a folder of samples by class (circle-train eval net.tflite photos/), or arrays with --input"
        )
    options.input = options.input or options.folder
    model = load_model(options, options.model)
    known = model.description
    if known is not None and not options.loss and (known.labels or known.details.get("targets")):
        options.loss = LOSSES.get(known.scores)
    session = TrainSession(model, config_of(options, model), threads=options.threads, backend=options.backend)
    if options.checkpoint:
        session.load_checkpoint(options.checkpoint)
    data = opened_input(options, session)
    found = session.evaluate(data, options.expected)
    judgement = examined(session, data) if isinstance(data, Folder) else None
    if options.json:
        print_json(found | (facts(judgement) if judgement else {}))
    else:
        print_lines(
            [numbers(found), *(judgement.lines(f"{len(judgement.truth)} samples") if judgement else ())]
        )
    return 0


def facts(judgement: Judgement) -> dict[str, Any]:
    """For machines."""
    if not judgement.classes:
        return judgement.metrics
    precision, recall = judgement.by_class
    rows = zip(judgement.classes, precision.tolist(), recall.tolist(), strict=True)
    return judgement.metrics | {"classes": {name: {"precision": p, "recall": r} for name, p, r in rows}}
