"""Options that several commands share, and how their words become settings."""

from __future__ import annotations

import argparse
import ast
import json
import logging
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from circle_train import losses, optimizers
from circle_train.available import available_bytes
from circle_train.checkpoints import by_suffix as checkpoints
from circle_train.data.stored import read_npy
from circle_train.errors import ConfigError
from circle_train.fitting.metrics.scores import BY_NAME as METRICS
from circle_train.losses import Loss
from circle_train.model import Model, load
from circle_train.optimizers import Optimizer
from circle_train.printable import as_json, lines
from circle_train.report.plan import size
from circle_train.settings.as_json import parse_trainable
from circle_train.settings.config import Activations, TrainConfig, by_name

ACTIVATIONS_HELP = "bfloat16: what waits for the backward pass takes half the memory (default: float32)"
OF_AVAILABLE = 0.8
"""What other processes may want is left to them."""
UNSAID = ("", "auto")
"""What an option of words holds unless somebody gave it; others hold None, False, or nothing in a list."""
LEARNING_RATE_HELP = "step size (default: the model's, or the optimizer's own)"


def positive(word: str) -> int:
    """A count from 1, for argparse."""
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"'{word}' is no whole number from 1")
    return int(word)


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON for machines")


def add_shapes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="NAME=1x128",
        help="fix open sizes of an input, N for those that stay open (may be repeated)",
    )
    parser.add_argument(
        "--fix",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="fix an input that is no sample: a number for all of it, or a .npy file (may be repeated)",
    )


def load_model(options: argparse.Namespace, path: str, **how: Any) -> Model:
    """The model file, in the shapes and with the inputs that were asked for."""
    shapes, inputs = dict(map(_shape_of, options.shape)), dict(map(_value_of, options.fix))
    return load(path, shapes=shapes, inputs=inputs, **(how if path.lower().endswith(".onnx") else {}))


def _shape_of(word: str) -> tuple[str, tuple[int, ...]]:
    """input_ids=Nx128 as a name and sizes, -1 for N."""
    name, _, sizes = word.rpartition("=")
    parts = sizes.lower().split("x")
    if not name or not all(part == "n" or (part.isdecimal() and int(part) > 0) for part in parts):
        raise ConfigError(
            f"--shape is '{word}', expected an input's name and its sizes from 1, N for those that stay open, "
            "as in --shape input_ids=Nx128"
        )
    return name, tuple(-1 if part == "n" else int(part) for part in parts)


def _value_of(word: str) -> tuple[str, Any]:
    """sr=16000 or state=zeros.npy as a name and a value."""
    name, _, text = word.rpartition("=")
    try:
        value = read_npy(Path(text), []) if text.endswith(".npy") else ast.literal_eval(text)
    except (ValueError, SyntaxError, OSError):
        value = None
    if not name or value is None:
        raise ConfigError(
            f"--fix is '{word}', expected an input's name and a number or a .npy file, as in --fix sr=16000"
        )
    return name, value


def add_training(parser: argparse.ArgumentParser) -> None:
    """What to train and how; whatever is not given comes from the model's Circle+ settings."""
    group = parser.add_argument_group("training (default: the model's Circle+ settings)")
    _add_loss(group)
    group.add_argument(
        "--optimizer",
        choices=sorted(optimizers.BY_NAME),
        metavar="NAME",
        help=", ".join(sorted(optimizers.BY_NAME)),
    )
    group.add_argument("--learning-rate", type=float, metavar="X", help=LEARNING_RATE_HELP)
    _add_memory(group)
    group.add_argument("--activations", choices=[kind.value for kind in Activations], help=ACTIVATIONS_HELP)
    group.add_argument(
        "--trainable",
        metavar="WHAT",
        help="all, none, last:N, operators as 3,7,8, or parameters as 'fc.*,head.bias'",
    )
    _add_metric(group)


def add_judging(parser: argparse.ArgumentParser) -> None:
    """By what samples are judged, where nothing is trained."""
    group = parser.add_argument_group("judged (default: by the model's Circle+ settings)")
    _add_loss(group)
    _add_memory(group)
    _add_metric(group)
    add_engine(parser)


def _add_loss(group: Any) -> None:
    group.add_argument(
        "--loss", choices=sorted(losses.BY_NAME), metavar="NAME", help=", ".join(sorted(losses.BY_NAME))
    )
    group.add_argument(
        "--loss-reduction", choices=["mean", "sum"], help="of the samples' losses (default: mean)"
    )


def _add_memory(group: Any) -> None:
    group.add_argument("--batch-size", type=int, metavar="N", help="samples a step (default: 32)")
    group.add_argument(
        "--memory-budget",
        metavar="SIZE",
        help="what may be taken, e.g. 150MB, or auto: what there is left; results are then made again and "
        "batches taken in parts (default: all at once)",
    )


