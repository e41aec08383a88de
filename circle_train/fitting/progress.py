"""How a fit shows itself: a bar on a terminal, a line for each epoch elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from circle_train.errors import ConfigError
from circle_train.fitting.callback import Callback, Logs
from circle_train.printable import printable

INTERVAL = 0.1
"""Seconds between two drawings of the bar."""
WIDTH = 24


class Progress(Callback):
    """Writes to `stream`; made by fit when `verbose` asks for it."""

    def __init__(self, stream: TextIO | None = None, bar: bool = False) -> None:
        self.stream = sys.stderr if stream is None else stream
        self.bar = bar
        self.started = self.drawn = 0.0
        self.epoch = 0

    @classmethod
    def wanted(cls, verbose: int | str | bool) -> list[Callback]:
        """ "auto": a bar on a terminal, else lines; 0: nothing; 1: the bar; 2: lines."""
        if verbose == "auto":
            return [cls(bar=sys.stderr.isatty())]
        if verbose not in (0, 1, 2):
            raise ConfigError(f"verbose is {verbose!r}, expected 'auto', 0 (silent), 1 (a bar) or 2 (lines)")
        return [cls(bar=verbose == 1)] if verbose else []

    @property
    def hears_batches(self) -> bool:
        return self.bar

    def on_train_begin(self) -> None:
        self.started = time.perf_counter()
        if self.session.kept_bytes:
            self.stream.write(
                f"keeping {self.session.kept_bytes / 1e6:.1f} MB of what frozen operators give\n"
            )

    def on_epoch_begin(self, epoch: int) -> None:
        self.epoch, self.started, self.drawn = epoch, time.perf_counter(), 0.0

    def on_batch_end(self, batch: int, logs: Logs) -> None:
        now = time.perf_counter()
        if self.bar and now - self.drawn >= INTERVAL:
            self.drawn = now
            self._redraw(f"{self._bar(batch + 1)} {self._pace(batch + 1, now)} {_numbers(logs)}")

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        self.epoch = epoch
        seconds = f"{time.perf_counter() - self.started:.1f} s"
        if self.bar:
            self._redraw(f"{seconds} {_numbers(logs)}")
            self.stream.write("\n")
        else:
            self.stream.write(f"{self._place()} {seconds} {_numbers(logs)}\n")
        self.stream.flush()

    def _redraw(self, text: str) -> None:
        self.stream.write(f"\r{self._place()} {text}\x1b[K")
        self.stream.flush()

    def _place(self) -> str:
        return f"epoch {self.epoch + 1}/{self.epochs}"

    def _bar(self, done: int) -> str:
        if not self.steps:
            return f"{done} batches"
        full = min(WIDTH * done // self.steps, WIDTH)
        return f"{'━' * full}{'─' * (WIDTH - full)} {done}/{self.steps}"

    def _pace(self, done: int, now: float) -> str:
        return f"{(now - self.started) / done * 1e3:.2f} ms/step"


def _numbers(logs: Logs) -> str:
    return printable(" ".join(f"{name} {value:.4f}" for name, value in logs.items()))
