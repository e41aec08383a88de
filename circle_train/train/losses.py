"""Losses by name: regression, classification, and a user's own."""

from __future__ import annotations

import numpy as np

from circle_train.ir import DType, TensorType
from circle_train.ir.graph import constant
from circle_train.record import record
from circle_train.train.cross_entropy import (
    BinaryCrossentropy,
    CategoricalCrossentropy,
    CrossEntropyLoss,
    SparseCategoricalCrossentropy,
)
from circle_train.train.custom_loss import Custom, Joint, Traced, TracedJoint, custom, trace, trace_jointly
from circle_train.train.loss import Loss, Reduction, Sum
from circle_train.train.symbol import Symbol

__all__ = [
    "BinaryCrossentropy",
    "CategoricalCrossentropy",
    "CrossEntropyLoss",
    "Custom",
    "Huber",
    "Joint",
    "Loss",
    "MeanAbsoluteError",
    "MeanSquaredError",
    "PassThrough",
    "Reduction",
    "SparseCategoricalCrossentropy",
    "Sum",
    "Symbol",
    "Traced",
    "TracedJoint",
    "Unused",
    "custom",
    "trace",
    "trace_jointly",
]


@record
class MeanSquaredError(Loss):
    """(output - target)², averaged over each sample."""

    elementwise = True

    def values(self, output: Symbol, target: Symbol) -> tuple[Symbol, Symbol | None]:
        return output.apply("SQUARED_DIFFERENCE", target), None


@record
class MeanAbsoluteError(Loss):
    """|output - target|, averaged over each sample."""

    elementwise = True

    def values(self, output: Symbol, target: Symbol) -> tuple[Symbol, Symbol | None]:
        return abs(output - target), None


@record
class Huber(Loss):
    """½e² where |e| ≤ delta, delta·(|e| - ½delta) beyond, averaged over each sample."""

    delta: float = 1.0
    elementwise = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("delta", 0 < self.delta < float("inf"), "a positive number")

    def values(self, output: Symbol, target: Symbol) -> tuple[Symbol, Symbol | None]:
        error = abs(output - target)
        near = error.minimum(self.delta)
        return near * (error - near * 0.5), None


@record
class PassThrough(Loss):
    """The output is a loss that the model itself computes; it takes no labels."""

    elementwise = True

    def target_type(self, output: TensorType) -> TensorType:
        return no_labels(output)

    def values(self, output: Symbol, target: Symbol) -> tuple[Symbol, Symbol | None]:
        return output, None


@record
class Unused(Loss):
    """An output that no loss is taken of; it takes no labels."""

    def target_type(self, output: TensorType) -> TensorType:
        return no_labels(output)

    def __call__(self, output: Symbol, target: Symbol) -> Symbol:
        return Symbol(output.graph, constant(np.zeros((), np.float32), "unused"))


def no_labels(output: TensorType) -> TensorType:
    """Labels without elements, which nobody has to give."""
    return TensorType(DType.FLOAT32, (*(output.shape[:1] or (1,)), 0))


BY_NAME: dict[str, type[Loss]] = {
    "mean_squared_error": MeanSquaredError,
    "mse": MeanSquaredError,
    "mean_absolute_error": MeanAbsoluteError,
    "mae": MeanAbsoluteError,
    "l1": MeanAbsoluteError,
    "huber": Huber,
    "categorical_crossentropy": CategoricalCrossentropy,
    "sparse_categorical_crossentropy": SparseCategoricalCrossentropy,
    "binary_crossentropy": BinaryCrossentropy,
    "pass_through": PassThrough,
    "unused": Unused,
}
