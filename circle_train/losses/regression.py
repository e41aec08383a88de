"""Losses of differences, and of outputs that need none."""

from __future__ import annotations

import numpy as np

from circle_train.ir import DType, TensorType
from circle_train.ir.graph import constant
from circle_train.losses.loss import Loss
from circle_train.losses.symbol import Symbol
from circle_train.record import record


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
    """Up to this difference the loss is a square, beyond it a line."""
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
