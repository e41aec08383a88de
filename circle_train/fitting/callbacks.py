"""Callbacks that come with the package: they watch the numbers of each epoch and act on them."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from math import inf, isnan
from pathlib import Path
from string import Formatter
from typing import Any, ClassVar

from circle_train.errors import ConfigError
from circle_train.fitting.callback import Callback, Logs
from circle_train.fitting.history import History
from circle_train.fitting.progress import Progress
from circle_train.fitting.tensorboard import TensorBoard
from circle_train.format.atomic import atomic_write
from circle_train.ir.tensor_type import Array

__all__ = [
    "CSVLogger",
    "Callback",
    "EarlyStopping",
    "History",
    "LambdaCallback",
    "ModelCheckpoint",
    "Progress",
    "ReduceLROnPlateau",
    "TensorBoard",
]

CHECKPOINTS = (".ckpt", ".safetensors")
MODELS = (".circle", ".tflite", ".onnx")


@dataclass
class Watcher(Callback):
    """Base of what watches one number; "auto": an accuracy should rise, anything else fall."""

    remembers: ClassVar[tuple[str, ...]] = ("best",)

    monitor: str = "val_loss"
    """Which number of an epoch."""
    mode: str = "auto"
    """ "min", "max" or "auto"."""
    min_delta: float = 0.0
    """What a change must exceed to be a gain."""

    def __post_init__(self) -> None:
        self._require("mode", self.mode in ("auto", "min", "max"), "'auto', 'min' or 'max'")
        self._require("min_delta", self.min_delta >= 0, "not negative")
        self.best: float | None = None

    def on_train_begin(self) -> None:
        self.best = None

    def value(self, logs: Logs) -> float:
        """The number watched."""
        if self.monitor not in logs:
            known = ", ".join(logs)
            hint = "; give fit validation data" if self.monitor.startswith("val_") else ""
            found = f"monitor '{self.monitor}' was not measured"
            raise ConfigError(f"{type(self).__name__}: {found}, expected one of {known}{hint}")
        return float(logs[self.monitor])

    def improves(self, value: float) -> bool:
        """Whether this is the best so far, by more than min_delta; remembers it if so."""
        rises = self.mode == "max" or (self.mode == "auto" and "acc" in self.monitor)
        gain = inf if self.best is None else value - self.best if rises else self.best - value
        if isnan(value) or gain <= self.min_delta:
            return False
        self.best = value
        return True

    def _require(self, name: str, holds: bool, expected: str) -> None:
        if not holds:
            raise ConfigError(
                f"{type(self).__name__}: {name} is {getattr(self, name)!r}, expected {expected}"
            )


@dataclass
class EarlyStopping(Watcher):
    """Ends the fit after `patience` epochs in a row without improvement.

    With `restore_best` the weights are at the end those of the best epoch, even if the fit did not end early.
    """

    remembers = ("best", "waited", "best_epoch", "stopped_epoch", "weights")

    patience: int = 0
    """Epochs without a gain that end the fit."""
    restore_best: bool = False
    """Whether the best epoch's weights stay."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("patience", self.patience >= 0, "a count from 0")
        self.stopped_epoch: int | None = None

    def on_train_begin(self) -> None:
        super().on_train_begin()
        self.waited, self.best_epoch, self.stopped_epoch = 0, 0, None
        self.weights: Array | None = None

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        if self.improves(self.value(logs)):
            self.waited, self.best_epoch = 0, epoch
            self.weights = self.session.parameters.flat(trainable_only=True) if self.restore_best else None
            return
        self.waited += 1
        if self.waited >= max(self.patience, 1):
            self.stopped_epoch = epoch
            self.session.stop_training = True

    def on_train_end(self) -> None:
        if self.weights is not None and self.waited:
            self.session.parameters.set_flat(self.weights, trainable_only=True)
        self.weights = None


