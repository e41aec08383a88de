"""Losses: each adds the nodes that compute one number per item of the batch, and reduces them."""

from __future__ import annotations

import enum
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from circle_train.errors import ConfigError
from circle_train.ir import DType, Graph, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ops.loss import (
    CrossEntropy,
    SigmoidCrossEntropy,
    SoftmaxCrossEntropy,
    SparseCrossEntropy,
    SparseSoftmaxCrossEntropy,
)
from circle_train.train.symbol import Symbol


class Reduction(enum.Enum):
    """How the losses of the items become one number; `none` reports each and trains on their sum."""

    MEAN = "mean"
    SUM = "sum"
    NONE = "none"


@dataclass(frozen=True)
class Loss:
    """Base: `items` adds nodes for one loss per item, and the items' weights where they are not all one."""

    reduction: Reduction | str = Reduction.MEAN

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "reduction", Reduction(self.reduction))
        except ValueError:
            raise ConfigError(
                f"{type(self).__name__}: reduction is {self.reduction!r}, expected 'mean', 'sum' or 'none'"
            ) from None

    def target_type(self, output: TensorType) -> TensorType:
        """What the labels of this output must look like."""
        return TensorType(DType.FLOAT32, output.shape)

    def items(self, output: Symbol, target: Symbol) -> tuple[Symbol, Symbol | None]:
        raise NotImplementedError(f"{type(self).__name__} has no items")

    def add_to(self, graph: Graph, output: Tensor, target: Tensor) -> Tensor:
        """Append the loss's nodes; the reduced loss."""
        items, weights = self.items(Symbol(graph, output), Symbol(graph, target))
        if weights is not None:
            items = items * weights
        if self.reduction is Reduction.NONE:
            return items.tensor
        total = items.mean() if self.reduction is Reduction.MEAN and weights is None else items.sum()
        if self.reduction is Reduction.MEAN and weights is not None:
            total = total / weights.sum().maximum(float(np.finfo(np.float32).tiny))
        return total.tensor


def per_sample_mean(values: Symbol) -> Symbol:
    """The mean over everything but the batch, so that a sum over the batch means what ONERT and Keras mean."""
    return values.mean(tuple(range(1, len(values.shape))))


@dataclass(frozen=True)
class MeanSquaredError(Loss):
    """(output - target)², averaged over each sample."""

    def items(self, output: Symbol, target: Symbol) -> tuple[Symbol, Symbol | None]:
        return per_sample_mean(output.apply("SQUARED_DIFFERENCE", target)), None


@dataclass(frozen=True)
class MeanAbsoluteError(Loss):
    """|output - target|, averaged over each sample."""

    def items(self, output: Symbol, target: Symbol) -> tuple[Symbol, Symbol | None]:
        return per_sample_mean(abs(output - target)), None


@dataclass(frozen=True)
class Huber(Loss):
    """½e² where |e| ≤ delta, delta·(|e| - ½delta) beyond, averaged over each sample."""

    delta: float = 1.0

    def items(self, output: Symbol, target: Symbol) -> tuple[Symbol, Symbol | None]:
        error = abs(output - target)
        near = error.minimum(self.delta)
        return per_sample_mean(near * (error - near * 0.5)), None


@dataclass(frozen=True)
class CrossEntropyLoss(Loss):
    """Base of the losses that take probabilities or logits; `from_logits=None` lets the graph decide.

    A model whose output comes from `normalizer` gives probabilities. The loss is then taken from what that operator
    was given: the same number, without a logarithm of something rounded to zero.
    """

    from_logits: bool | None = None
    normalizer = "SOFTMAX"

    def logits(self, output: Symbol) -> Symbol | None:
        """The logits to take the loss of, or None: the output itself holds probabilities."""
        producer = output.tensor.producer
        normalized = producer is not None and producer.op.name == self.normalizer
        if self.from_logits is None and not normalized:
            return output
        if self.from_logits:
            if normalized:
                self._warn(output, f"ends in {self.normalizer}, from_logits=True applies it a second time")
            return output
        if normalized and producer is not None and getattr(producer.op, "beta", 1.0) == 1.0:
            return Symbol(output.graph, producer.inputs[0])  # type: ignore[arg-type]
        if not normalized:
            self._warn(output, f"does not end in {self.normalizer}, from_logits=False takes its values as probabilities")
        return None

    def _warn(self, output: Symbol, what: str) -> None:
        warnings.warn(f"{type(self).__name__}: output '{output.tensor.name}' {what}; leave from_logits unset", stacklevel=2)


