"""From labelled samples and a model to a trained one: the whole course."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Any

import numpy as np

from circle_train.data.dataset import Dataset
from circle_train.data.labelled import Labelled
from circle_train.errors import ConfigError, DataError
from circle_train.finetuning.account import Result
from circle_train.finetuning.choosing.budget import parse_budget
from circle_train.finetuning.choosing.choice import Choice
from circle_train.finetuning.choosing.choose import choose_for
from circle_train.finetuning.choosing.task import task_of_course
from circle_train.finetuning.deadline import Deadline
from circle_train.finetuning.look import settle
from circle_train.finetuning.result import judged
from circle_train.fitting.callbacks import Callback, EarlyStopping
from circle_train.fitting.history import History
from circle_train.losses import BinaryCrossentropy, CategoricalCrossentropy, Loss, MeanSquaredError
from circle_train.model import Model, Source, load
from circle_train.optimizers import Adam
from circle_train.record import record
from circle_train.session import TrainSession
from circle_train.session.fit import describe_choice
from circle_train.settings.config import TrainConfig

LOG = logging.getLogger(__name__)
HEAD_EPOCHS, EPOCHS = 40, 20
"""At the most, of the two phases."""
HEAD_RATE = 3e-3
GAIN = 1e-3
"""Of the validation's loss; an epoch that gains less is one without gain."""
HEAD_SHARE = 0.3
"""Of the time that there is, for the head's phase."""
DEEPER = 0.4
"""The share of the operators, from the end, that the second phase trains."""
MONITOR = "val_loss"


