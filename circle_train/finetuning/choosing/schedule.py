"""How many samples, epochs and rounds the time allows for the trials."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log2

from circle_train.finetuning.choosing.facts import Facts
from circle_train.finetuning.choosing.halving import EXPECTED
from circle_train.record import record

STEPS, FEWEST_EPOCHS, MOST_EPOCHS = 250, 4, 25
"""Updates that a course aims at."""
MOST_SAMPLES, FEWEST_SAMPLES = 600, 80
"""That take part in the trials."""
CHOOSING = 0.6
"""Of the seconds, for the trials; the rest is for the training that they are to choose."""
TRAINED = 0.75
"""The share of the samples that a split trains."""


@record
class Schedule:
    """Of all trials."""

    samples: int
    trial_epochs: int
    epochs: int
    """Of the training that is chosen."""
    rates: int
    """How many each candidate is tried at."""

    def __str__(self) -> str:
        rates = "1 rate" if self.rates == 1 else f"{self.rates} rates"
        return f"{rates}, on splits of {self.samples} samples, {self.trial_epochs} epochs each"


def epochs_of(samples: int, batch_size: int) -> int:
    """As many as it takes for some hundred updates."""
    return min(max(ceil(STEPS * batch_size / samples), FEWEST_EPOCHS), MOST_EPOCHS)


def pace_of(measured: float, expected: float) -> float:
    """How much slower this machine is than the one of the constants, in powers of two: noise changes no choice."""
    return 2.0 ** round(log2(max(measured, 1e-9) / max(expected, 1e-9)))


def fitting(facts: Facts, samples: int, epochs: int, pace: float, seconds: float | None) -> str:
    """Why there is no time to train a candidate once it is chosen; nothing: there is."""
    if seconds is None or pace * facts.seconds(samples, epochs) <= (1 - CHOOSING) * seconds:
        return ""
    takes = pace * facts.seconds(samples, epochs)
    return (
        f"training takes about {takes:.0f} s of {seconds:g}, of which choosing takes the first {CHOOSING:.0%}"
    )


def schedule(
    facts: Sequence[Facts], samples: int, epochs: int, pace: float, seconds: float | None
) -> Schedule:
    """The most thorough one for which there is time; the least thorough where there is time for none."""
    most = min(samples, MOST_SAMPLES)
    found = Schedule(most, epochs, epochs, 3)
    for rates, trial_epochs in (
        (3, epochs),
        (2, epochs),
        (2, max(epochs // 2, 2)),
        (1, max(epochs // 2, 2)),
        (1, 2),
    ):
        for count in (most, *(n for n in (most // 2, most // 4) if n >= FEWEST_SAMPLES)):
            found = Schedule(count, min(trial_epochs, epochs), epochs, rates)
            work = sum(one.seconds(int(TRAINED * count), found.trial_epochs) for one in facts) + sum(
                one.first * (count - int(TRAINED * count)) for one in facts
            )
            if seconds is None or pace * EXPECTED * rates * work <= CHOOSING * seconds:
                return found
    return found