@dataclass
class ReduceLROnPlateau(Watcher):
    """Multiplies the learning rate by `factor` after `patience` epochs in a row without improvement."""

    remembers = ("best", "waited", "resting")

    factor: float = 0.1
    """What each fall leaves of the rate."""
    patience: int = 10
    """Epochs without a gain before a fall."""
    cooldown: int = 0
    """Epochs after a fall that are not counted."""
    min_lr: float = 0.0
    """The lowest rate."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("factor", 0 < self.factor < 1, "between 0 and 1")
        self._require("patience", self.patience >= 0, "a count from 0")
        self._require("cooldown", self.cooldown >= 0, "a count from 0")
        self._require("min_lr", self.min_lr >= 0, "not negative")

    def on_train_begin(self) -> None:
        super().on_train_begin()
        self.waited, self.resting = 0, 0

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        improved = self.improves(self.value(logs))
        if self.resting:
            self.resting -= 1
            self.waited = 0
            return
        self.waited = 0 if improved else self.waited + 1
        if self.waited < max(self.patience, 1):
            return
        rate = self.session.learning_rate
        self.session.learning_rate = min(rate, max(rate * self.factor, self.min_lr))
        self.waited, self.resting = 0, self.cooldown


@dataclass
class ModelCheckpoint(Watcher):
    """Saves after each epoch, or with `save_best_only` after the best so far.

    `path` may hold {epoch} (from 1) and the names of measured numbers: "run-{epoch:03d}-{val_loss:.3f}.ckpt".
    The suffix decides what is saved: .safetensors or .ckpt a checkpoint, .circle, .tflite or .onnx a model.
    With `every` it saves after so many batches too, so that a long epoch is not lost.
    With `keep_last` only so many of the files that this object wrote remain; what a checkpoint says of them counts only
    for files that this path could name.
    """

    remembers = ("best", "written")

    monitor: str = field(default="val_loss", kw_only=True)
    """Which number of an epoch decides what is best."""
    mode: str = field(default="auto", kw_only=True)
    """ "min", "max" or "auto"."""
    min_delta: float = field(default=0.0, kw_only=True)
    """What a change must exceed to be a gain."""
    path: str | os.PathLike[str] = "checkpoint.safetensors"
    """Where to, with places for epoch and numbers."""
    save_best_only: bool = False
    """Whether only what is better than before is saved."""
    keep_last: int | None = None
    """How many of the files remain; None: all."""
    every: int | None = None
    """Batches after which it saves too; None: after epochs alone."""

    def __post_init__(self) -> None:
        super().__post_init__()
        suffix = Path(self.path).suffix.lower()
        self._require(
            "path", suffix in CHECKPOINTS + MODELS, f"a name ending in {', '.join(CHECKPOINTS + MODELS)}"
        )
        self._require("keep_last", self.keep_last is None or self.keep_last >= 1, "a count from 1 or None")
        self._require("every", self.every is None or self.every >= 1, "a count of batches from 1 or None")
        self._require("every", self.every is None or not self.save_best_only, "None with save_best_only")

    @property
    def hears_batches(self) -> bool:
        return self.every is not None

    def on_train_begin(self) -> None:
        super().on_train_begin()
        self.written: list[str] = []
        self.epoch = 0

    def on_epoch_begin(self, epoch: int) -> None:
        self.epoch = epoch

    def on_batch_end(self, batch: int, logs: Logs) -> None:
        if self.every is not None and (batch + 1) % self.every == 0:
            self._save(self.epoch, logs)

    def restore(self, remembered: Mapping[str, Any]) -> None:
        super().restore(remembered)
        said = remembered.get("written", ())
        self.written = [name for name in said if self._could_name(name)] if isinstance(said, list) else []
        self._remove_old()

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        if self.save_best_only and not self.improves(self.value(logs)):
            return
        self._save(epoch, logs)

    def _save(self, epoch: int, logs: Logs) -> None:
        path = self._path_of(epoch, logs)
        save = self.session.save_checkpoint if path.suffix.lower() in CHECKPOINTS else self.session.export
        name = path.relative_to(self._folder).as_posix()
        self.written = [*(other for other in self.written if other != name), name]
        save(path)
        self._remove_old()

    def _remove_old(self) -> None:
        while self.keep_last is not None and len(self.written) > self.keep_last:
            (self._folder / self.written.pop(0)).unlink(missing_ok=True)

    @property
    def _folder(self) -> Path:
        """The part of the path that is the same for every file."""
        fixed = takewhile(lambda part: not set("{}") & set(part), Path(self.path).parent.parts)
        return Path(*fixed)

    def _could_name(self, name: Any) -> bool:
        """Whether it is a file's name below the folder that the path gives for some epoch."""
        try:
            parts = list(Formatter().parse(Path(self.path).relative_to(self._folder).as_posix()))
        except ValueError:  # the next save will say so
            return False
        pattern = "".join(
            re.escape(text) + (r"[^/\\]+" if field is not None else "") for text, field, _, _ in parts
        )
        return (
            isinstance(name, str) and ".." not in name.split("/") and re.fullmatch(pattern, name) is not None
        )

    def _path_of(self, epoch: int, logs: Logs) -> Path:
        try:
            return Path(os.fspath(self.path).format(**{**logs, "epoch": epoch + 1}))
        except (KeyError, IndexError, ValueError) as error:
            known = ", ".join(["epoch", *logs])
            place = f"ModelCheckpoint: path '{self.path}'"
            raise ConfigError(
                f"{place} cannot be filled in ({error}), expected names among {known}"
            ) from None


@dataclass
class CSVLogger(Callback):
    """Writes a row of numbers for each epoch; with `append` below what the file holds already."""

    remembers = ("text", "columns")

    path: str | os.PathLike[str] = "log.csv"
    """The file."""
    append: bool = False
    """Whether rows go below what the file holds."""

    def on_train_begin(self) -> None:
        before = Path(self.path)
        self.text = before.read_text(encoding="utf-8") if self.append and before.exists() else ""
        self.columns = self.text.splitlines()[0].split(",") if self.text else []

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        row: dict[str, Any] = {"epoch": epoch + 1, **logs, "learning_rate": self.session.learning_rate}
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if not self.columns:
            self.columns = list(row)
            writer.writerow(self.columns)
        writer.writerow([row.get(column, "") for column in self.columns])
        self.text += text.getvalue()
        with atomic_write(self.path) as file:
            file.write(self.text.encode())


class LambdaCallback(Callback):
    """Calls functions: LambdaCallback(on_epoch_end=lambda epoch, logs: …), named as methods."""

    def __init__(self, **functions: Callable[..., Any]) -> None:
        known = [name for name in vars(Callback) if name.startswith("on_")]
        for name, function in functions.items():
            if name not in known:
                raise ConfigError(f"LambdaCallback: '{name}' is unknown, expected some of {', '.join(known)}")
            setattr(self, name, function)
