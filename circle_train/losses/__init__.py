"""Losses by name: regression, classification, and a user's own."""

from typing import TYPE_CHECKING

from circle_train.brought import brought

if TYPE_CHECKING:
    from circle_train.losses.cross_entropy import (
        BinaryCrossentropy,
        CategoricalCrossentropy,
        CrossEntropyLoss,
        SparseCategoricalCrossentropy,
    )
    from circle_train.losses.custom_loss import (
        Custom,
        Joint,
        Traced,
        TracedJoint,
        custom,
        trace,
        trace_jointly,
    )
    from circle_train.losses.loss import Loss, Reduction, Sum
    from circle_train.losses.named import BY_NAME
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

HOMES = {
    "cross_entropy": (
        "BinaryCrossentropy",
        "CategoricalCrossentropy",
        "CrossEntropyLoss",
        "SparseCategoricalCrossentropy",
    ),
    "custom_loss": ("Custom", "Joint", "Traced", "TracedJoint", "custom", "trace", "trace_jointly"),
    "loss": ("Loss", "Reduction", "Sum"),
    "named": ("BY_NAME",),
    "regression": ("Huber", "MeanAbsoluteError", "MeanSquaredError", "PassThrough", "Unused"),
    "symbol": ("Symbol",),
}
__getattr__ = brought(__name__, HOMES)


def __dir__() -> list[str]:
    """What completion offers."""
    return sorted(__all__)
