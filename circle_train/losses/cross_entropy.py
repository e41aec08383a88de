"""Losses of probabilities or logits: categorical, sparse categorical and binary cross-entropy."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from circle_train.errors import ConfigError, DataError
from circle_train.ir import DType, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ir.tensor_type import Array
from circle_train.kinds import is_number
from circle_train.losses.loss import Loss, Reduction
from circle_train.losses.normalized import (
    Probabilities,
    look_like_probabilities,
    look_like_rows,
    rows_of,
    single_ones,
)
from circle_train.losses.symbol import Symbol
from circle_train.ops.internal.loss import (
    BinaryCrossEntropy,
    CrossEntropy,
    SigmoidCrossEntropy,
    SoftmaxCrossEntropy,
    SparseCrossEntropy,
    SparseSoftmaxCrossEntropy,
)
from circle_train.printable import printable
from circle_train.record import record

ClassWeights = Sequence[float] | Mapping[int, float]


@record
class CrossEntropyLoss(Loss):
    """Base of the losses that take probabilities or logits; `from_logits=None` lets the graph decide.

    A model whose output comes from `normalizer`, through whatever changes no value, gives probabilities. The loss is then
    taken from what that operator was given: the same number, without a logarithm of something rounded to zero. Where the
    graph does not tell and the first batch's values look like probabilities, a warning says so.
    """

    from_logits: bool | None = None
    """Whether outputs are logits; None: the model's end says so."""
    normalizer = "SOFTMAX"
    few: ClassVar[int] = 2
    """Numbers that may look like probabilities by chance."""

    def takes_logits(self, output: Tensor) -> bool:
        """Whether the output's values are taken as logits."""
        return self.normalized(output) is None if self.from_logits is None else self.from_logits

    def normalized(self, output: Tensor) -> Probabilities | None:
        """What the graph says of probabilities."""
        return rows_of(output)

    def logits(self, output: Symbol) -> Symbol | None:
        """The logits to take the loss of, or None: the output itself holds probabilities."""
        found = self.normalized(output.tensor)
        if self.takes_logits(output.tensor):
            if found is not None:
                self._warn(output.tensor, f"ends in {self.normalizer}, which is applied a second time")
            elif self.from_logits is None and single_ones(output.tensor) is not None:
                self._warn(output.tensor, f"is a rearranged {self.normalizer}, but taken as logits")
            return output
        if found is None and single_ones(output.tensor) is None:
            self._warn(output.tensor, f"does not end in {self.normalizer}, but is taken as probabilities")
        if found is None or found.logits is None:
            return None
        before = Symbol(output.graph, found.logits).as_float()
        before = before if before.shape == output.shape else before.reshape(*output.shape)
        return before if found.beta == 1.0 else before * found.beta

    def look_at(self, output: Tensor, values: Array) -> None:
        doubtful = self.from_logits is None and values.size >= self.few and self.normalized(output) is None
        if doubtful and self._look_normal(values):
            self._warn(
                output, "is taken as logits, but the first batch's values are what probabilities look like"
            )

    def _look_normal(self, values: Array) -> bool:
        return look_like_rows(values)

    def _warn(self, output: Tensor, what: str) -> None:
        given = "left open" if self.from_logits is None else self.from_logits
        place = f"{type(self).__name__}: output '{printable(output.name)}'"
        warnings.warn(f"{place} {what}; from_logits is {given}, set it as it is meant", stacklevel=2)


