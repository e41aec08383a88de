"""What a fit recorded."""

from __future__ import annotations

import csv
import io
import os
from math import isfinite

from circle_train.errors import ConfigError
from circle_train.fitting.callback import Callback, Logs
from circle_train.format.atomic import write_text
from circle_train.printable import as_table, printable

BARS = "▁▂▃▄▅▆▇█"


class History(Callback):
    """Loss and metrics by epoch, as Keras has it: `history["val_loss"][3]` is that of epoch `epoch[3]`."""

    remembers = ("history", "epoch")

    def __init__(self) -> None:
        self.history: dict[str, list[float]] = {}
        self.epoch: list[int] = []

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        self.epoch.append(epoch)
        for name, value in logs.items():
            self.history.setdefault(name, []).append(float(value))

    def on_train_end(self) -> None:
        """Let go of the session: a history outlives it."""
        self.__dict__.pop("session", None)

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """One row an epoch."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["epoch", *self.history])
        writer.writerows(zip((epoch + 1 for epoch in self.epoch), *self.history.values(), strict=True))
        write_text(path, text.getvalue())

    def curve(self, name: str = "loss", width: int = 60) -> str:
        """The course of one number in a line of blocks, lowest to highest; epochs are thinned out to fit."""
        if name not in self.history:
            raise ConfigError(
                f"'{name}' was not recorded, expected one of {', '.join(self.history) or 'nothing yet'}"
            )
        values = self.history[name]
        shown = [values[i * len(values) // width] for i in range(width)] if len(values) > width else values
        finite = [value for value in shown if isfinite(value)]
        low, high = min(finite, default=0.0), max(finite, default=0.0)
        scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
        return "".join(BARS[round((v - low) * scale)] if isfinite(v) else "?" for v in shown)

    def _repr_html_(self) -> str:
        return as_table(repr(self))

    def __repr__(self) -> str:
        last = ", ".join(f"{name} {values[-1]:.4g}" for name, values in self.history.items() if values)
        return printable(f"<History of {len(self.epoch)} epochs: {last or 'nothing yet'}>")