def _add_metric(group: Any) -> None:
    group.add_argument(
        "--metric",
        action="append",
        default=[],
        choices=sorted(METRICS),
        metavar="NAME",
        help=", ".join(sorted(METRICS)),
    )


def add_engine(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("engine")
    group.add_argument("--threads", type=int, metavar="N", help="threads to use (default: one for each core)")
    group.add_argument(
        "--backend",
        choices=["auto", "native", "reference"],
        default="auto",
        help="engine (default: the fastest there is)",
    )


def known_config(model: Model, checkpoint: str | None) -> TrainConfig | None:
    """What the files say: the checkpoint knows best what it was written under."""
    stored = checkpoints.stored_config(checkpoint) if checkpoint else None
    return stored or model.training


def config_of(options: argparse.Namespace, model: Model) -> TrainConfig:
    """The checkpoint's or the model's settings, changed by what the command line says."""
    config = known_config(model, options.checkpoint) or TrainConfig(loss=_default_loss(options))
    changes: dict[str, Any] = {}
    if options.loss or options.loss_reduction:
        loss = by_name(options.loss or config.loss, losses.BY_NAME, Loss, "loss")
        changes["loss"] = _replaced(loss, reduction=options.loss_reduction)
    wish, rate = getattr(options, "optimizer", None), getattr(options, "learning_rate", None)
    if wish or rate is not None:
        optimizer = by_name(wish or config.optimizer, optimizers.BY_NAME, Optimizer, "optimizer")
        changes["optimizer"] = _replaced(optimizer, learning_rate=rate)
    if options.batch_size is not None:
        changes["batch_size"] = options.batch_size
    if options.memory_budget is not None:
        changes["memory_budget"] = _budget_of(options.memory_budget)
    if getattr(options, "activations", None) is not None:
        changes["activations"] = options.activations
    if getattr(options, "trainable", None) is not None:
        changes["trainable"] = trainable_of(options.trainable)
    if options.metric:
        changes["metrics"] = options.metric
    return config.replace(**changes)


def _budget_of(word: str) -> int | str:
    """ "auto" is most of what machine and group have left, said aloud as it is another number every time."""
    if word != "auto":
        return word
    free = available_bytes()
    if free is None:
        raise ConfigError(
            "--memory-budget is auto, but this system does not say what is left; give a size, like 150MB"
        )
    budget = int(OF_AVAILABLE * free)
    print(f"memory budget: {size(budget)}, {OF_AVAILABLE:.0%} of what is left here", file=sys.stderr)
    return budget


def trainable_of(word: str) -> Any:
    """all | none | last:N | 3,7,8 | fc1.weight,head.*"""
    parts = [part.strip() for part in word.split(",")]
    if all(part.isdigit() for part in parts):
        return [int(part) for part in parts]
    if word in ("all", "none") or word.startswith("last:"):
        return parse_trainable(word, "--trainable")
    return parts


def refuse_idle(options: argparse.Namespace, names: Iterable[str], wanted: str) -> None:
    """Raise for the first of these options that was given; `wanted` says what it goes with."""
    for name in names:
        value = getattr(options, name)
        if value is not None and value is not False and value != [] and value not in UNSAID:
            raise ConfigError(f"--{name.replace('_', '-')} goes with {wanted}; leave it out")


class Printed(logging.Handler):
    """What the library logs, as lines of a command."""

    def emit(self, record: logging.LogRecord) -> None:
        print_lines([record.getMessage()])
        sys.stdout.flush()


@contextmanager
def told(log: logging.Logger, wanted: bool) -> Iterator[None]:
    """Print what is logged there meanwhile."""
    level, printer = log.level, Printed()
    if wanted:
        log.addHandler(printer)
        log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(printer)
        log.setLevel(level)


def print_json(value: Any) -> None:
    """With every letter as a number where what is written to may lack some: an escape of its own would be no JSON."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    is_whole = encoding.lower().replace("-", "").startswith("utf")
    print(as_json(value) if is_whole else json.dumps(value, indent=2))


def print_lines(texts: Iterable[str]) -> None:
    """For people: a line for each text."""
    print(lines(texts))


def _default_loss(options: argparse.Namespace) -> str:
    if options.loss is None:
        raise ConfigError(
            "the model carries no training settings: give at least --loss, e.g. --loss categorical_crossentropy"
        )
    return str(options.loss)


def _replaced(setting: Any, **changes: Any) -> Any:
    return replace(setting, **{name: value for name, value in changes.items() if value is not None})
