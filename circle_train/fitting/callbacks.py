"""Callbacks that come with the package: they watch the numbers of each epoch and act on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from circle_train.errors import ConfigError
from circle_train.fitting.callback import Callback, Logs
from circle_train.fitting.history import History
from circle_train.fitting.progress import Progress
from circle_train.fitting.saving import CSVLogger, ModelCheckpoint
from circle_train.fitting.tensorboard import TensorBoard
from circle_train.fitting.watcher import Watcher
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


class LambdaCallback(Callback):
    """Calls functions: LambdaCallback(on_epoch_end=lambda epoch, logs: …), named as methods."""

    def __init__(self, **functions: Callable[..., Any]) -> None:
        known = [name for name in vars(Callback) if name.startswith("on_")]
        for name, function in functions.items():
            if name not in known:
                raise ConfigError(f"LambdaCallback: '{name}' is unknown, expected some of {', '.join(known)}")
            setattr(self, name, function)
