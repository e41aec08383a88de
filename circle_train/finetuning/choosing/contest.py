"""The trials of one choice."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

import numpy as np

from circle_train.compile.divided import compile_batch
from circle_train.compile.program import Mode
from circle_train.errors import ConfigError
from circle_train.finetuning.choosing.budget import Budget
from circle_train.finetuning.choosing.candidates import EVERYTHING, Candidate, candidates, narrowed
from circle_train.finetuning.choosing.choice import Row
from circle_train.finetuning.choosing.facts import Facts, facts_of
from circle_train.finetuning.choosing.fisher import information
from circle_train.finetuning.choosing.halving import Arm, compete
from circle_train.finetuning.choosing.knapsack import propose
from circle_train.finetuning.choosing.layers import Layer, layers_of
from circle_train.finetuning.choosing.schedule import Schedule, epochs_of, fitting, pace_of, schedule
from circle_train.finetuning.choosing.splits import Split, splits
from circle_train.finetuning.choosing.task import HEAD, Task
from circle_train.finetuning.choosing.trial import Bench, Score, Trial, attempt, judge
from circle_train.ir.tensor_type import Array
from circle_train.settings.parameters import part_of

LOG = logging.getLogger(__name__)
HEAD_RATE, HEAD_EPOCHS = 3e-3, 20
PACED = 0.5
"""Seconds that an epoch of the first trial may take, by which the machine's pace is told."""


