"""One fit of a candidate on one split: how good, and how long it took."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

import numpy as np

from circle_train.data.dataset import Dataset
from circle_train.finetuning.choosing.splits import Split
from circle_train.finetuning.choosing.task import Task
from circle_train.fitting.callback import Callback, Logs
from circle_train.ir.tensor_type import Array
from circle_train.optimizers.schedules import Trapezoid
from circle_train.record import record
from circle_train.runtime.kept import KeptDataset, KeptPart
from circle_train.session import TrainSession
from circle_train.session.keeping import with_results


@record
class Score:
    """How good answers for samples held out are; more is better."""

    skill: float
    """What is decided by: 1 less half the squared error of the probabilities (Brier); of other tasks the loss, negative."""
    right: float
    """What people read: the share of right answers; of other tasks the same."""


@record
class Trial:
    """A fit that was judged."""

    score: Score
    samples: int
    """That were trained on."""
    first: float
    """Seconds of processor time that the first epoch took, for each sample; frozen layers are computed in it."""
    later: float
    """The same of an epoch after it."""
    made: float | None = None
    """Seconds that the session took which was made for this trial, whose first epoch compiles more; None: it was there."""


class Clock(Callback):
    """Processor time at the end of each epoch."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_train_begin(self) -> None:
        self.times = [time.process_time()]

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        self.times.append(time.process_time())


FALL = 3
"""The part of a course's updates in which its rate falls."""


def falling(rate: float, updates: int) -> Trapezoid:
    """How the rate of a course goes, in trials and in what they choose: as it is, at last straight down to nothing.

    Where it does not fall the last few samples decide how good the weights are; where it falls from the beginning,
    a short course does not get far.
    """
    return Trapezoid(rate, total_steps=updates, falling_steps=ceil(updates / FALL))


class Scheduled(Callback):
    """The rate of each update, by a schedule for as many as the fit takes."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def on_train_begin(self) -> None:
        self.step, self.schedule = 0, falling(self.rate, self.epochs * (self.steps or 1))
        self._set()

    def on_batch_end(self, batch: int, logs: Logs) -> None:
        self.step += 1
        self._set()

    def _set(self) -> None:
        self.session.learning_rate = self.schedule(self.step)


TIMED = 4
"""Batches of which all but the first are."""


@dataclass
class Bench:
    """Where trials are made: the session of the last ones is used again for others of the same parameters."""

    task: Task
    names: tuple[str, ...] = ()
    session: TrainSession | None = None
    kept: KeptDataset | None = None
    """All samples, with what the frozen beginning makes of each: computed once for all trials of the session."""
    beginning: float = 0.0
    """Seconds of processor time that this takes for a sample."""

    def part(self, places: Array) -> Dataset:
        """Some of the samples."""
        plain = part(self.task, places)
        return plain if self.kept is None else KeptPart(plain.inputs, plain.targets, self.kept, places)

    def time_beginning(self, session: TrainSession, places: Array) -> None:
        """By some samples, where results are kept; a first batch is not timed, which also compiles."""
        size = session.config.batch_size
        some = places[: TIMED * size]
        if self.kept is None or len(some) <= size:
            return
        times = []
        for x, y in self.part(some).batches(size):
            session.eval_step(x, y, measure=False)
            times.append(time.process_time())
        self.beginning = (times[-1] - times[0]) / (len(some) - size)

    def begin(self, names: tuple[str, ...], rate: float, start: Mapping[str, Array]) -> TrainSession:
        """A session as if it were new."""
        if self.session is None or self.names != names:
            self.session, self.kept, self.beginning = (
                None,
                None,
                0.0,
            )  # their memory goes before there is another
            self.names, self.session = names, self.task.session(list(names), rate, start)
            self.kept = with_results(self.session, self.task.data)
        self.session.state.begin_anew(rate)
        for name, value in start.items():
            self.session.parameters[name] = value
        return self.session


def attempt(
    bench: Bench, names: tuple[str, ...], rate: float, start: Mapping[str, Array], split: Split, epochs: int
) -> tuple[Trial, TrainSession]:
    """Train and judge."""
    before = time.process_time()
    was = bench.session
    session = bench.begin(names, rate, start)
    made = None if session is was else time.process_time() - before
    if made is not None:
        bench.time_beginning(session, split.train)
    clock = Clock()
    began = time.process_time()
    session.fit(
        bench.part(split.train),
        keep_frozen=bench.kept is None and "auto",
        epochs=epochs,
        callbacks=[clock, Scheduled(rate)],
        verbose=0,
    )
    count, times = len(split.train), [began, *clock.times[1:]]
    first = (times[1] - times[0]) / count
    later = (times[-1] - times[1]) / count / (epochs - 1) if epochs > 1 else first
    first += bench.beginning
    return Trial(judge(bench, session, split), count, first, later, made), session


def part(task: Task, places: Array) -> Dataset:
    """Some of the samples, decoded and in memory no more than a batch of them where they lie in files."""
    return Dataset(
        [Places(array, places) for array in task.data.inputs], [t[places] for t in task.data.targets]
    )


class Places:
    """Some entries of an array, taken when they are asked for."""

    def __init__(self, array: Array, places: Array) -> None:
        self.array, self.places = array, places
        self.shape, self.dtype, self.ndim = (len(places), *array.shape[1:]), array.dtype, array.ndim

    @property
    def is_lasting(self) -> bool:
        """Whether entries are the same at every access."""
        return type(self.array) in (np.ndarray, np.memmap) or getattr(self.array, "is_lasting", False) is True

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, at: slice | Array) -> Array:
        return self.array[self.places[at]]


def judge(bench: Bench, session: TrainSession, split: Split) -> Score:
    """The session's answers for what is held out."""
    task, data = bench.task, bench.part(split.held_out)
    if task.labels is None:
        loss = -session.evaluate(data)["loss"]
        return Score(loss, loss)
    batches = data.batches(session.config.batch_size)
    found = np.concatenate([session.eval_step(x, y, measure=False).outputs[0] for x, y in batches])
    rows = np.asarray(found, np.float64).reshape(len(data), -1)
    return score_of(rows, task.labels[split.held_out])


def score_of(rows: Array, truth: Array) -> Score:
    """Of probabilities or logits, and class numbers."""
    if not (np.allclose(rows.sum(1), 1, atol=1e-3) and (rows >= 0).all()):
        rows = np.exp(rows - rows.max(axis=1, keepdims=True))
        rows = rows / rows.sum(axis=1, keepdims=True)
    right = np.eye(rows.shape[1])[truth]
    error = np.square(rows - right).sum(1) / 2
    return Score(float(1 - error.mean()), float((rows.argmax(1) == truth).mean()))
