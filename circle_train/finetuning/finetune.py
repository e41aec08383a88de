"""From labelled samples and a model to a trained one: the whole course."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import replace
from math import ceil, inf
from typing import Any

import numpy as np

from circle_train.data.dataset import Dataset
from circle_train.data.labelled import Labelled
from circle_train.errors import DataError
from circle_train.finetuning.account import Result
from circle_train.finetuning.averaged import Averaged
from circle_train.finetuning.between import partway
from circle_train.finetuning.borne import borne
from circle_train.finetuning.choosing.budget import parse_budget
from circle_train.finetuning.choosing.candidates import EVERYTHING
from circle_train.finetuning.choosing.choice import Choice
from circle_train.finetuning.choosing.choose import choose_for
from circle_train.finetuning.choosing.task import task_of_course
from circle_train.finetuning.deadline import Deadline
from circle_train.finetuning.deeper import (
    DEEPER_LENGTH,
    SMOOTHING,
    Falling,
    Length,
    Settled,
    all_layers,
    lower,
)
from circle_train.finetuning.look import settle
from circle_train.finetuning.recipe import PATIENCE, VARIANTS, Recipe
from circle_train.finetuning.result import judged
from circle_train.finetuning.stages import DEEPER, HEAD, Stages
from circle_train.finetuning.units import Units
from circle_train.fitting.callbacks import Callback, EarlyStopping
from circle_train.fitting.history import History
from circle_train.model import Model, Source, load
from circle_train.session import TrainSession
from circle_train.session.fit import describe_choice

LOG = logging.getLogger(__name__)
HEAD_LENGTH = Length(steps=2000, fewest=40, most=200)
"""At the most: its epochs cost next to nothing."""
GAIN = 1e-3
"""Of the validation's loss; an epoch that gains less is one without gain."""
HEAD_SHARE = 0.3
"""Of the time that there is, for the head's phase."""
MONITOR = "val_loss"


def finetune(  # noqa: PLR0913 -- what there is to say about a course, each by name
    model: Model | Source,
    data: Labelled,
    *,
    epochs: int | None = None,
    batch_size: int = 16,
    learning_rate: float | None = None,
    trainable: Any = "auto",
    patience: int | None = None,
    variants: int | None = None,
    class_weights: str | None = None,
    label_smoothing: float | None = None,
    memory_budget: int | str | None = None,
    budget: str | None = None,
    seed: int = 0,
    run_dir: str | os.PathLike[str] | None = None,
    callbacks: tuple[Callback, ...] = (),
    threads: int | None = None,
    verbose: int | str = "auto",
) -> Result:
    """Fit a model to labelled samples: a new head, then all layers at a lower rate; the best weights stay.

    Args:
        model: a path or a loaded model, of any number of classes.
        data: what `ct.data.images` and its like give.
        epochs: passes over the data in each phase at the most.
        trainable: what the second phase trains, as in TrainConfig; "auto" all layers, "none" leaves it out.
        learning_rate: of the head (3e-3); the second phase begins with a tenth of it (unless given, 1e-4) and falls to nothing.
        patience: epochs without a better validation that end a phase (5); the best weights stay.
        variants: how often each sample stands in an epoch, where the data are varied at random (4).
        class_weights: "balanced" lets rare classes count as much as frequent ones.
        budget: memory of a step and seconds of processor time for the whole course, as "150MB,60s"; what the second phase
            trains is then found out by trials (see `ct.choose`), and `result.choice` shows them.
        run_dir: a folder for a checkpoint after each epoch; a course that was stopped goes on where it finds its own there.
        label_smoothing: the share of each label that goes to all classes alike (none in the first phase, 0.1 in the second).
        memory_budget, batch_size, seed, callbacks, threads, verbose: as in TrainConfig and TrainSession.
    """
    asked = Recipe(
        epochs, batch_size, learning_rate, trainable, patience, variants, class_weights, label_smoothing, memory_budget,
        budget, seed,
    )  # fmt: skip
    stages = None if run_dir is None else Stages(run_dir)
    result = Finetuning(load(model), data, asked, threads, stages).run(callbacks, verbose)
    if stages is not None:
        stages.clear()
    return result


