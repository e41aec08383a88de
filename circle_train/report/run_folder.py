"""A folder with everything about one training run."""

from __future__ import annotations

import json
import os
import time
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from circle_train.data.dataset import Dataset, Stream
from circle_train.data.opening import open_any
from circle_train.fitting.callbacks import Callback, CSVLogger, ModelCheckpoint
from circle_train.fitting.history import History
from circle_train.format.atomic import make_folder, sweep, write_text
from circle_train.report.confusion import SAMPLES, confusion
from circle_train.report.curves import draw_png
from circle_train.report.page import Run, page
from circle_train.session import TrainSession


class Clock(Callback):
    """How long the fit took, and how many batches an epoch has."""

    def on_train_begin(self) -> None:
        self.started, self.seconds = time.perf_counter(), 0.0

    def on_epoch_end(self, epoch: int, logs: Any) -> None:
        self.seconds = time.perf_counter() - self.started


WRITTEN = (
    "plan.txt",
    "log.csv",
    "last.safetensors",
    "best.safetensors",
    "metrics.json",
    "curves.png",
    "report.html",
)
"""In a run's folder, besides the model. What a killed run left half of them is removed when the next begins."""


class RunFolder:
    """plan.txt, log.csv, metrics.json, curves.png (with the [plot] extra), report.html, last and best checkpoint, the model."""

    def __init__(
        self, path: str | os.PathLike[str], session: TrainSession, model_path: str, monitor: str = "loss"
    ) -> None:
        self.monitor = monitor
        self.path, self.session, self.model_path = Path(path), session, Path(model_path)
        self.clock = Clock()
        make_folder(self.path, "run folder")
        for name in (*WRITTEN, self.model_name):
            sweep(os.path.realpath(self.path / name))
        write_text(self.path / "plan.txt", f"{session.plan}\n")

    @property
    def callbacks(self) -> list[Callback]:
        """What `fit` needs to keep the folder up to date."""
        return [
            self.clock,
            CSVLogger(path=self.path / "log.csv"),
            ModelCheckpoint(path=self.path / "last.safetensors"),
            ModelCheckpoint(path=self.path / "best.safetensors", monitor=self.monitor, save_best_only=True),
        ]

    def finish(
        self, history: History, data: Any = None, validation_split: float = 0.0, validation_data: Any = None
    ) -> None:
        """The model, then what is told of it, the report last: it stands for a folder that is whole.

        Data are pairs (x, y), of what fit takes.
        """
        self.session.export(self.path / self.model_name)
        last = {name: values[-1] for name, values in history.history.items() if values}
        write_text(self.path / "metrics.json", json.dumps(last, indent=2) + "\n")
        draw_png(history.history, self.path / "curves.png")
        run = self._run(history, *self._parts(data, validation_split, validation_data))
        write_text(self.path / "report.html", page(run))

    @property
    def model_name(self) -> str:
        """Of the file that the trained model becomes."""
        suffix = self.model_path.suffix
        return f"model{suffix if suffix in ('.circle', '.tflite', '.onnx') else '.circle'}"

    def _parts(self, data: Any, split: float, validation_data: Any) -> tuple[Dataset | None, Dataset | None]:
        """Training and validation data as fit saw them; None where there are none, or only a stream."""
        train, other = self._opened(data), self._opened(validation_data)
        if isinstance(train, Dataset) and other is None:
            train, other = train.split(split)
        return train if isinstance(train, Dataset) else None, other if isinstance(other, Dataset) else None

    def _opened(self, pair: Any) -> Dataset | Stream | None:
        if pair is None:
            return None
        x, y = pair
        program = self.session.program
        return open_any(x, y, program.inputs, program.targets, self.session.model.description)

    def _run(self, history: History, train: Dataset | None, validation: Dataset | None) -> Run:
        examined = validation or train
        counts = None if examined is None else confusion(self.session, examined)
        what = "validation" if validation else "training"
        number = 0 if examined is None else min(len(examined), SAMPLES)
        epochs = len(history.epoch)
        return Run(
            title=self.model_path.name,
            summary=f"{epochs} epoch{'s' * (epochs != 1)} in {self.clock.seconds:.1f} s, {time.strftime('%d %B %Y, %H:%M')}",
            curves=history.history,
            plan=self.session.plan,
            settings=settings_of(self.session, epochs),
            data=self._data(train, validation),
            confusion=counts,
            examined=f"{number:,} {what} samples, with the weights of the last epoch",
        )

    def _data(self, train: Dataset | None, validation: Dataset | None) -> dict[str, str]:
        program = self.session.program
        found = {"training": _extent(train, self.clock.steps), "validation": _extent(validation, None)}
        for kind, tensors in (("input", program.inputs), ("label", program.targets)):
            for tensor in tensors:
                sizes = "×".join(map(str, tensor.shape[1:])) or "one"
                found[kind if len(tensors) == 1 else f"{kind} {tensor.name}"] = (
                    f"{sizes} {tensor.dtype.name.lower()}"
                )
        return found


def settings_of(session: TrainSession, epochs: int) -> dict[str, str]:
    """What was trained, and how, in words."""
    config, program = session.config, session.program
    losses = dict.fromkeys(described(loss) for loss in config.losses_on(program.outputs))
    return {
        "loss": ", ".join(losses),
        "optimizer": described(config.optimizer),
        "learning rate": f"{session.learning_rate:g} at the end",
        "batch size": str(config.batch_size),
        "epochs": str(epochs),
        "trainable": _choice(config.trainable),
        "seed": str(session.seed),
    }


def _extent(data: Dataset | None, steps: int | None) -> str:
    batches = "" if steps is None else f"{steps:,} batches an epoch"
    if data is None:
        return batches or "none"
    return f"{len(data):,} samples" + (f", {batches}" if batches else "")


def described(setting: Any) -> str:
    """An object of settings in words, without what is not set."""
    shown = []
    for one in fields(setting):
        value = getattr(setting, one.name)
        value = value.value if isinstance(value, Enum) else described(value) if is_dataclass(value) else value
        if value not in (None, (), 0) or one.name == "learning_rate":
            shown.append(f"{one.name} {value:g}" if isinstance(value, float) else f"{one.name} {value}")
    return f"{type(setting).__name__}: {', '.join(shown)}" if shown else type(setting).__name__


def _choice(trainable: Any) -> str:
    if callable(trainable):
        return "chosen by a function of names"
    if isinstance(trainable, tuple) and trainable[:1] == ("last",):
        return f"the last {trainable[1]} operators"
    return trainable if isinstance(trainable, str) else ", ".join(map(str, trainable))
