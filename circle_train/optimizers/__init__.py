"""Optimizers by name, parameter groups, and schedules of the learning rate."""

import pkgutil
from collections.abc import Iterator
from importlib import import_module

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

for _module in pkgutil.iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)


def _rules(base: type[Optimizer]) -> Iterator[type[Optimizer]]:
    for rule in base.__subclasses__():
        yield rule
        yield from _rules(rule)


BY_NAME: dict[str, type[Optimizer]] = {rule.__name__.lower(): rule for rule in _rules(Optimizer)}
"""Every rule of this package, by its name in small letters."""


def __dir__() -> list[str]:
    """What completion offers."""
    return sorted(__all__)
