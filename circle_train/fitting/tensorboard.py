"""Curves in TensorBoard."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from circle_train.errors import ConfigError
from circle_train.fitting.callback import Callback, Logs


@dataclass
class TensorBoard(Callback):
    """Writes loss, metrics and learning rate of each epoch where `tensorboard --logdir` finds them.

    Training and validation are curves of one chart. It takes the [tensorboard] extra.
    """

    path: str | os.PathLike[str] = "logs"
    """The folder of logs."""

    def on_train_begin(self) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise ConfigError(
                "TensorBoard: the package tensorboardX is missing; run: pip install 'circle-train[tensorboard]'"
            ) from None
        folder = os.fspath(self.path)
        self.writers: dict[str, Any] = {
            part: SummaryWriter(os.path.join(folder, part)) for part in ("train", "validation")
        }

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        for name, value in {**logs, "learning_rate": self.session.learning_rate}.items():
            part = "validation" if name.startswith("val_") else "train"
            self.writers[part].add_scalar(name.removeprefix("val_"), float(value), epoch + 1)
        for writer in self.writers.values():
            writer.flush()

    def on_train_end(self) -> None:
        for writer in self.writers.values():
            writer.close()