@record
class ClassLoss(CrossEntropyLoss):
    """Base of the cross-entropies over classes, which are the output's last axis.

    With class weights w an item counts w[its class] times, also in the mean: as in PyTorch for class numbers. A one-hot row,
    or any other distribution t, counts Σ t·w times, so that it gives what its class number gives; PyTorch divides the mean
    over such rows by their number instead.
    """

    label_smoothing: float = 0.0
    """The share of each label that goes to all classes alike."""
    class_weights: ClassWeights | None = None
    """How much a sample counts by its class: a number for each, or some by class number."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("label_smoothing", 0 <= self.label_smoothing < 1, "in [0, 1)")
        if self.class_weights is not None:
            given = self.class_weights
            weights = given.values() if isinstance(given, Mapping) else given
            self._require(
                "class_weights",
                all(is_number(w) and 0 <= w < float("inf") for w in weights),
                "numbers from 0",
            )
            if not isinstance(given, Mapping):
                object.__setattr__(self, "class_weights", tuple(self.class_weights))

    def target_type(self, output: TensorType) -> TensorType:
        if output.rank < 2:
            found = f"{type(self).__name__}: an output of {output} has no axis of classes"
            raise ConfigError(f"{found}, expected samples × classes")
        return super().target_type(output)

    def dense(self, output: Symbol, target: Symbol) -> Symbol:
        """-Σ target·log p of smoothed and weighted targets."""
        if self.label_smoothing:
            target = target * (1 - self.label_smoothing) + self.label_smoothing / output.shape[-1]
        if self.class_weights is not None:
            target = target * self.weights_of(output)
        logits = self.logits(output)
        return (
            output.apply(CrossEntropy(), target)
            if logits is None
            else logits.apply(SoftmaxCrossEntropy(), target)
        )

    def weights_of(self, output: Symbol) -> Symbol:
        """The weight of each class as a constant."""
        weights = self.numbers_of(output.shape[-1], f" of output '{printable(output.tensor.name)}'")
        return Symbol(output.graph, constant(weights, "class_weights"))

    def numbers_of(self, classes: int, where: str = "") -> Array:
        """The weight of each class."""
        given = self.class_weights
        place = f"class_weights of {type(self).__name__}"
        if isinstance(given, Mapping):
            if unknown := [c for c in given if not 0 <= c < classes]:
                raise ConfigError(f"{place} names class {unknown[0]}, expected 0 … {classes - 1}")
            given = [given.get(c, 1.0) for c in range(classes)]
        if given is None or len(given) != classes:
            found = f"{len(given or ())} numbers for the {classes} classes{where}"
            raise ConfigError(f"{place}: {found}; give one for each class")
        return np.array(given, np.float32)


@record
class CategoricalCrossentropy(ClassLoss):
    """-Σ target·log p over the last axis; targets are one-hot or any distribution."""

    def weight_of(self, target: Array, classes: int) -> float | None:
        if self.class_weights is None or self.reduction is not Reduction.MEAN:
            return None
        rows = np.asarray(target, np.float64).reshape(-1, classes)
        return float((rows @ self.numbers_of(classes)).sum())

    def values(self, output: Symbol, target: Symbol) -> tuple[Symbol, Symbol | None]:
        if self.class_weights is None:
            return self.dense(output, target), None
        return self.dense(output, target), (target * self.weights_of(output)).sum(len(output.shape) - 1)


@record
class SparseCategoricalCrossentropy(ClassLoss):
    """-log p[label]; labels are class numbers. Items labelled `ignore_index` count nothing."""

    ignore_index: int | None = None
    """A label that stands for no class: such samples count for nothing."""

    def target_type(self, output: TensorType) -> TensorType:
        super().target_type(output)
        return TensorType(DType.INT32, output.shape[:-1])

    def check_target(self, target: Array, output: TensorType) -> None:
        classes = output.shape[-1]
        if not target.size or np.maximum.reduce(target.view(np.uint32), None) < classes:
            return
        bad = (target < 0) | (target >= classes)
        if self.ignore_index is not None:
            bad &= target != self.ignore_index
        if bad.any():
            position = tuple(map(int, np.argwhere(bad)[0]))
            at = position[0] if len(position) == 1 else position
            also = "" if self.ignore_index is None else f", or {self.ignore_index} to ignore the item"
            raise DataError(f"label {target[position]} at position {at}: expected 0 … {classes - 1}{also}")

    @property
    def ignored(self) -> int | None:
        return self.ignore_index

    def weight_of(self, target: Array, classes: int) -> float | None:
        is_weighted = self.class_weights is not None or self.ignore_index is not None
        if not is_weighted or self.reduction is not Reduction.MEAN:
            return None
        labels = np.asarray(target).reshape(-1)
        labels = labels[labels != self.ignore_index].astype(np.intp)
        if self.class_weights is None:
            return float(labels.size)
        return float(self.numbers_of(classes)[labels.clip(0, classes - 1)].sum(dtype=np.float64))

    def values(self, output: Symbol, target: Symbol) -> tuple[Symbol, Symbol | None]:
        weights = self._weights(output, target)
        if self.label_smoothing:
            classes = constant(np.array(output.shape[-1], np.int32), "classes")
            hot = target.apply("ONE_HOT", classes, np.array(1, np.float32), np.array(0, np.float32), axis=-1)
            values = self.dense(output, hot)
            counts = self._counts(target)
            return values if counts is None else values * counts, weights
        logits = self.logits(output)
        if logits is None:
            values = output.apply(SparseCrossEntropy(), target)
        else:
            values = logits.apply(SparseSoftmaxCrossEntropy(), target)
        return values if weights is None else values * weights, weights

    def _weights(self, output: Symbol, target: Symbol) -> Symbol | None:
        """Each item's weight: that of its class, 0 where it is ignored."""
        counts = self._counts(target)
        if self.class_weights is None:
            return counts
        inside = target.clip(0, output.shape[-1] - 1)
        weights = self.weights_of(output).gather(inside)
        return weights if counts is None else weights * counts

    def _counts(self, target: Symbol) -> Symbol | None:
        """1 for an item that counts, 0 for one that is ignored."""
        if self.ignore_index is None:
            return None
        return target.apply("NOT_EQUAL", np.array(self.ignore_index, np.int32)).as_float()


