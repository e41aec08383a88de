"""Optimizers by name, parameter groups, and schedules of the learning rate."""

from typing import TYPE_CHECKING

from circle_train.brought import brought

if TYPE_CHECKING:
    from circle_train.optimizers.named import BY_NAME
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

HOMES = {
    "named": ("BY_NAME",),
    "optimizer": ("Optimizer", "ParameterGroup"),
    "rules": ("Adagrad", "Adam", "AdamW", "AdamWStyle", "RMSprop", "SGD"),
}
__getattr__ = brought(__name__, HOMES)


def __dir__() -> list[str]:
    """What completion offers."""
    return sorted(__all__)
