"""Every rule of this package, by its name in small letters: their modules are imported here."""

from collections.abc import Iterator

from circle_train.brought import bring_all
from circle_train.optimizers.optimizer import Optimizer

bring_all("circle_train.optimizers")


def _rules(base: type[Optimizer]) -> Iterator[type[Optimizer]]:
    """Those of this package that derive from this one; other people's are given as objects."""
    for rule in base.__subclasses__():
        if rule.__module__.startswith("circle_train.optimizers."):
            yield rule
            yield from _rules(rule)


BY_NAME: dict[str, type[Optimizer]] = {rule.__name__.lower(): rule for rule in _rules(Optimizer)}