@record
class Recipe:
    """What a course may be told; None is decided by data and model."""

    epochs: int | None = None
    """In each phase at the most."""
    batch_size: int = 16
    """Samples a step."""
    learning_rate: float | None = None
    """Of the head's phase."""
    trainable: Any = "auto"
    """What the second phase trains; "auto", "none", or as in TrainConfig."""
    patience: int = 5
    """Epochs without a gain that end a phase."""
    variants: int = 4
    """Forms of each sample in an epoch, where samples are varied."""
    class_weights: str | None = None
    """ "balanced": rare classes count as much as frequent ones."""
    label_smoothing: float = 0.0
    """The share of each label that goes to all classes alike."""
    memory_budget: int | str | None = None
    """What a step may take."""
    budget: str | None = None
    """Memory and time, within which it is found out what to train."""
    seed: int = 0
    """Of split, order and variation."""

    def __post_init__(self) -> None:
        if self.class_weights not in (None, "balanced"):
            raise ConfigError(f"class_weights is {self.class_weights!r}, expected 'balanced' or None")
        if self.budget is not None and self.memory_budget is not None:
            raise ConfigError(
                "budget and memory_budget are both given; leave out memory_budget: budget='150MB,60s' says it"
            )
        for name in ("epochs", "batch_size", "patience", "variants"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise ConfigError(f"{name} is {value!r}, expected a whole number from 1")


def finetune(  # noqa: PLR0913 -- what there is to say about a course, each by name
    model: Model | Source,
    data: Labelled,
    *,
    epochs: int | None = None,
    batch_size: int = 16,
    learning_rate: float | None = None,
    trainable: Any = "auto",
    patience: int = 5,
    variants: int = 4,
    class_weights: str | None = None,
    label_smoothing: float = 0.0,
    memory_budget: int | str | None = None,
    budget: str | None = None,
    seed: int = 0,
    callbacks: tuple[Callback, ...] = (),
    threads: int | None = None,
    verbose: int | str = "auto",
) -> Result:
    """Fit a model to labelled samples: a new head, then the last layers at a tenth of the rate; the best weights stay.

    Args:
        model: a path or a loaded model, of any number of classes.
        data: what `ct.data.images` and its like give.
        epochs: passes over the data in each phase at the most.
        trainable: what the second phase trains, as in TrainConfig; "auto" the last layers, "none" leaves it out.
        learning_rate: of the head; the second phase takes a tenth of it.
        patience: epochs without a better validation after which a phase ends.
        variants: how often each sample stands in an epoch, where the data are varied at random.
        class_weights: "balanced" lets rare classes count as much as frequent ones.
        budget: memory of a step and seconds of processor time for the whole course, as "150MB,60s"; what the second phase
            trains is then found out by trials (see `ct.choose`), and `result.choice` shows them.
        label_smoothing, memory_budget, batch_size, seed: as in TrainConfig and TrainSession.
        callbacks, threads, verbose: as in TrainSession.
    """
    asked = Recipe(
        epochs, batch_size, learning_rate, trainable, patience, variants, class_weights, label_smoothing, memory_budget,
        budget, seed,
    )  # fmt: skip
    if not isinstance(data, Labelled):
        raise DataError(
            f"data is {type(data).__name__}, expected labelled samples: ct.data.images('photos/') and its like"
        )
    began = time.process_time()
    finetuning = Finetuning(load(model), data, asked, threads)
    finetuning.train_head(callbacks, verbose)
    finetuning.train_deeper(callbacks, verbose)
    return finetuning.result(time.process_time() - began)


class Finetuning:
    """One fine-tuning: the session, what trains and what validates."""

    def __init__(self, model: Model, data: Labelled, recipe: Recipe, threads: int | None) -> None:
        self.data, self.recipe, self.threads = data, recipe, threads
        self.how, self.why = settle(model, data, recipe.seed)
        self.train, self.held_out = data.parts(recipe.seed)
        headed = model.with_head(data.classes or data.outputs, scores=data.scores)
        self.model = headed.described(replace(self.how, labels=data.classes, scores=data.scores))
        self.budget = None if recipe.budget is None else parse_budget(recipe.budget)
        self.began = time.process_time()
        self.choice: Choice | None = None
        self.config = self._config()
        self.session = TrainSession(self.model, self.config, seed=recipe.seed, threads=threads)
        self.varied = bool(getattr(data, "augmentation", ()))
        self.histories: list[History] = []
        LOG.info("%s%s", self.model.description, f" ({self.why})" if self.why else "")
        self.kept: list[int] = []
        self.phases: list[str] = []

    def train_head(self, callbacks: tuple[Callback, ...], verbose: int | str) -> None:
        """The new layer alone; what it reads is computed once a sample."""
        self._fit("head", self.recipe.epochs or HEAD_EPOCHS, callbacks, verbose, HEAD_SHARE)

    def train_deeper(self, callbacks: tuple[Callback, ...], verbose: int | str) -> None:
        """The layers before it, carefully; they go back to what they were where that does not help."""
        wish = self.recipe.trainable
        best = self.best
        if wish == "none" or (wish == "auto" and (best is None or self.is_perfect)):
            if self.budget is not None and wish == "auto" and best is not None:
                LOG.info("the head names all samples held out: nothing deeper is tried")
            return
        before = dict(self.session.parameters)
        epochs = self.recipe.epochs or EPOCHS
        if self.budget is not None and wish == "auto":
            phase, epochs = self._choose()
        else:
            phase = self._go_deeper()
        self._fit(phase, epochs, callbacks, verbose)
        if best is not None and self.best is not None and self.best >= best:
            for name, value in before.items():
                self.session.parameters[name] = value
            LOG.info("that did not help: the weights of the head's phase stay")
            for of_phases in (self.histories, self.kept, self.phases):
                of_phases.pop()

    def _go_deeper(self) -> str:
        """What was asked for, or the last layers."""
        wish, operators = self.recipe.trainable, len(self.model.operators)
        what = ("last", max(int(operators * DEEPER), 1)) if wish == "auto" else wish
        LOG.info("the head is trained; now %s at a tenth of the rate", describe_choice(what))
        self.session.set_trainable(what, learning_rate=self.config.rule.base_learning_rate / 10)
        return "last layers" if wish == "auto" else describe_choice(what)

    def _choose(self) -> tuple[str, int]:
        """What trials say, and for how many epochs."""
        assert self.budget is not None
        left = (
            self.budget
            if self.budget.seconds is None
            else replace(self.budget, seconds=self._left(self.budget.seconds))
        )
        config = self.config.replace(epochs=self.recipe.epochs or 0)
        task = task_of_course(
            self.model, self.train, self.how, config, seed=self.recipe.seed, threads=self.threads
        )
        head = {name: np.array(value) for name, value in self.session.parameters.trainable().items()}
        self.choice = choice = choose_for(task, left, head)
        LOG.info("%s", choice)
        found = choice.config
        self.session.set_trainable(found.trainable, learning_rate=found.rule.base_learning_rate)
        return choice.chosen.what, self.recipe.epochs or found.epochs

    def _left(self, seconds: float) -> float:
        """Of the time for the whole course; a moment if there is none."""
        return max(self.began + seconds - time.process_time(), 1.0)

    def result(self, seconds: float) -> Result:
        session, data = self.session, self.held_out or self.train
        scores = judged(session, self._open(data), data)
        return Result(
            session, self.data, self.how, self.why, tuple(self.histories), scores, seconds,
            held_out=None if self.held_out is None else len(self.held_out), examined=data,
            best_epochs=tuple(self.kept), phases=tuple(self.phases), choice=self.choice,
        )  # fmt: skip

    @property
    def best(self) -> float | None:
        """The best validation of the last phase."""
        return min(self.histories[-1].history.get(MONITOR, ()), default=None)

    @property
    def is_perfect(self) -> bool:
        """Whether an epoch has named all samples held out."""
        return max(self.histories[-1].history.get("val_categorical_accuracy", ()), default=0.0) >= 1

    def _fit(
        self, phase: str, epochs: int, callbacks: tuple[Callback, ...], verbose: int | str, share: float = 1.0
    ) -> None:
        """One phase; with a budget it ends when this share of its time is over."""
        seconds = None if self.budget is None else self.budget.seconds
        end = [] if seconds is None else [Deadline(self.began + share * seconds)]
        stop = (
            [EarlyStopping(MONITOR, min_delta=GAIN, patience=self.recipe.patience, restore_best=True)]
            if self.held_out is not None
            else []
        )
        validation = None if self.held_out is None else self._open(self.held_out)
        variants = self.recipe.variants if self.varied else 0
        history = self.session.fit(
            self._open(self.train, variants), epochs=epochs, validation_data=validation,
            callbacks=[*stop, *end, *callbacks], verbose=verbose,
        )  # fmt: skip
        self.histories.append(history)
        self.phases.append(phase)
        self.kept.append(stop[0].best_epoch if stop else len(history.epoch) - 1)

    def _open(self, data: Labelled, variants: int = 0) -> Dataset:
        tensor = self.session.program.inputs[0]
        return Dataset(
            [data.open(tensor, self.how, variants, self.recipe.seed)],
            [data.targets(variants, self.recipe.seed)],
        )

    def _config(self) -> TrainConfig:
        """The head's phase."""
        loss: Loss
        if self.data.scores == "softmax":
            weights = _balanced(self.train) if self.recipe.class_weights == "balanced" else None
            loss = CategoricalCrossentropy(class_weights=weights, label_smoothing=self.recipe.label_smoothing)
        else:
            loss = BinaryCrossentropy() if self.data.scores == "sigmoid" else MeanSquaredError()
        metrics = {
            "softmax": ["categorical_accuracy"],
            "sigmoid": ["binary_accuracy"],
            "values": ["mean_absolute_error"],
        }
        return TrainConfig(
            loss=loss,
            optimizer=Adam(learning_rate=self.recipe.learning_rate or HEAD_RATE),
            batch_size=min(self.recipe.batch_size, len(self.train)),
            trainable=["head/*"],
            metrics=metrics[self.data.scores],
            memory_budget=self.recipe.memory_budget if self.budget is None else self.budget.memory,
        )


def _balanced(data: Labelled) -> tuple[float, ...]:
    """Weights with which every class counts the same."""
    counts = np.maximum(data.counts(), 1)
    return tuple(float(weight) for weight in len(data) / (len(counts) * counts))
