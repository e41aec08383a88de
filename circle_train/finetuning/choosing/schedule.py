"""How many samples, epochs and rounds the time allows for the trials."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, log2

import numpy as np

from circle_train.finetuning.choosing.facts import Facts
from circle_train.finetuning.choosing.halving import QUICK, THOROUGH, Rounds, shares_of
from circle_train.record import record

STEPS, FEWEST_EPOCHS, MOST_EPOCHS = 250, 4, 25
"""Updates that a course aims at."""
MOST_SAMPLES, FEWEST_SAMPLES = 600, 80
"""That take part in the trials."""
FEW_SAMPLES = 200
GROWTH = 4
"""How many times the samples of the first round the last one has, where they grow: most arms are as cheap as that to drop."""
NEAR = 0.2
"""How far above a power of two, as a power, a pace still counts as that one."""
CHOOSING = 0.6
"""Of the seconds, for the trials; the rest is for the training that they are to choose."""
TRAINED = 0.75
"""The share of the samples that a split trains."""


@record
class Schedule:
    """Of all trials."""

    samples: int
    """Of the last round."""
    trial_epochs: int
    epochs: int
    """Of the training that is chosen."""
    rates: int
    """How many each candidate is tried at."""
    rounds: Rounds
    grows: bool = False
    """Whether each round has more samples than the one before."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """The samples of each split."""
        counts = [count for count, _ in shares_of(self.rounds)]
        powers = np.linspace(-1 if self.grows else 0, 0, len(counts))
        return tuple(
            int(self.samples * GROWTH**power)
            for count, power in zip(counts, powers, strict=True)
            for _ in range(count)
        )

    def __str__(self) -> str:
        rates = "1 rate" if self.rates == 1 else f"{self.rates} rates"
        sizes = " to ".join(map(str, dict.fromkeys((self.sizes[0], self.samples))))
        return f"{rates}, on {len(self.sizes)} splits of {sizes} samples, {self.trial_epochs} epochs each"


def epochs_of(samples: int, batch_size: int) -> int:
    """As many as it takes for some hundred updates."""
    return min(max(ceil(STEPS * batch_size / samples), FEWEST_EPOCHS), MOST_EPOCHS)


def pace_of(measured: float, expected: float) -> float:
    """How much slower this machine is than the one of the constants, in powers of two: noise changes no choice.

    Mostly the next one above: a time that is promised is kept.
    """
    return 2.0 ** ceil(log2(max(measured, 1e-9) / max(expected, 1e-9)) - NEAR)


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
    worked = begun = 0.0
    sizes = list(schedule.sizes)
    for count, share in shares_of(schedule.rounds):
        passes = TRAINED * schedule.trial_epochs + (1 - TRAINED)
        worked += schedule.rates * share * passes * sum(sizes[:count])
        begun += min(1.0, schedule.rates * share) * sizes[0]
        del sizes[:count]
    return sum(worked * one.later + begun * max(one.first - one.later, 0.0) for one in facts)


def _schedules(samples: int, epochs: int) -> Iterator[Schedule]:
    """From the most thorough on; few samples are split more often, as each split says little."""
    most, half = min(samples, MOST_SAMPLES), min(max(epochs // 2, 2), epochs)
    if samples <= FEW_SAMPLES:
        yield Schedule(most, epochs, epochs, 3, THOROUGH)
    for rates, trial_epochs in ((3, epochs), (2, epochs), (2, half), (1, half), (1, min(epochs, 2))):
        for count, grows in (
            (most, False),
            (most, True),
            (most // 2, True),
            (most // 2, False),
            (most // 4, False),
        ):
            if (count == most and not grows) or count >= FEWEST_SAMPLES * (GROWTH if grows else 1):
                yield Schedule(count, trial_epochs, epochs, rates, QUICK, grows)
