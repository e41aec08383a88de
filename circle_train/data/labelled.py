"""Samples with labels, before a model says in which size and scale it wants them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import field, replace
from functools import partial
from math import floor
from typing import Any, ClassVar

import numpy as np

from circle_train.data.folders.listing import chosen
from circle_train.data.lazy import Lazy
from circle_train.errors import ConfigError, DataError
from circle_train.format.metadata.description import Description
from circle_train.ir import Tensor
from circle_train.ir.tensor_type import Array
from circle_train.record import record

FIFTH, TENTH, MANY = 0.2, 0.1, 1000
"""What validates unless somebody says so: a tenth from so many samples on."""
MIXUP = "mixup"
MIXING = 0.2
"""Both parameters of the distribution of shares: most variants are nearly one sample or the other."""


def mixture(place: int, samples: int, seed: int) -> tuple[int, float]:
    """With which sample a variant is mixed, and its own share."""
    random = np.random.default_rng([seed, place, samples])
    return int(random.integers(samples)), float(random.beta(MIXING, MIXING))


@record
class Labelled(ABC):
    """A collection of samples of one kind, what each of them is, and which of them validate.

    `open` gives arrays for a model; what decodes a sample, and into what, is the subclass's.
    """

    kind: ClassVar[str] = "features"

    items: Sequence[Any]
    """What each sample is read from: a path, a row."""
    labels: Array
    """Class numbers; rows of zeros and ones where a sample has several labels; numbers to be foreseen."""
    classes: tuple[str, ...] = ()
    groups: Array | None = None
    """Samples of one group (a person, a recording) train together or validate together."""
    validation: float | None = None
    """The fraction that validates; None: a fifth, of many samples a tenth."""
    held_out: Labelled | None = None
    """Other samples that validate, instead of a fraction of these."""
    skipped: tuple[str, ...] = ()
    """What could not be read, and why."""
    name: str = ""
    asked: Description = field(default_factory=Description)
    """What the caller said of size and scale; what he left open the model says."""

    def __post_init__(self) -> None:
        if not 0 <= self.share < 1:
            raise ConfigError(f"validation is {self.validation}, expected a fraction from 0 to less than 1")
        if not len(self.items):
            raise DataError(f"{self.name or 'the data'}: there are no samples; give at least one")

    def __len__(self) -> int:
        return len(self.items)

    @property
    def share(self) -> float:
        """The fraction that validates. A hundred samples tell good from bad; beyond, they teach more than they tell."""
        if self.validation is not None:
            return self.validation
        return TENTH if len(self) >= MANY and self.groups is None else FIFTH

    @property
    def scores(self) -> str:
        """What a model of these labels gives: "softmax", "sigmoid" or "values"."""
        if not self.classes:
            return "values"
        return "sigmoid" if self.labels.ndim > 1 else "softmax"

    @property
    def outputs(self) -> int:
        """How many numbers a model of these labels gives."""
        return len(self.classes) or (1 if self.labels.ndim == 1 else self.labels.shape[1])

    @abstractmethod
    def describe(self, tensor: Tensor, known: Description | None) -> Description:
        """How samples become this input: what the caller said, else what the model's file says, else what is usual."""

    @abstractmethod
    def decode(self, item: Any, how: Description, random: np.random.Generator | None) -> Array:
        """One sample as real numbers, channels last; with a generator, varied at random."""

    def shape(self, how: Description) -> tuple[int, ...]:
        """Of what `decode` gives."""
        return self.decode(self.items[0], how, None).shape

    def parts(self, seed: int) -> tuple[Labelled, Labelled | None]:
        """What trains and what validates: shuffled and as many of each class, or whole groups."""
        if self.held_out is not None:
            return self, self.held_out
        places = _held_out(self, seed)
        if not len(places):
            return self, None
        validates = np.zeros(len(self), bool)
        validates[places] = True
        return self.take(np.flatnonzero(~validates)), self.take(np.flatnonzero(validates))

    def take(self, places: Array) -> Labelled:
        """Some of the samples."""
        return replace(
            self,
            items=chosen(self.items, places),
            labels=self.labels[places],
            groups=None if self.groups is None else self.groups[places],
            held_out=None,
            validation=0.0,
        )

    def open(self, tensor: Tensor, how: Description, variants: int = 0, seed: int = 0) -> Lazy:
        """The samples as an array for this input, decoded as they are asked for."""
        mix = partial(mixture, samples=len(self), seed=seed) if variants > 0 and self.is_mixed else None
        return Lazy(self, tensor, how, variants, seed, mix)

    def targets(self, variants: int = 0, seed: int = 0) -> Array:
        """Labels as float rows: one-hot, several-hot or numbers; of variants that are mixed the mixture."""
        rows = self.labels
        if self.scores == "softmax":
            rows = np.eye(len(self.classes), dtype=np.float32)[self.labels]
        rows = np.asarray(rows, np.float32).reshape(len(self), -1)
        repeated = np.repeat(rows, variants, axis=0) if variants > 1 else rows
        if not variants or not self.is_mixed:
            return repeated
        partners, shares = zip(
            *(mixture(place, len(self), seed) for place in range(len(repeated))), strict=True
        )
        weight = np.array(shares, np.float32)[:, None]
        mixed: Array = weight * repeated + (1 - weight) * rows[list(partners)]
        return mixed

    @property
    def is_mixed(self) -> bool:
        """Whether each variant is laid over another sample."""
        return MIXUP in getattr(self, "augmentation", ())

    def counts(self) -> Array:
        """How many samples each class has."""
        if self.scores == "sigmoid":
            found: Array = self.labels.sum(0).astype(int)
            return found
        return np.bincount(self.labels, minlength=len(self.classes))


def _held_out(data: Labelled, seed: int) -> Array:
    """Places of the samples that validate."""
    random = np.random.default_rng([seed, len(data)])
    if data.groups is not None:
        return _whole_groups(data, random)
    if data.scores != "softmax":
        return random.permutation(len(data))[: round(len(data) * data.share)]
    places_by_class = []
    for label in range(len(data.classes)):
        places = random.permutation(np.flatnonzero(data.labels == label))
        count = floor(len(places) * data.share + 0.5)
        places_by_class.append(places[: min(count, len(places) - 1)] if len(places) > 1 else places[:0])
    return np.concatenate(places_by_class)


def _whole_groups(data: Labelled, random: np.random.Generator) -> Array:
    """Groups until the fraction is reached; at least one trains."""
    assert data.groups is not None
    names, numbers = np.unique(data.groups, return_inverse=True)
    order = random.permutation(len(names))
    sizes = np.bincount(numbers)[order].cumsum()
    wanted = data.share * len(data)
    count = int(np.argmin(abs(sizes - wanted))) + 1 if data.share else 0
    found: Array = np.flatnonzero(np.isin(numbers, order[: min(count, len(names) - 1)]))
    return found
