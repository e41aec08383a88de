"""ONERT's onert_train: train a model on raw data files, with ONERT's flags and output lines."""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import circle_train as ct
from circle_train.cli.runs.ending import ended
from circle_train.losses import Loss, Reduction
from circle_train.optimizers import Optimizer

LOSSES = {1: ct.losses.MeanSquaredError, 2: ct.losses.CategoricalCrossentropy}
REDUCTIONS = {1: Reduction.MEAN, 2: Reduction.SUM}
OPTIMIZERS = {1: ct.optimizers.SGD, 2: ct.optimizers.Adam}
NAMES = {
    ct.losses.MeanSquaredError: "mean squared error",
    ct.losses.CategoricalCrossentropy: "categorical crossentropy",
    ct.losses.SparseCategoricalCrossentropy: "sparse categorical crossentropy",
}
METRICS = {0: "categorical_accuracy"}
RULER = "=" * 35


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 done, 1 a user's error, 2 wrong usage."""
    return ended(lambda: train(make_parser().parse_args(arguments)))


def train(options: argparse.Namespace) -> None:
    """Load, prepare, train, export, report."""
    clock = Clock(options.mem_poll)
    is_package = os.path.isdir(options.path)
    print(f"{'Package' if is_package else 'Model'} Filename {options.path}")
    model = ct.load(model_of_package(options.path) if is_package else options.path)
    clock.lap("MODEL_LOAD")
    config = settings(options, model)
    print("\n".join(parameter_lines(config, len(model.operators))))
    threads = os.environ.get("NUM_THREADS", "")
    session = ct.TrainSession(model, config, threads=int(threads) if threads.isdigit() else None)
    session.prepare()
    if options.checkpoint:
        session.load_checkpoint(options.checkpoint)
    clock.lap("PREPARE")
    if not (options.input and options.expected):
        raise ct.DataError(
            "--load_input:raw and --load_expected:raw are both needed; give a raw data file for each"
        )
    lines = EpochLines(options.export_checkpoint)
    session.fit(
        options.input, options.expected, epochs=options.epoch, shuffle=False, callbacks=[lines], verbose=0,
        validation_split=options.validation_split,
    )  # fmt: skip
    clock.lap("EXECUTE")
    if options.export_circle:
        session.export(options.export_circle)
    if options.export_circleplus:
        session.export_circleplus(options.export_circleplus)
    print("\n".join(clock.lines(lines.seconds)))


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="onert_train", description="train a model on raw data files")
    add = parser.add_argument
    add("path", help="a .circle or .tflite file, or an nnpackage directory")
    add("--version", action="version", version=f"onert_train (circle_train: v{ct.__version__})")
    add("--checkpoint", metavar="FILE", help="checkpoint to start from (.ckpt or .safetensors)")
    add("--export_circle", metavar="PATH", help="write the trained model")
    add("--export_circleplus", metavar="PATH", help="write the trained model with its training settings")
    add("--export_checkpoint", metavar="PATH", help="write a checkpoint after every step")
    add("--load_input:raw", dest="input", metavar="FILE", help="all samples of input 0, then of input 1, …")
    add("--load_expected:raw", dest="expected", metavar="FILE", help="expected values, laid out alike")
    add(
        "--validation_split",
        type=float,
        default=0.0,
        metavar="X",
        help="share of the data, at its end, to validate on",
    )
    add("--epoch", type=int, default=5, metavar="N", help="epoch number (default: 5)")
    add("--metric", type=int, default=-1, choices=[-1, 0], help="0: categorical accuracy (default: none)")
    add("--mem_poll", "-m", action="store_true", help="report resident memory")
    add(
        "--verbose_level",
        "-v",
        type=int,
        default=0,
        metavar="N",
        help="accepted, without effect, as in ONERT",
    )
    add("--output_sizes", metavar="JSON", help="accepted, without effect, as in ONERT")
    add_settings(parser.add_argument_group("settings (default: the model's)"))
    return parser


def add_settings(group: argparse._ArgumentGroup) -> None:
    """What a Circle+ file may say itself."""
    add = group.add_argument
    add("--batch_size", type=int, metavar="N", help="batch size")
    add("--learning_rate", type=float, metavar="X", help="learning rate")
    add("--loss", type=int, choices=sorted(LOSSES), help="1: mean squared error, 2: categorical crossentropy")
    add("--loss_reduction_type", type=int, choices=sorted(REDUCTIONS), help="1: sum over batch size, 2: sum")
    add("--optimizer", type=int, choices=sorted(OPTIMIZERS), help="1: sgd, 2: adam")
    trained = "operators to train from the end of the list; -1: all, 0: none"
    add("--num_of_trainable_ops", type=int, metavar="N", help=trained)


