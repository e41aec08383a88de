"""Learning rates that change from step to step; each is a function of the updates made so far."""

from __future__ import annotations

from collections.abc import Callable
from math import cos, isfinite, pi

from circle_train.errors import ConfigError
from circle_train.kinds import refuse_misfits
from circle_train.record import record


@record
class Schedule:
    """Base: `factor(step)` times the base learning rate; `step` counts the updates already made, from 0.

    Example:
        >>> import circle_train as ct
        >>> rate = ct.schedules.LinearWarmup(learning_rate=0.1, warmup_steps=2, total_steps=4)
        >>> [rate(step) for step in range(5)]
        [0.0, 0.05, 0.1, 0.05, 0.0]
    """

    learning_rate: float = 1e-3
    """The highest rate; the schedule gives factors of it."""

    def __post_init__(self) -> None:
        refuse_misfits(self)
        self._require("learning_rate", 0 < self.learning_rate < float("inf"), "a positive number")

    def factor(self, step: int) -> float:
        return 1.0

    def __call__(self, step: int) -> float:
        return self.learning_rate * self.factor(step)

    def _require(self, field: str, holds: bool, expected: str) -> None:
        if not holds:
            raise ConfigError(
                f"{type(self).__name__}: {field} is {getattr(self, field)}, expected {expected}"
            )


@record
class LinearWarmup(Schedule):
    """t / max(1, w) while t < w, then max(0, (T-t) / max(1, T-w)): up in w steps, down to 0 at step T."""

    warmup_steps: int = 0
    """w: steps on the way up."""
    total_steps: int = 1
    """T: the step at which the rate is 0."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("warmup_steps", self.warmup_steps >= 0, "a count from 0")
        self._require("total_steps", self.total_steps >= 1, "a count from 1")

    def factor(self, step: int) -> float:
        if step < self.warmup_steps:
            return step / max(1, self.warmup_steps)
        return max(0.0, (self.total_steps - step) / max(1, self.total_steps - self.warmup_steps))


@record
class Cosine(Schedule):
    """a + (1-a)·½(1 + cos(π·t/T)) until step T, then a, after a linear rise over `warmup_steps`."""

    total_steps: int = 1
    """T: the step at which the lowest rate is reached."""
    alpha: float = 0.0
    """a: the lowest rate, as a share of the highest."""
    warmup_steps: int = 0
    """Steps of the linear rise."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("total_steps", self.total_steps >= 1, "a count from 1")
        self._require("alpha", 0 <= self.alpha <= 1, "in [0, 1]")
        self._require(
            "warmup_steps", 0 <= self.warmup_steps < self.total_steps, "from 0 and less than total_steps"
        )

    def factor(self, step: int) -> float:
        if step < self.warmup_steps:
            return step / self.warmup_steps
        done = min(1.0, (step - self.warmup_steps) / (self.total_steps - self.warmup_steps))
        return self.alpha + (1 - self.alpha) * 0.5 * (1 + cos(pi * done))


@record
class Step(Schedule):
    """gamma^⌊t / step_size⌋."""

    step_size: int = 1
    """Steps from one fall to the next."""
    gamma: float = 0.1
    """What each fall leaves of the rate."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("step_size", self.step_size >= 1, "a count from 1")
        self._require("gamma", 0 < self.gamma < float("inf"), "a positive number")

    def factor(self, step: int) -> float:
        return float(self.gamma ** (step // self.step_size))


@record
class Exponential(Schedule):
    """decay_rate^(t / decay_steps)."""

    decay_steps: int = 1
    """Steps in which the rate falls by `decay_rate`."""
    decay_rate: float = 0.9
    """What so many steps leave of the rate."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("decay_steps", self.decay_steps >= 1, "a count from 1")
        self._require("decay_rate", 0 < self.decay_rate < float("inf"), "a positive number")

    def factor(self, step: int) -> float:
        return float(self.decay_rate ** (step / self.decay_steps))


@record
class OneCycle(Schedule):
    """Up to `learning_rate` in the first part of `total_steps`, down to almost nothing in the rest.

    Along cosines, as PyTorch has it: from lr/div_factor up, then down to lr/(div_factor·final_div_factor).
    """

    total_steps: int = 1
    """Steps of the whole cycle."""
    pct_start: float = 0.3
    """The share of them on the way up."""
    div_factor: float = 25.0
    """How many times less than the highest the first rate is."""
    final_div_factor: float = 1e4
    """How many times less than the first the last rate is."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("total_steps", self.total_steps >= 1, "a count from 1")
        self._require("pct_start", 0 < self.pct_start < 1, "between 0 and 1")
        self._require("div_factor", self.div_factor >= 1, "at least 1")
        self._require("final_div_factor", self.final_div_factor >= 1, "at least 1")

    def factor(self, step: int) -> float:
        peak, end = self.pct_start * self.total_steps - 1, self.total_steps - 1
        low = 1 / self.div_factor
        if step < peak:
            return _along_cosine(low, 1.0, step / peak)
        return _along_cosine(
            1.0, low / self.final_div_factor, min(1.0, (step - peak) / max(end - peak, 1e-9))
        )


@record
class Trapezoid(Schedule):
    """min(1, t / max(1, w), (T-t) / f), not below 0: up in w steps, level, down to 0 in the last f of T."""

    total_steps: int = 1
    """T: the step at which the rate is 0."""
    falling_steps: int = 1
    """f: steps on the way down."""
    warmup_steps: int = 0
    """w: steps on the way up."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("total_steps", self.total_steps >= 1, "a count from 1")
        self._require("falling_steps", 1 <= self.falling_steps <= self.total_steps, "from 1 to total_steps")
        self._require("warmup_steps", self.warmup_steps >= 0, "a count from 0")

    def factor(self, step: int) -> float:
        up = step / self.warmup_steps if step < self.warmup_steps else 1.0
        return max(0.0, min(up, (self.total_steps - step) / self.falling_steps, 1.0))


@record
class Function(Schedule):
    """A user's function of the step that gives the learning rate itself; `learning_rate` scales it."""

    learning_rate: float = 1.0
    """A factor of what the function gives."""
    function: Callable[[int], float] = float
    """From the step's number, from 0, to its rate."""

    def factor(self, step: int) -> float:
        value = float(self.function(step))
        if not (isfinite(value) and value >= 0):
            raise ConfigError(
                f"the learning rate function gave {value} for step {step}, expected a number from 0"
            )
        return value


def _along_cosine(start: float, end: float, done: float) -> float:
    return end + (start - end) * 0.5 * (1 + cos(pi * done))
