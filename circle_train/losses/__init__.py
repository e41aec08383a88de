"""Losses by name: regression, classification, and a user's own."""

from circle_train.losses.cross_entropy import (
    BinaryCrossentropy,
    CategoricalCrossentropy,
    CrossEntropyLoss,
    SparseCategoricalCrossentropy,
)
from circle_train.losses.custom_loss import Custom, Joint, Traced, TracedJoint, custom, trace, trace_jointly
from circle_train.losses.loss import Loss, Reduction, Sum
from circle_train.losses.regression import Huber, MeanAbsoluteError, MeanSquaredError, PassThrough, Unused
from circle_train.losses.symbol import Symbol

__all__ = [
    "BY_NAME",
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


def __dir__() -> list[str]:
    """What completion offers."""
    return sorted(__all__)
