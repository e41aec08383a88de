"""What is measured over the data: `from circle_train.metrics import F1`."""

from circle_train.fitting.metrics.averages import (
    Accuracy,
    BinaryAccuracy,
    CategoricalAccuracy,
    MeanAbsoluteError,
    MeanSquaredError,
    Metric,
    RootMeanSquaredError,
    SparseCategoricalAccuracy,
    SparseTopKCategoricalAccuracy,
    TopKCategoricalAccuracy,
)
from circle_train.fitting.metrics.by_class import AUC, F1, ByClass, Precision, Recall, confusion_matrix
from circle_train.fitting.metrics.scores import BY_NAME, Scores

__all__ = [
    "AUC",
    "BY_NAME",
    "F1",
    "Accuracy",
    "BinaryAccuracy",
    "ByClass",
    "CategoricalAccuracy",
    "MeanAbsoluteError",
    "MeanSquaredError",
    "Metric",
    "Precision",
    "Recall",
    "RootMeanSquaredError",
    "Scores",
    "SparseCategoricalAccuracy",
    "SparseTopKCategoricalAccuracy",
    "TopKCategoricalAccuracy",
    "confusion_matrix",
]


def __dir__() -> list[str]:
    return sorted(__all__)
