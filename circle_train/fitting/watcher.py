"""The base of callbacks that watch one number."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isnan
from typing import ClassVar

from circle_train.errors import ConfigError
from circle_train.fitting.callback import Callback, Logs


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