@dataclass(frozen=True)
class CategoricalCrossentropy(CrossEntropyLoss):
    """-Σ target·log p over the last axis; targets are one-hot or any distribution."""

    label_smoothing: float = 0.0
    class_weights: Sequence[float] | None = None

    def items(self, output: Symbol, target: Symbol) -> tuple[Symbol, Symbol | None]:
        weights = None
        if self.class_weights is not None:
            weights = (target * class_weights(self.class_weights, output)).sum(-1 + len(output.shape))
        if self.label_smoothing:
            target = target * (1 - self.label_smoothing) + self.label_smoothing / output.shape[-1]
        logits = self.logits(output)
        items = output.apply(CrossEntropy(), target) if logits is None else logits.apply(SoftmaxCrossEntropy(), target)
        return items, weights


@dataclass(frozen=True)
class SparseCategoricalCrossentropy(CrossEntropyLoss):
    """-log p[label]; labels are class numbers. Items labelled `ignore_index` count nothing, not even in the mean."""

    ignore_index: int | None = None
    class_weights: Sequence[float] | None = None

    def target_type(self, output: TensorType) -> TensorType:
        return TensorType(DType.INT32, output.shape[:-1])

    def items(self, output: Symbol, target: Symbol) -> tuple[Symbol, Symbol | None]:
        logits = self.logits(output)
        weights = self._weights(output, target)
        if logits is None:
            return output.apply(SparseCrossEntropy(), target), weights
        return logits.apply(SparseSoftmaxCrossEntropy(), target), weights

    def _weights(self, output: Symbol, target: Symbol) -> Symbol | None:
        if self.ignore_index is None and self.class_weights is None:
            return None
        classes = output.shape[-1]
        of_class = class_weights(self.class_weights or [1.0] * classes, output)
        if self.ignore_index is not None:
            counted = target.apply("NOT_EQUAL", np.array(self.ignore_index, np.int32))
            counts = counted.apply("CAST", in_data_type=DType.BOOL, out_data_type=DType.FLOAT32)
            inside = target.apply("MAXIMUM", np.array(0, np.int32)).apply("MINIMUM", np.array(classes - 1, np.int32))
            return Symbol(target.graph, of_class).apply("GATHER", inside, axis=0) * counts
        return Symbol(target.graph, of_class).apply("GATHER", target, axis=0)


@dataclass(frozen=True)
class BinaryCrossentropy(CrossEntropyLoss):
    """-(target·log p + (1-target)·log(1-p)), averaged over each sample; stable at any logit."""

    pos_weight: Sequence[float] | float | None = None
    weight: Sequence[float] | float | None = None
    normalizer = "LOGISTIC"

    def items(self, output: Symbol, target: Symbol) -> tuple[Symbol, Symbol | None]:
        logits = self.logits(output)
        if logits is None:
            clipped = output.maximum(1e-7).minimum(1 - 1e-7)
            positive = clipped.log() * target
            if self.pos_weight is not None:
                positive = positive * _constant(self.pos_weight)
            values = -(positive + (1 - clipped).log() * (1 - target))
        else:
            extra = () if self.pos_weight is None else (_constant(self.pos_weight),)
            values = logits.apply(SigmoidCrossEntropy(), target, *extra)
        if self.weight is not None:
            values = values * _constant(self.weight)
        return per_sample_mean(values), None


def class_weights(values: Sequence[float], output: Symbol) -> Tensor:
    """The weights as a constant, one for each class."""
    if len(values) != output.shape[-1]:
        raise ConfigError(
            f"class_weights: {len(values)} values for the {output.shape[-1]} classes of output "
            f"'{output.tensor.name}'; give one weight a class"
        )
    return constant(np.array(values, np.float32), "class_weights")


def _constant(value: Sequence[float] | float) -> Any:
    return constant(np.array(value, np.float32))


BY_NAME: dict[str, type[Loss]] = {
    "mean_squared_error": MeanSquaredError,
    "mse": MeanSquaredError,
    "mean_absolute_error": MeanAbsoluteError,
    "mae": MeanAbsoluteError,
    "huber": Huber,
    "categorical_crossentropy": CategoricalCrossentropy,
    "sparse_categorical_crossentropy": SparseCategoricalCrossentropy,
    "binary_crossentropy": BinaryCrossentropy,
}
