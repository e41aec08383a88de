"""What is told about the course of a fit."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from circle_train.ir.tensor_type import Array

Logs = Mapping[str, float]


class Weights(Protocol):
    """Parameters as one vector."""

    def flat(self, trainable_only: bool = True) -> Array: ...

    def set_flat(self, vector: Any, trainable_only: bool = True) -> None: ...


class Trainee(Protocol):
    """What a callback may do with the session that trains (see session.TrainSession)."""

    stop_training: bool
    kept_bytes: int

    @property
    def learning_rate(self) -> float: ...

    @learning_rate.setter
    def learning_rate(self, value: float) -> None: ...

    @property
    def parameters(self) -> Weights: ...

    def save_checkpoint(self, path: str | os.PathLike[str]) -> None: ...

    def export(self, path: str | os.PathLike[str]) -> object: ...


class Callback:
    """Base of what `fit(callbacks=…)` takes; override what is of interest.

    `self.session` is the session, `self.epochs` how many were asked for, `self.steps` the batches of an epoch
    (None where the data do not say). `self.session.stop_training = True` ends the fit after this epoch.
    """

    remembers: ClassVar[tuple[str, ...]] = ()
    """Attributes that a checkpoint holds, so that a resumed fit goes on with them: numbers, texts, lists and dicts of
    such, arrays, None."""
    session: Trainee
    epochs: int = 0
    steps: int | None = None

    def begin(self, session: Trainee, epochs: int, steps: int | None) -> None:
        """Called by fit; overridden by nobody."""
        self.session, self.epochs, self.steps = session, epochs, steps
        self.on_train_begin()

    def restore(self, remembered: Mapping[str, Any]) -> None:
        """Called by a resumed fit after on_train_begin."""
        for name in remembered.keys() & set(self.remembers):
            setattr(self, name, remembered[name])

    @property
    def hears_batches(self) -> bool:
        """Whether on_batch_end does anything."""
        return getattr(self.on_batch_end, "__func__", None) is not Callback.on_batch_end

    def on_train_begin(self) -> None:
        """Before the first epoch."""

    def on_epoch_begin(self, epoch: int) -> None:
        """Before an epoch, counted from 0."""

    def on_batch_end(self, batch: int, logs: Logs) -> None:
        """After a batch, counted from 0; `logs` holds the epoch's mean loss so far."""

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        """After an epoch; `logs` holds loss and metrics, those of the validation data as `val_…`."""

    def on_train_end(self) -> None:
        """After the last epoch."""
