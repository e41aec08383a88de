"""The second phase: which layers learn with the head, how long and how slowly, so that they do not forget what they know."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, cos, pi
from typing import ClassVar

from circle_train.fitting.callback import Callback, Logs
from circle_train.fitting.callbacks import EarlyStopping
from circle_train.model import Model
from circle_train.record import record
from circle_train.session.foresight import trained_at

RATE, SLOWER = 1e-4, 10
"""Unless a rate was given for the head; then a tenth of that. A tenth of the usual makes layers of trained networks forget."""
SMOOTHING = 0.1
"""The share of each label that goes to all classes alike: few samples are learned by heart, whose labels are no longer news."""
RISE = 1 / 12
"""The share of the steps in which the rate rises."""

NEAR = 1.1
"""Of the least loss of those held out; so much chance makes of a few hundred."""


def lower(head: float | None) -> float:
    """The rate of this phase, if one was given for the head or not."""
    return RATE if head is None else head / SLOWER


def all_layers(model: Model) -> tuple[str, int] | None:
    """Every layer, counted in operators as `trainable` is; None where there is none before the head.

    The first ones too: samples that look otherwise than those of before (small, blurred, in another light) are met there.
    """
    layers = sorted(trained_at(model))
    return ("last", len(model.operators) - layers[0]) if len(layers) > 1 else None


@record
class Length:
    """How long a phase takes: about so many steps, be the samples few or many."""

    steps: int
    fewest: int
    most: int

    def epochs(self, samples: int, batch_size: int) -> int:
        """How often they are shown."""
        return min(max(ceil(self.steps * batch_size / samples), self.fewest), self.most)


DEEPER_LENGTH = Length(steps=600, fewest=3, most=20)


@dataclass
class Settled(EarlyStopping):
    """Early stopping for a rate that falls: the last stay of those weights between which chance would decide."""

    def improves(self, value: float) -> bool:
        if self.best is None or not value <= self.best * NEAR:
            return super().improves(value)
        self.best = min(self.best, value)
        return True


class Falling(Callback):
    """A rise from nothing, in which the optimizer learns how long gradients are; then along a cosine to nothing again.

    A function of the step alone, so that a resumed fit has the same; after the fit the session has the whole rate again.
    """

    remembers: ClassVar[tuple[str, ...]] = ("epoch", "batch")

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def on_train_begin(self) -> None:
        self.epoch, self.batch = 0, 0

    def on_epoch_begin(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch, self.batch = epoch, 0
        self._set()

    def on_batch_end(self, batch: int, logs: Logs) -> None:
        self.batch = batch + 1
        if self.batch != self.steps:  # the next epoch sets its own
            self._set()

    def _set(self) -> None:
        """The rate of the next step."""
        done, steps = self.epoch * (self.steps or 1) + self.batch, self.epochs * (self.steps or 1)
        rise = min((done + 1) / max(RISE * steps, 1), 1)
        self.session.learning_rate = self.rate * rise * 0.5 * (1 + cos(pi * done / steps))

    def on_train_end(self) -> None:
        self.session.learning_rate = self.rate