class Finetuning:
    """One fine-tuning: the session, what trains and what validates."""

    def __init__(
        self, model: Model, data: Labelled, recipe: Recipe, threads: int | None, stages: Stages | None
    ) -> None:
        if not isinstance(data, Labelled):
            raise DataError(
                f"data is {type(data).__name__}, expected labelled samples: ct.data.images('photos/') and its like"
            )
        recipe.refuse_idle(data)
        self.began = time.process_time()
        self.data, self.recipe, self.threads, self.stages = data, recipe, threads, stages
        self.how, self.why = settle(model, data, recipe.seed)
        self.parts = data.parts(recipe.seed)
        self.units = Units.of(self.parts[0]) if data.scores == "values" else None
        self.train, self.held_out = self.parts
        if self.units is not None:
            self.train = self.units.applied(self.train)
            self.held_out = None if self.held_out is None else self.units.applied(self.held_out)
        headed = model.with_head(data.classes or data.outputs, scores=data.scores)
        self.model = headed.described(replace(self.how, labels=data.classes, scores=data.scores))
        self.budget = None if recipe.budget is None else parse_budget(recipe.budget)
        self.choice: Choice | None = None
        self.seconds = None if self.budget is None else self.budget.seconds
        memory = recipe.memory_budget if self.budget is None else self.budget.memory
        self.config = recipe.config(data, self.train, memory)
        self.session = TrainSession(self.model, self.config, seed=recipe.seed, threads=threads)
        self.histories: list[History] = []
        LOG.info("%s%s", self.model.description, f" ({self.why})" if self.why else "")
        if self.units is not None:
            LOG.info("%s", self.units)
        self.kept: list[int] = []
        self.phases: list[str] = []
        self.is_whole = False  # until nothing is frozen
        self.under_way = ""
        """The checkpoint's name of the phase that is being fitted."""

    def run(self, callbacks: tuple[Callback, ...], verbose: int | str) -> Result:
        """Both phases; what they learned is left in the stages' folder when Ctrl-C ends them."""
        try:
            self.train_head(callbacks, verbose)
            self.train_deeper(callbacks, verbose)
        except KeyboardInterrupt:
            if self.stages is not None and self.under_way:
                self.stages.save(self.session, self.under_way)
            raise
        return self.result(time.process_time() - self.began)

    def train_head(self, callbacks: tuple[Callback, ...], verbose: int | str) -> None:
        """The new layer alone; what it reads is computed once a sample."""
        done = None if self.stages is None else self.stages.head()
        if self.stages is None or done is None:
            self._fit("head", self.recipe.epochs or self._epochs(HEAD_LENGTH), callbacks, verbose, HEAD_SHARE)
            if self.stages is not None:
                self.stages.end_head(self.session, self.histories[0], self.kept[0])
            return
        self.stages.take_up(self.session, HEAD)
        history, best = done
        LOG.info("the head was trained in %d epochs before", len(history.epoch))
        self._note("head", history, best)

    def train_deeper(self, callbacks: tuple[Callback, ...], verbose: int | str) -> None:
        """The layers before it, carefully; they go back to what they were where that does not help."""
        wish, (best, right) = self.recipe.trainable, self.best
        if wish == "none" or (wish == "auto" and (best is None or self.is_perfect)):
            if self.budget is not None and wish == "auto" and best is not None:
                LOG.info("the head names all samples held out: nothing deeper is tried")
            return
        what = all_layers(self.model) if wish == "auto" else wish
        if what is None:
            LOG.info("the head is all that this model can train")
            return
        before = dict(self.session.parameters)
        phase, epochs = self._choose() if self.budget and wish == "auto" else self._go_deeper(what)
        self._fit(phase, epochs, (Falling(self.session.learning_rate), *callbacks), verbose)
        if best is None or self.held_out is None:
            return
        found = partway(self.session, before, self._open(self.held_out))
        if not found["loss"] < best or found[self.config.metrics[0]] < right:
            for name, value in before.items():
                self.session.parameters[name] = value
            LOG.info("that did not help: the weights of the head's phase stay")
            for of_phases in (self.histories, self.kept, self.phases):
                of_phases.pop()

    def _go_deeper(self, what: Any) -> tuple[str, int]:
        """Train it with the head from here on; what the phase is called, and for how many epochs."""
        rate = lower(self.recipe.learning_rate)
        name = "all layers" if self.recipe.trainable == "auto" else describe_choice(what)
        LOG.info("the head is trained; now %s, at a rate of %g that falls", name, rate)
        if self.recipe.trainable == "auto":
            self._vary()
        self.session.set_trainable(what, learning_rate=rate)
        return name, self.recipe.epochs or self._epochs(DEEPER_LENGTH)

    def _vary(self) -> None:
        """Nothing is frozen from here on: each epoch may see other forms of the samples."""
        self.train = borne(self.session, self.train, self.held_out, self.how, self.recipe.seed)
        self.is_whole = not self.train.is_mixed

    def _choose(self) -> tuple[str, int]:
        """What trials say, and for how many epochs: all layers for as many as without a budget, if there is time."""
        assert self.budget is not None
        left = replace(self.budget, seconds=self._left)
        config = self.config.replace(epochs=self.recipe.epochs or 0)
        task = task_of_course(
            self.model, self.train, self.how, config, seed=self.recipe.seed, threads=self.threads
        )
        head = {name: np.array(value) for name, value in self.session.parameters.trainable().items()}
        self.choice = choice = choose_for(task, left, head)
        LOG.info("%s", choice)
        row, epochs = choice.chosen, choice.config.epochs
        if row.what == EVERYTHING:
            self._vary()
            often = (self._left or inf) / (row.seconds or 1.0)
            epochs = max(int(min(self._epochs(DEEPER_LENGTH), often * epochs)), 1)
        self.session.set_trainable(row.names, learning_rate=row.learning_rate)
        return row.what, self.recipe.epochs or ceil(epochs / max(self._variants(DEEPER), 1))

    @property
    def _left(self) -> float | None:
        """Seconds for what is still to be done, where there is an end; a moment after it."""
        return self.seconds and max(self.began + self.seconds - time.process_time(), 1.0)

    def result(self, seconds: float) -> Result:
        session, data = self.session, self.parts[1] or self.parts[0]
        if self.units is not None:
            self.units.give_back(session)
        scores = judged(session, self._open(data), data)
        return Result(
            session, self.data, self.how, self.why, tuple(self.histories), scores, seconds,
            held_out=None if self.held_out is None else len(self.held_out), examined=data,
            best_epochs=tuple(self.kept), phases=tuple(self.phases), choice=self.choice,
        )  # fmt: skip

    @property
    def best(self) -> tuple[float | None, float]:
        """The last phase's loss and share of right answers of those held out, by the weights that stay; None where none are."""
        history, at = self.histories[-1].history, self.kept[-1]
        losses, shares = (history.get(name, ()) for name in (MONITOR, f"val_{self.config.metrics[0]}"))
        return losses[at] if losses else None, shares[at] if shares and self.data.classes else 0.0

    @property
    def is_perfect(self) -> bool:
        """Whether an epoch has named all samples held out."""
        return max(self.histories[-1].history.get("val_categorical_accuracy", ()), default=0.0) >= 1

    def _fit(
        self, phase: str, epochs: int, callbacks: tuple[Callback, ...], verbose: int | str, share: float = 1.0
    ) -> None:
        """One phase; with a budget it ends when this share of its time is over."""
        end = [] if self.seconds is None else [Deadline(self.began + share * self.seconds)]
        name = DEEPER if self.histories else HEAD
        falls = name == DEEPER
        kind, patience = Settled if falls else EarlyStopping, self.recipe.patience or PATIENCE
        ending = kind(MONITOR, min_delta=GAIN, patience=patience, restore_best=True)
        stop = [] if self.held_out is None else [ending]
        mean = [Averaged()] if self.config.memory_budget is None else []  # it takes twice the weights
        validation = None if self.held_out is None else self._open(self.held_out)
        self._take_up(name)
        self.under_way = name
        history = self.session.fit(
            self._open(self.train, self._variants(name), SMOOTHING * falls), epochs=epochs, validation_data=validation,
            callbacks=[*mean, *stop, *end, *(self.stages.callbacks(name) if self.stages else ()), *callbacks], verbose=verbose,
        )  # fmt: skip
        self.under_way = ""
        self._note(phase, history, stop[0].best_epoch if stop else len(history.epoch) - 1)

    def _epochs(self, length: Length) -> int:
        return length.epochs(len(self.train), self.config.batch_size)

    def _variants(self, name: str) -> int:
        """Forms of each sample, kept as a frozen beginning sees them; where nothing is frozen, another in each epoch (-1)."""
        if not getattr(self.train, "augmentation", ()):
            return 0
        return -1 if name == DEEPER and self.is_whole else self.recipe.variants or VARIANTS

    def _take_up(self, name: str) -> None:
        """Go on with a phase that was stopped; what a budget's trials chose may be another thing this time."""
        if self.stages is None or (name == DEEPER and self.budget is not None):
            return
        if self.stages.take_up(self.session, name):
            state = self.session.state
            LOG.info("%d epochs of this phase are done, step %d", state.epoch, state.step)

    def _note(self, phase: str, history: History, best: int) -> None:
        self.histories.append(history)
        self.phases.append(phase)
        self.kept.append(best)

    def _open(self, data: Labelled, variants: int = 0, smoothing: float = 0.0) -> Dataset:
        tensor, targets = self.session.program.inputs[0], data.targets(variants, self.recipe.seed)
        if data.scores == "softmax" and self.recipe.label_smoothing is None:
            targets = (1 - smoothing) * targets + smoothing / targets.shape[1]
        return Dataset([data.open(tensor, self.how, variants, self.recipe.seed)], [targets])
