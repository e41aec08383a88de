"""`circle-train info`: what a model file holds."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from typing import Any

from circle_train.cli.check import BATCH, LOSS, OPTIMIZER
from circle_train.cli.settings import add_json, add_shapes, load_model, print_json, print_lines
from circle_train.info import TensorInfo
from circle_train.model import Model
from circle_train.report.plan import size, table
from circle_train.session.foresight import whole
from circle_train.settings.as_json import to_dict
from circle_train.settings.config import TrainConfig

STEP = ("trainable", "parameters", "arena_bytes", "waiting_bytes", "gradient_bytes")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="a .circle, .tflite or .onnx file")
    add_shapes(parser)
    parser.add_argument("--operators", action="store_true", help="list every operator, not only their counts")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    facts = describe(load_model(options, options.model), options.model)
    if options.json:
        print_json(facts)
    else:
        print_lines(lines(facts, options.operators))
    return 0


def describe(model: Model, path: str) -> dict[str, Any]:
    """Everything worth knowing, as plain data."""
    module = model.module
    constants = {t.buffer: t for graph in module.graphs for t in graph.all_tensors() if t.is_constant}
    training = model.training
    return {
        "file": path,
        "bytes": os.path.getsize(path),
        "format": module.identifier,
        "description": module.description,
        "subgraphs": len(module.graphs),
        "inputs": [_tensor(info) for info in model.inputs],
        "outputs": [_tensor(info) for info in model.outputs],
        "parameters": sum(
            t.type.size for t in constants.values() if t.dtype.is_float or t.quantization is not None
        ),
        "operators": [
            {"index": op.index, "name": op.name, "inputs": op.inputs, "outputs": op.outputs}
            for op in model.operators
        ],
        "metadata": [entry.name for entry in module.metadata],
        "training": to_dict(training) if training is not None else None,
        "step": _step(model),
    }


def _step(model: Model) -> dict[str, Any] | None:
    """What training takes: by the file's own settings, or all of it by those that check counts with."""
    config = model.training or TrainConfig(loss=LOSS, optimizer=OPTIMIZER, batch_size=BATCH)
    step = whole(model, config)
    if step is None:
        return None
    known = {"batch_size": config.batch_size, "optimizer": type(config.rule).__name__}
    return known | {name: getattr(step, name) for name in STEP}


def lines(facts: dict[str, Any], all_operators: bool) -> list[str]:
    """The facts for people."""
    shown = [
        f"{facts['file']}: {facts['format']}, {size(facts['bytes'])}, {facts['parameters']:,} parameters, "
        f"{len(facts['operators'])} operators"
        + (f" in {facts['subgraphs']} subgraphs" if facts["subgraphs"] > 1 else ""),
        *(f"  input   {t['name']}  {t['dtype']} {t['shape']}" for t in facts["inputs"]),
        *(f"  output  {t['name']}  {t['dtype']} {t['shape']}" for t in facts["outputs"]),
        "",
    ]
    if all_operators:
        rows = [("op", "operator", "inputs", "outputs")]
        rows += [
            (
                str(op["index"]),
                op["name"],
                ", ".join(name or "-" for name in op["inputs"]),
                ", ".join(op["outputs"]),
            )
            for op in facts["operators"]
        ]
        shown += table(rows)
    else:
        counts = Counter(op["name"] for op in facts["operators"]).most_common()
        shown.append("operators: " + ", ".join(f"{name} {number}" for name, number in counts))
    if facts["metadata"]:
        shown.append(f"metadata: {', '.join(facts['metadata'])}")
    if step := facts["step"]:
        gradients = step["gradient_bytes"]
        shown.append(
            f"a training step ({step['trainable']}, batch {step['batch_size']}, {step['optimizer']}): {step['parameters']:,} "
            f"parameters, {size(step['waiting_bytes'])} kept for the backward part, "
            + (f"gradients {size(gradients)}" if gradients else "gradients move their weights at once")
        )
    if facts["training"]:
        shown.append(
            "training settings: " + ", ".join(f"{key} {value}" for key, value in facts["training"].items())
        )
    return shown


def _tensor(info: TensorInfo) -> dict[str, Any]:
    return {"name": info.name, "shape": list(info.shape), "dtype": str(info.dtype)}