@dataclass(eq=False)
class Contest:
    """Candidates for one task within a budget; `start` are the weights of a new head, trained on all samples."""

    task: Task
    budget: Budget
    start: dict[str, Array] = field(default_factory=dict)
    starts: dict[int, dict[str, Array]] = field(default_factory=dict)
    """The same of each split."""
    pace: float = 1.0

    def __post_init__(self) -> None:
        self.bench = Bench(self.task)

    def run(self) -> list[Arm]:
        """The finalists, the best first."""
        task = self.task
        if task.has_new_head and not self.start:
            places = np.arange(len(task.data))
            self.start = self._head_of(Split(places, places[:1]))
        LOG.info("%d candidates at %s", len(self.facts), self.schedule)
        if not self.arms:
            why = next(iter(self._refused())).refused
            raise ConfigError(f"choose: nothing can be trained within the budget: {why}")
        for number in range(len(self.splits)):
            self._start(number)
        return compete(self.arms, self._attempt, self.schedule.rounds, self.usual)

    @cached_property
    def layers(self) -> list[Layer]:
        config = self.task.config.replace(trainable="all", memory_budget=None)
        return layers_of(compile_batch(self.task.model.module.main, config, Mode.TRAIN, config.batch_size))

    @cached_property
    def body(self) -> list[Layer]:
        """Without a new head, which is trained in any case."""
        if not self.task.has_new_head:
            return self.layers
        return [layer for layer in self.layers if not all(name.startswith(HEAD) for name in layer.names)]

    @cached_property
    def head(self) -> tuple[str, ...]:
        if not self.task.has_new_head:
            return ()
        return tuple(name for layer in self.layers for name in layer.names if name.startswith(HEAD))

    @cached_property
    def information(self) -> dict[int, float]:
        return information(self.task, self.body, self.start)

    @cached_property
    def facts(self) -> dict[Candidate, Facts]:
        """Of each candidate, those too that do not fit."""
        picked = propose(self.body, self.information, self.budget.memory)
        found: dict[Candidate, Facts] = {}
        for candidate in candidates(self.layers, self.head, picked):
            found[candidate] = facts_of(self.task, candidate)
            if found[candidate].refused:
                found.update(self._narrowed(candidate))
        return found

    def _narrowed(self, candidate: Candidate) -> Iterable[tuple[Candidate, Facts]]:
        """With as many of its channels as there is memory for."""
        tried = ((few, facts_of(self.task, few)) for few in narrowed(candidate, self.layers))
        return islice((pair for pair in tried if not pair[1].refused), 1)

    @cached_property
    def schedule(self) -> Schedule:
        """What there is time for, by the pace of a first trial."""
        task = self.task
        epochs = task.config.epochs or epochs_of(len(task.data), task.config.batch_size)
        possible = {c: f for c, f in self.facts.items() if not f.refused}
        if self.budget.seconds is not None and possible:
            self.pace = self._pace(*max(possible.items(), key=lambda pair: pair[1].later))
        fit = [f for f in possible.values() if not self._too_long(f, epochs)]
        return schedule(fit, len(task.data), epochs, self.pace, self.budget.seconds)

    @cached_property
    def splits(self) -> list[Split]:
        task = self.task
        return splits(
            len(task.data),
            task.labels,
            task.groups,
            self.schedule.sizes,
            task.seed,
        )

    @cached_property
    def arms(self) -> list[Arm]:
        rates, epochs = self.schedule.rates, self.schedule.epochs
        return [
            Arm(candidate, rate, facts)
            for candidate, facts in self.facts.items()
            if not facts.refused and not self._too_long(facts, epochs)
            for rate in _some(candidate.rates, rates)
        ]

    @property
    def usual(self) -> Arm | None:
        """What there is reason to train before any trial: everything, at the middle rate, where no head is new.

        A new head comes with new classes on features that were good before; other data of the same classes may have changed
        anywhere, and few samples show it least.
        """
        if self.task.has_new_head:
            return None
        return next((arm for arm in self.arms if arm.candidate.what == EVERYTHING), None)

    @cached_property
    def before(self) -> list[Score]:
        """Of each split, what the model says that nothing was trained of but a new head."""
        return [self._untrained(number) for number in range(len(self.splits))]

    def rows(self, chosen: Arm) -> tuple[Row, ...]:
        """Each candidate once, at the rate at which it got furthest; the chosen one first."""
        best: dict[Candidate, Arm] = {}
        for arm in sorted(self.arms, key=lambda arm: (-len(arm.trials), -arm.skill)):
            best.setdefault(arm.candidate, arm)
        best[chosen.candidate] = chosen
        ranked = sorted(best.values(), key=lambda arm: (arm is not chosen, -len(arm.trials), -arm.skill))
        return (*map(self._row, ranked), *self._refused())

    def _row(self, arm: Arm) -> Row:
        facts, seconds = arm.facts, arm.seconds(len(self.task.data), self.schedule.epochs)
        foreseen, seen = self._foreseen(arm.candidate), arm.gain(self.before)
        return Row(
            arm.candidate.what, arm.candidate.names, arm.rate, facts.parameters, facts.nbytes, seconds,
            foreseen, seen, arm.skill, len(arm.trials),
        )  # fmt: skip

    def _refused(self) -> Iterable[Row]:
        for candidate, facts in self.facts.items():
            if why := facts.refused or self._too_long(facts, self.schedule.epochs):
                yield Row(
                    candidate.what,
                    candidate.names,
                    parameters=facts.parameters,
                    nbytes=facts.nbytes,
                    refused=why,
                )

    def _foreseen(self, candidate: Candidate) -> float:
        """Its share of the information, a layer's divided by how much of it is trained."""
        total = sum(self.information.values())
        trained = dict(map(part_of, candidate.names))
        found = sum(
            self.information.get(layer.place, 0.0)
            * sum(trained.get(name, 0.0) for name in layer.names)
            / len(layer.names)
            for layer in self.body
        )
        return found / total if total else 0.0

    def _too_long(self, facts: Facts, epochs: int) -> str:
        return fitting(facts, len(self.task.data), epochs, self.pace, self.budget.seconds)

    def _pace(self, candidate: Candidate, facts: Facts) -> float:
        """By the later epochs of a short trial of what takes longest; what compiling takes is no work of a sample."""
        enough = int(PACED / max(facts.later, 1e-9))
        places = np.arange(min(len(self.task.data), max(2 * self.task.config.batch_size, min(enough, 64))))
        names, rate = candidate.names, candidate.rates[0]
        found, _ = attempt(self.bench, names, rate, self.start, Split(places, places[:1]), 3)
        return pace_of(found.later, facts.later)

    def _attempt(self, arm: Arm, number: int) -> Trial:
        names, epochs = arm.candidate.names, self.schedule.trial_epochs
        found, _ = attempt(self.bench, names, arm.rate, self._start(number), self.splits[number], epochs)
        LOG.info("%s at %g, split %d: %.3f", arm.candidate.what, arm.rate, number + 1, found.score.right)
        return found

    def _start(self, number: int) -> Mapping[str, Array]:
        """What a new head learns of the samples that a split trains, so that it knows nothing of the others."""
        if self.task.has_new_head and number not in self.starts:
            self.starts[number] = self._head_of(self.splits[number])
        return self.starts.get(number, {})

    def _head_of(self, split: Split) -> dict[str, Array]:
        _, session = attempt(self.bench, self.head, HEAD_RATE, {}, split, HEAD_EPOCHS)
        return {name: np.array(session.parameters[name]) for name in self.head}

    def _untrained(self, number: int) -> Score:
        candidate = min(
            (c for c, f in self.facts.items() if not f.refused), key=lambda c: self.facts[c].parameters
        )
        start = self._start(number)
        session = self.bench.begin(candidate.names, HEAD_RATE, start)
        return judge(self.bench, session, self.splits[number])


def _some(rates: Sequence[float], count: int) -> Sequence[float]:
    """The middle one first, then the lower: a high one makes trained layers forget."""
    return (rates[1], rates[0], rates[2])[:count] if len(rates) == 3 else rates[:count]
