"""How many samples, epochs and rounds the time allows for the trials."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, log2

from circle_train.finetuning.choosing.facts import Facts
from circle_train.finetuning.choosing.halving import QUICK, THOROUGH, Rounds, beginnings_of, trials_of
from circle_train.record import record

STEPS, FEWEST_EPOCHS, MOST_EPOCHS = 250, 4, 25
"""Updates that a course aims at."""
MOST_SAMPLES, FEWEST_SAMPLES = 600, 80
"""That take part in the trials."""
FEW_SAMPLES = 200
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
    rounds: Rounds

    def __str__(self) -> str:
        rates = "1 rate" if self.rates == 1 else f"{self.rates} rates"
        return f"{rates}, on {self.rounds[-1][0]} splits of {self.samples} samples, {self.trial_epochs} epochs each"


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
    for found in _schedules(samples, epochs):
        if seconds is None or pace * _takes(found, facts) <= CHOOSING * seconds:
            break
    return found


def _takes(schedule: Schedule, facts: Sequence[Facts]) -> float:
    """Seconds for the trials, on the machine of the constants; what is frozen at the beginning is computed once a round."""
    held_out = (1 - TRAINED) * schedule.samples
    updates = schedule.rates * trials_of(schedule.rounds)
    beginnings = beginnings_of(schedule.rounds, schedule.rates)
    return sum(
        updates * (TRAINED * schedule.samples * schedule.trial_epochs + held_out) * one.later
        + beginnings * schedule.samples * max(one.first - one.later, 0.0)
        for one in facts
    )


def _schedules(samples: int, epochs: int) -> Iterator[Schedule]:
    """From the most thorough on; few samples are split more often, as each split says little."""
    most, half = min(samples, MOST_SAMPLES), min(max(epochs // 2, 2), epochs)
    if samples <= FEW_SAMPLES:
        yield Schedule(most, epochs, epochs, 3, THOROUGH)
    for rates, trial_epochs in ((3, epochs), (2, epochs), (2, half), (1, half), (1, min(epochs, 2))):
        for count in (most, most // 2, most // 4):
            if count == most or count >= FEWEST_SAMPLES:
                yield Schedule(count, trial_epochs, epochs, rates, QUICK)