@record
class BinaryCrossentropy(CrossEntropyLoss):
    """-(pos_weight·t·log p + (1-t)·log(1-p))·weight of targets t, averaged over each sample."""

    pos_weight: Sequence[float] | float | None = None
    """How much more a label of one counts than one of zero: for all outputs or for each."""
    weight: Sequence[float] | float | None = None
    """How much each output counts."""
    elementwise = True
    normalizer = "LOGISTIC"
    few = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("pos_weight", "weight"):
            value = getattr(self, name)
            if value is not None:
                self._require(name, bool(np.all(np.asarray(value, np.float64) >= 0)), "numbers from 0")
            if isinstance(value, (list, np.ndarray)):
                object.__setattr__(self, name, tuple(value))

    def normalized(self, output: Tensor) -> Probabilities | None:
        return single_ones(output)

    def _look_normal(self, values: Array) -> bool:
        return look_like_probabilities(values)

    def check_target(self, target: Array, output: TensorType) -> None:
        if target.size and not (target.min() >= 0 and target.max() <= 1) and not np.isnan(target).any():
            worst = float(target.flat[int(np.abs(target - 0.5).argmax())])
            raise DataError(f"BinaryCrossentropy: a target is {worst:g}, expected numbers from 0 to 1")

    def values(self, output: Symbol, target: Symbol) -> tuple[Symbol, Symbol | None]:
        extra = () if self.pos_weight is None else (self._constant("pos_weight", output),)
        logits = self.logits(output)
        if logits is None:
            values = output.apply(BinaryCrossEntropy(), target, *extra)
        else:
            values = logits.apply(SigmoidCrossEntropy(), target, *extra)
        return values if self.weight is None else values * Symbol(
            output.graph, self._constant("weight", output)
        ), None

    def _constant(self, name: str, output: Symbol) -> Tensor:
        """A setting as a constant that broadcasts against the output."""
        array = np.array(getattr(self, name), np.float32)
        try:
            fits = np.broadcast_shapes(array.shape, output.shape) == output.shape
        except ValueError:
            fits = False
        self._require(name, fits, f"a number, or one for each of the output's {output.shape[-1:]}")
        return constant(array, name)
