"""Data sets: arrays in memory or mapped from files, cut into batches; and streams of ready batches."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from math import floor
from typing import Any

import numpy as np

from circle_train.compile.program import Program
from circle_train.data.coercion import (
    NUMERIC,
    as_array,
    check_shape,
    coerce,
    open_shape,
    parts,
    public_name,
    to_tensor,
)
from circle_train.data.lazy import Lazy, ahead
from circle_train.data.stored import read
from circle_train.errors import ConfigError, DataError
from circle_train.ir import Tensor
from circle_train.ir.mapped import files_of, mapped
from circle_train.ir.tensor_type import Array
from circle_train.losses.loss import Loss
from circle_train.record import record

__all__ = ["Dataset", "Stream", "check_data", "coerce", "open_data", "order_of_epoch", "training_count"]

LOOKED_AT = 256
"""Samples that say what kind of numbers these are."""
Batch = tuple[Any, list[Any]]
"""Inputs, an array each unless the data set knows better, and targets."""


@record
class Dataset:
    """Inputs and targets, each array with one sample an entry of its first axis.

    Arrays keep the layout and element type they come in (a memory-mapped file stays in its file); what a
    batch takes of them is converted then.
    """

    inputs: list[Any]
    targets: list[Any]

    def __post_init__(self) -> None:
        counts = [len(array) for array in (*self.inputs, *self.targets)]
        if not counts or 0 in counts:
            raise DataError("the data are empty: give at least one sample")
        if len(set(counts)) > 1:
            own, labels = _counts(counts[: len(self.inputs)]), _counts(counts[len(self.inputs) :])
            raise DataError(f"x holds {own} samples and y {labels}; expected the same number everywhere")

    def __len__(self) -> int:
        return len(self.inputs[0])

    def take(self, indices: slice | Array) -> Batch:
        """Some samples, in the given order; a slice costs no copy."""
        for file in files_of((*self.inputs, *self.targets)):
            if (change := file.change()) is not None:
                raise DataError(f"{change}; begin again with the data as they are now")
        return [array[indices] for array in self.inputs], [array[indices] for array in self.targets]

    def split(self, fraction: float) -> tuple[Dataset, Dataset | None]:
        """The head trains, the tail (this fraction of the samples) validates."""
        count = training_count(len(self), fraction)
        if count == len(self):
            return self, None
        return Dataset(*self.take(slice(0, count))), Dataset(*self.take(slice(count, None)))

    def steps(self, batch_size: int) -> int:
        """Batches in an epoch."""
        return -(-len(self) // batch_size)

    def batches(self, batch_size: int, order: Array | None = None, start: int = 0) -> Iterator[Batch]:
        """The batches of one epoch from the start-th; the last may be smaller and counts as such."""
        cuts = (
            slice(step * batch_size, (step + 1) * batch_size) for step in range(start, self.steps(batch_size))
        )
        chosen = (cut if order is None else order[cut] for cut in cuts)
        return ahead(self.take, chosen) if self.is_decoded else map(self.take, chosen)

    @property
    def is_decoded(self) -> bool:
        """Whether samples are read from files when they are taken."""
        return any(isinstance(array, Lazy) for array in self.inputs)

    def begin_epoch(self, number: int) -> None:
        """Samples that are varied in each epoch are now those of this one."""
        for array in self.inputs:
            if isinstance(array, Lazy):
                array.epoch = number


@record
class Stream:
    """An iterable of (inputs, targets) batches, walked once an epoch."""

    source: Iterable[Any]
    inputs: Sequence[Tensor]
    targets: Sequence[Tensor]

    def split(self, fraction: float) -> tuple[Stream, None]:
        if fraction:
            raise DataError(
                f"validation_split is {fraction}, but a stream cannot be split; give validation_data"
            )
        return self, None

    def steps(self, batch_size: int) -> int | None:
        """Batches in an epoch, where the source knows."""
        return len(self.source) if isinstance(self.source, Sized) else None

    def begin_epoch(self, number: int) -> None:
        """The source knows by itself."""

    def batches(self, batch_size: int, order: Array | None = None, start: int = 0) -> Iterator[Batch]:
        """The source's batches as they come; `order` and sizes are the source's own."""
        count = 0
        for count, item in enumerate(self.source, 1):
            if count > start:
                yield self._batch(item, count)
        if not count:
            raise DataError(
                "the stream gave no batch; give a list or a loader, as a generator can be walked only once"
            )

    def _batch(self, item: Any, count: int) -> Batch:
        place = f"batch {count} of the stream"
        wants_labels = any(0 not in target.shape[1:] for target in self.targets)
        if isinstance(item, (tuple, list)) and len(item) == 2 and wants_labels:
            return parts(item[0], self.inputs, f"{place}: x"), parts(item[1], self.targets, f"{place}: y")
        if wants_labels:
            raise DataError(f"{place} is a {type(item).__name__}, expected a pair (x, y)")
        return parts(item, self.inputs, f"{place}: x"), parts(None, self.targets, "y") if self.targets else []


def open_data(x: Any, y: Any, inputs: Sequence[Tensor], targets: Sequence[Tensor]) -> Dataset | Stream:
    """Arrays, paths, data sets or streams as something that gives batches; checked as far as possible.

    `targets` is empty where no labels are wanted. The size of the tensors' first axis does not matter.
    """
    if isinstance(x, (Dataset, Stream)):
        return x
    wants_labels = any(0 not in target.shape[1:] for target in targets)
    if y is None and wants_labels and _is_path(x):
        x, y = _both(read(x, [*inputs, *targets]), x)
    if y is None and _is_stream(x, wants_labels):
        return Stream(x, inputs, targets)
    if wants_labels and y is None:
        raise DataError("y is missing: give labels, or an iterable of (x, y) batches")
    given = _arrays(x, inputs, "x")
    labels = _arrays(y, targets, "y") if targets else []
    return Dataset(given, [_ready(label, t, len(given[0])) for label, t in zip(labels, targets, strict=True)])


def check_data(data: Dataset | Stream, program: Program, losses: Sequence[Loss], passes: int = 1) -> None:
    """Refuse before the first step what some later one would refuse: labels, a stream that ends too soon."""
    if isinstance(data, Stream):
        if passes > 1 and isinstance(data.source, Iterator):
            found = f"the stream is a {type(data.source).__name__}, which can be walked only once"
            raise DataError(f"{found}, expected {passes} epochs of batches; give a list or a loader")
        return
    for array, target, loss, output in zip(
        data.targets, program.targets, losses, program.outputs, strict=True
    ):
        loss.check_target(_converted(array, target), output.type)


def training_count(samples: int, fraction: float) -> int:
    """How many samples train when this fraction validates: 0.2 of 1000 leave 800, 0.9 of 10 leave 1."""
    if not 0 <= fraction < 1:
        raise ConfigError(f"validation_split is {fraction}, expected a number from 0 to less than 1")
    count = floor(round(samples * (1 - fraction), 6))
    if not count:
        raise DataError(
            f"validation_split {fraction} of {samples} samples leaves none to train; split off less"
        )
    return count


def order_of_epoch(samples: int, seed: int, epoch: int) -> Array:
    """The shuffled order: a function of seed and epoch alone, so that training can be resumed anywhere."""
    return np.random.default_rng([seed, epoch]).permutation(samples)


def _both(content: Any, path: Any) -> tuple[Any, Any]:
    """Inputs and labels that one file holds under the names x and y."""
    if isinstance(content, Mapping) and set(content) == {"x", "y"}:
        return content["x"], content["y"]
    raise DataError(
        f"y is missing and '{path}' does not hold just the arrays 'x' and 'y'; give the labels as y"
    )


def _arrays(value: Any, tensors: Sequence[Tensor], what: str) -> list[Any]:
    """Arrays in order, their shapes and element types checked, their contents untouched."""
    if _is_path(value):
        value = read(value, tensors)
    arrays = []
    for part, tensor in zip(parts(value, tensors, what), tensors, strict=True):
        content = read(part, [tensor]) if _is_path(part) else part
        place = f"{what}: '{public_name(tensor)}'"
        array = content if _is_array(content) else as_array(content, place)
        if not array.ndim:
            raise DataError(f"{place} is a single number, expected an array of samples")
        if len(array):
            check_shape(array.shape, tensor, what, any_count=True)
        if what == "x" and tensor.dtype.is_float:
            _warn_of_bytes(array, place)
        arrays.append(array)
    return arrays


def _warn_of_bytes(array: Array, place: str) -> None:
    """Pixels or quantised numbers become the floats of the same size, which few models were made for."""
    if array.dtype not in (np.int8, np.uint8):
        return
    some = np.asarray(array[:LOOKED_AT])
    low, high = int(some.min(initial=0)), int(some.max(initial=0))
    if max(-low, high) > 1:
        warnings.warn(
            f"{place} takes floats and is given {array.dtype} of {low} … {high} as they are; scale them first, "
            "(x - offset) / scale, or give x.astype('float32') if that is meant",
            stacklevel=6,
        )


def _ready(labels: Array, target: Tensor, samples: int) -> Array:
    """Labels in memory as the program wants them; those that nobody wants in the right number."""
    if 0 in target.shape[1:]:
        return np.empty((samples, *target.shape[1:]), target.dtype.numpy)
    return labels if mapped(labels) is not None else _converted(labels, target)


def _converted(labels: Array, target: Tensor) -> Array:
    """All labels as the program wants those of a batch."""
    whole = target.type.with_shape((len(labels), *open_shape(target)[1:]))
    return to_tensor(labels, Tensor(target.name, whole), "y")


def _is_array(value: Any) -> bool:
    return type(value) in (np.ndarray, np.memmap) and value.dtype.kind in NUMERIC


def _is_path(value: Any) -> bool:
    return isinstance(value, (str, os.PathLike))


def _is_stream(value: Any, in_pairs: bool) -> bool:
    """Iterators, data loaders, lists of (x, y) pairs: not an array, nor what becomes one."""
    if isinstance(value, (np.ndarray, Mapping)) or hasattr(value, "__array__") or _is_path(value):
        return False
    if isinstance(value, (list, tuple)):
        return in_pairs and bool(value) and all(isinstance(item, tuple) and len(item) == 2 for item in value)
    return hasattr(value, "__iter__") or hasattr(value, "__getitem__")


def _counts(counts: Sequence[int]) -> str:
    return ", ".join(map(str, dict.fromkeys(counts))) or "none"
