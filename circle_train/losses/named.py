"""Losses by the names that configs, files and the command line call them."""

from circle_train.losses.cross_entropy import (
    BinaryCrossentropy,
    CategoricalCrossentropy,
    SparseCategoricalCrossentropy,
)
from circle_train.losses.loss import Loss
from circle_train.losses.regression import Huber, MeanAbsoluteError, MeanSquaredError, PassThrough, Unused

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
