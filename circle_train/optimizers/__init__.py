"""Optimizers by name, parameter groups, and schedules of the learning rate."""

from circle_train.optimizers.optimizer import Optimizer, ParameterGroup
from circle_train.optimizers.rules import SGD, Adagrad, Adam, AdamW, AdamWStyle, RMSprop

__all__ = [
    "BY_NAME",
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "AdamWStyle",
    "Optimizer",
    "ParameterGroup",
    "RMSprop",
]

BY_NAME: dict[str, type[Optimizer]] = {
    "sgd": SGD,
    "adam": Adam,
    "adamw": AdamW,
    "rmsprop": RMSprop,
    "adagrad": Adagrad,
}
