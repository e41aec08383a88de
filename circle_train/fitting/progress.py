"""How a fit shows itself: a bar on a terminal, a line for each epoch elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any, TextIO

from circle_train.errors import ConfigError
from circle_train.fitting.callback import Callback, Logs
from circle_train.printable import printable

INTERVAL = 0.1
"""Seconds between two drawings of the bar."""
BAR = "{desc} {bar:24} {n_fmt}/{total_fmt} {pace} {numbers}"
COUNT = "{desc} {n_fmt} batches {pace} {numbers}"


class Progress(Callback):
    """Writes to `stream`; made by fit when `verbose` asks for it."""

    def __init__(self, stream: TextIO | None = None, bar: bool = False) -> None:
        self.stream = sys.stderr if stream is None else stream
        self.bar = bar
        self.started = 0.0
        self.epoch = 0
        self._drawn: Any = None
        """tqdm's bar of this epoch."""

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
        self.epoch, self.started = epoch, time.perf_counter()

    def on_batch_end(self, batch: int, logs: Logs) -> None:
        if not self.bar:
            return
        is_first = self._drawn is None
        self._drawn = self._new_bar(batch) if is_first else self._drawn
        self._drawn.numbers = numbers(logs)
        self._drawn.update(batch + 1 - self._drawn.n)
        if is_first:
            self._drawn.refresh()

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        self.epoch = epoch
        if self._drawn is not None:
            self._drawn.close()
            self._drawn = None
        self.stream.write(f"{self._place()} {time.perf_counter() - self.started:.1f} s {numbers(logs)}\n")
        self.stream.flush()

    def _new_bar(self, done: int) -> Any:
        from tqdm import tqdm

        started = self.started

        class Bar(tqdm):  # type: ignore[misc, type-arg, unused-ignore]
            monitor_interval = 0  # no thread of its own
            numbers = ""

            @property
            def format_dict(self) -> dict[str, Any]:
                known: dict[str, Any] = super().format_dict
                pace = (time.perf_counter() - started) / max(known["n"], 1)
                return known | {"pace": f"{pace * 1e3:.2f} ms/step", "numbers": self.numbers}

        return Bar(
            desc=self._place(), total=self.steps or None, initial=done, file=self.stream, mininterval=INTERVAL,
            leave=False, delay=1e-9, dynamic_ncols=True, bar_format=BAR if self.steps else COUNT,
        )  # fmt: skip

    def _place(self) -> str:
        return f"epoch {self.epoch + 1}/{self.epochs}"


def numbers(logs: Logs) -> str:
    """Loss and metrics of an epoch in a line."""
    return printable(" ".join(f"{name} {value:.4f}" for name, value in logs.items()))
