"""What a course of fine-tuning may be told."""

from __future__ import annotations

from typing import Any

import numpy as np

from circle_train.data.labelled import Labelled
from circle_train.errors import ConfigError
from circle_train.kinds import require_seed
from circle_train.losses import BinaryCrossentropy, CategoricalCrossentropy, Loss, MeanSquaredError
from circle_train.optimizers import Adam
from circle_train.record import record
from circle_train.settings.config import TrainConfig

PATIENCE, VARIANTS = 5, 4
HEAD_RATE = 3e-3
METRICS = {"softmax": "categorical_accuracy", "sigmoid": "binary_accuracy", "values": "mean_absolute_error"}


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
    patience: int | None = None
    """Epochs without a gain that end a phase."""
    variants: int | None = None
    """Forms of each sample in an epoch, where samples are varied."""
    class_weights: str | None = None
    """ "balanced": rare classes count as much as frequent ones."""
    label_smoothing: float | None = None
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
        if self.trainable in ("last:0", ("last", 0), []):
            raise ConfigError(
                f"trainable is {self.trainable!r}, which trains nothing; 'none' trains the head alone"
            )
        for name in ("epochs", "batch_size", "patience", "variants"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise ConfigError(f"{name} is {value!r}, expected a whole number from 1")
        require_seed(self.seed)

    def config(self, data: Labelled, train: Labelled, memory: int | str | None) -> TrainConfig:
        """Of the head's phase."""
        loss: Loss
        if data.scores == "softmax":
            weights = _balanced(train) if self.class_weights == "balanced" else None
            loss = CategoricalCrossentropy(class_weights=weights, label_smoothing=self.label_smoothing or 0.0)
        else:
            loss = BinaryCrossentropy() if data.scores == "sigmoid" else MeanSquaredError()
        return TrainConfig(
            loss=loss,
            optimizer=Adam(learning_rate=self.learning_rate or HEAD_RATE),
            batch_size=min(self.batch_size, len(train)),
            trainable=["head/*"],
            metrics=[METRICS[data.scores]],
            memory_budget=memory,
        )

    def refuse_idle(self, data: Labelled) -> None:
        """Words that would change nothing for these data."""
        validates = data.held_out is not None or data.share > 0
        told = {
            "class_weights": (self.class_weights, data.scores == "softmax", "samples of one class each"),
            "label_smoothing": (self.label_smoothing, data.scores == "softmax", "samples of one class each"),
            "patience": (self.patience, validates, "samples held out, and none are (validation)"),
            "variants": (
                self.variants,
                bool(getattr(data, "augmentation", ())),
                "samples that are varied (augment)",
            ),
        }
        for name, (given, is_heard, wanted) in told.items():
            if given and not is_heard:
                raise ConfigError(f"{name} is {given!r}, but it takes {wanted}; leave it out")


def _balanced(data: Labelled) -> tuple[float, ...]:
    """Weights with which every class counts the same."""
    counts = np.maximum(data.counts(), 1)
    return tuple(float(weight) for weight in len(data) / (len(counts) * counts))
