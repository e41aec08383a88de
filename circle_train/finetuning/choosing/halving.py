"""Successive halving: all are tried on one split, the better ones on more, the best on all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from circle_train.finetuning.choosing.candidates import Candidate
from circle_train.finetuning.choosing.facts import Facts
from circle_train.finetuning.choosing.trial import Score, Trial
from circle_train.ir.tensor_type import Array

Rounds = tuple[tuple[int, float], ...]
"""How many splits everybody left has been tried on, and which share of them goes on."""
QUICK: Rounds = ((1, 1 / 3), (2, 1 / 3), (4, 0.0))
THOROUGH: Rounds = ((2, 1 / 2), (4, 1 / 2), (8, 0.0))
TIE = 0.5
"""Standard errors of the mean difference within which the smaller set is as good."""
DOUBT = 2.0
"""The same within which nothing speaks against what is usual."""
PROOF = 5.0
"""The same by which a set must be better than nothing at all, to have shown anything."""


@dataclass(eq=False)
class Arm:
    """A candidate at one rate."""

    candidate: Candidate
    rate: float
    facts: Facts
    trials: list[Trial] = field(default_factory=list)

    @property
    def skills(self) -> Array:
        return np.array([trial.score.skill for trial in self.trials])

    @property
    def skill(self) -> float:
        return float(self.skills.mean())

    def gain(self, before: Sequence[Score]) -> float:
        """Of right answers, over those before, on the splits that it was tried on."""
        return float(np.mean([t.score.right - b.right for t, b in zip(self.trials, before, strict=False)]))

    def seconds(self, samples: int, epochs: int) -> float:
        """That so many samples will take in a new session, by what its trials took."""
        later = float(np.median([trial.later for trial in self.trials]))
        known = [trial.first for trial in self.trials if trial.made is None]
        first = float(np.median(known)) if known else min(trial.first for trial in self.trials)
        made = [t.made + t.samples * (t.first - first) for t in self.trials if t.made is not None]
        making = float(np.median(made)) if made else self.facts.making
        return making + samples * (first + (epochs - 1) * later)


def compete(
    arms: Sequence[Arm], attempt: Callable[[Arm, int], Trial], rounds: Rounds, usual: Arm | None = None
) -> list[Arm]:
    """Those that were tried on all splits, the best first; `usual` is one of them in any case."""
    left = list(arms)
    for count, share in rounds:
        for arm in (
            arm for arm in arms if arm in left
        ):  # those of one candidate together: they share a session
            while len(arm.trials) < count:
                arm.trials.append(attempt(arm, len(arm.trials)))
        left.sort(key=lambda arm: (-arm.skill, arm.facts.parameters))
        if share:
            stay = max(round(len(left) * share), min(len(left), 3))
            left = left[:stay] + [arm for arm in left[stay:] if arm is usual]
    return left


def shares_of(rounds: Rounds) -> Iterator[tuple[int, float]]:
    """Of each round: how many splits are new in it, and which share of all arms is tried on them."""
    before, share = 0, 1.0
    for count, kept in rounds:
        yield count - before, share
        before, share = count, share * kept


def chosen_of(
    best: Sequence[Arm], usual: Arm | None = None, before: Sequence[Score] = ()
) -> tuple[Arm, list[Arm]]:
    """What is trained, and what else is as good, as far as these splits can tell.

    That is what has the fewest parameters of those that are as good as the first. Where no set is clearly better than
    nothing (`before`), it is the candidate that is usual unless the splits speak against it, at the rate in the middle
    of those that they do not speak against.
    """
    as_usual = []
    if usual is not None and not _is_shown(best[0], before):
        arms = [arm for arm in best if arm.candidate is usual.candidate]
        as_usual = [arm for arm in arms if _distance(best[0], arm) <= DOUBT]
    equals = [arm for arm in best if _distance(best[0], arm) <= TIE]
    if as_usual:
        chosen = sorted(as_usual, key=lambda arm: arm.rate)[len(as_usual) // 2]
    else:
        chosen = min(equals, key=lambda arm: (arm.facts.parameters, -arm.skill))
    doubtful = [arm for arm in best if arm.candidate is not chosen.candidate and _distance(best[0], arm) <= 2]
    return chosen, doubtful


def _is_shown(arm: Arm, before: Sequence[Score]) -> bool:
    """Whether training it is better than nothing beyond doubt."""
    nothing = np.array([score.skill for score in before[: len(arm.trials)]])
    return len(nothing) > 0 and _errors(arm.skills - nothing) > PROOF


def _distance(one: Arm, other: Arm) -> float:
    """How much better one is, in standard errors of the mean difference."""
    return 0.0 if one is other else _errors(one.skills - other.skills)


def _errors(differences: Array) -> float:
    """Their mean, in its standard errors."""
    if not differences.any():
        return 0.0
    if len(differences) < 2:
        return float("inf")
    return float(differences.mean() / max(differences.std(ddof=1) / np.sqrt(len(differences)), 1e-12))