def settings(options: argparse.Namespace, model: ct.Model) -> ct.TrainConfig:
    """The model's settings, changed by the flags; a model without any needs all of them."""
    config = model.training
    needed = ("loss", "optimizer", "learning_rate", "batch_size")
    missing = [f"--{name}" for name in needed if getattr(options, name) is None]
    if config is None and missing:
        raise ct.ConfigError(f"{options.path} carries no training settings; give {', '.join(missing)}")
    config = config or ct.TrainConfig()
    loss, optimizer = config.loss, config.optimizer
    assert isinstance(loss, Loss) and isinstance(optimizer, Optimizer)
    if options.loss is not None:
        loss = LOSSES[options.loss](reduction=loss.reduction)
    if options.loss_reduction_type is not None:
        loss = replace(loss, reduction=REDUCTIONS[options.loss_reduction_type])
    if options.optimizer is not None and type(optimizer) is not OPTIMIZERS[options.optimizer]:
        optimizer = OPTIMIZERS[options.optimizer](optimizer.learning_rate)
    if options.learning_rate is not None:
        optimizer = replace(optimizer, learning_rate=options.learning_rate)
    metrics = [METRICS[options.metric]] if options.metric in METRICS else []
    changes: dict[str, Any] = {"loss": loss, "optimizer": optimizer, "metrics": metrics}
    if options.batch_size is not None:
        changes["batch_size"] = options.batch_size
    if options.num_of_trainable_ops is not None:
        if not -1 <= options.num_of_trainable_ops <= len(model.operators):
            raise ct.ConfigError(
                f"--num_of_trainable_ops is {options.num_of_trainable_ops}, the model has "
                f"{len(model.operators)} operators; give at most that, 0 for none or -1 for all"
            )
        changes["trainable"] = options.num_of_trainable_ops
    return config.replace(**changes)


def parameter_lines(config: ct.TrainConfig, operators: int) -> list[str]:
    """The block that ONERT prints before it trains."""
    loss, optimizer = config.loss, config.optimizer
    assert isinstance(loss, Loss) and isinstance(optimizer, Optimizer)
    name = NAMES.get(type(loss), type(loss).__name__)
    reduction = "sum" if loss.reduction is Reduction.SUM else "sum over batch size"
    counts = {"all": -1, "none": 0}
    trainable = config.trainable
    count = (
        trainable[1]
        if isinstance(trainable, tuple) and trainable[0] == "last"
        else counts.get(str(trainable), trainable)
    )
    return [
        "== training parameter ==",
        f"- learning_rate        = {optimizer.base_learning_rate:g}",
        f"- batch_size           = {config.batch_size}",
        f"- loss_info            = {{loss = {name}, reduction = {reduction}}}",
        f"- optimizer            = {type(optimizer).__name__.lower()}",
        f"- num_of_trainable_ops = {count}",
        "========================",
    ]


def model_of_package(folder: str) -> Path:
    """The first model of an nnpackage."""
    manifest = Path(folder) / "metadata" / "MANIFEST"
    try:
        return Path(folder) / str(json.loads(manifest.read_text(encoding="utf-8"))["models"][0])
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise ct.ModelError(
            f"{manifest} names no model ({error}); give the path of a .circle or .tflite file"
        ) from None


class EpochLines(ct.callbacks.Callback):
    """ONERT's line an epoch, and its checkpoint after every step."""

    def __init__(self, checkpoint: str | None) -> None:
        self.checkpoint = checkpoint
        self.seconds: list[float] = []
        self.done = 0

    def on_epoch_begin(self, epoch: int) -> None:
        self.started, self.spent, self.done = perf_counter(), 0.0, 0

    def on_batch_end(self, batch: int, logs: Any) -> None:
        self.spent = perf_counter() - self.started
        self.done += 1
        if self.checkpoint:
            self.session.save_checkpoint(self.checkpoint)

    def on_epoch_end(self, epoch: int, logs: Any) -> None:
        self.seconds.append(self.spent)
        words = [
            f"Epoch {epoch + 1}/{self.epochs} - time: {1000 * self.spent / max(self.done, 1):.3f}ms/step"
        ]
        words += [f"{name}: [0] {value:.4f}" for name, value in logs.items()]
        print(" - ".join(words), flush=True)


class Clock:
    """Times of the phases and, if asked for, resident memory after each."""

    def __init__(self, with_memory: bool) -> None:
        self.with_memory = with_memory
        self.last = perf_counter()
        self.phases: list[tuple[str, float]] = []
        self.memory: list[tuple[str, dict[str, int]]] = []

    def lap(self, phase: str) -> None:
        self.phases.append((phase, perf_counter() - self.last))
        if self.with_memory:
            self.memory.append((phase, resident()))
        self.last = perf_counter()

    def lines(self, epochs: list[float]) -> list[str]:
        found = [RULER, *(f"{phase:<12} takes {1000 * seconds:.4f} ms" for phase, seconds in self.phases)]
        found += [
            f"- Epoch {epoch:<6} takes {1000 * seconds:.4f} ms" for epoch, seconds in enumerate(epochs, 1)
        ]
        found.append(RULER)
        for kind in ("RSS", "HWM", "PSS") if self.memory else ():
            found += [
                kind,
                *(f"- {phase:<12} takes {sizes.get(kind, 0)} kb" for phase, sizes in self.memory),
                RULER,
            ]
        return found


def resident() -> dict[str, int]:
    """Resident, peak and proportional memory in kB, where the system tells."""
    found = {}
    for file, names in (("status", {"VmRSS": "RSS", "VmHWM": "HWM"}), ("smaps_rollup", {"Pss": "PSS"})):
        path = Path("/proc/self") / file
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            name, _, rest = line.partition(":")
            if name in names:
                found[names[name]] = int(rest.split()[0])
    return found
