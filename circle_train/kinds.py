"""A setting is of the kind that its field says, whoever wrote it: a script, a JSON file, a model."""

from __future__ import annotations

from dataclasses import fields
from math import isfinite
from typing import Any, NamedTuple

from circle_train.errors import ConfigError, shown

KINDS = {"float": "a number", "int": "a number", "bool": "true or false", "str": "a text", "None": "nothing"}
"""What a field's annotation may name, and what a person calls it."""


class Word(NamedTuple):
    """One of the alternatives that an annotation names."""

    name: str

    def allows(self, value: Any) -> bool:
        """Whether the value is of this kind; of kinds that are not plain nothing is said."""
        if self.name in ("float", "int"):
            return is_number(value, finite=self.name == "int")
        if self.name == "bool":
            return type(value).__name__ in ("bool", "bool_")
        return isinstance(value, str) if self.name == "str" else value is None


def refuse_misfits(settings: Any) -> None:
    """ConfigError naming the first field of a dataclass that is no number, text or truth value where one is meant."""
    for field in fields(settings):
        words = [word.strip() for word in str(field.type).split("|")]
        known = [Word(word) for word in words if word in KINDS]
        value = getattr(settings, field.name)
        is_plain = value is None or isinstance(value, (bool, int, float, complex, str, bytes))
        if known and (is_plain or len(known) == len(words)) and not any(word.allows(value) for word in known):
            expected = list(
                dict.fromkeys(KINDS.get(word, f"a {word.partition('[')[0].lower()}") for word in words)
            )
            raise ConfigError(
                f"{type(settings).__name__}: {field.name} is {shown(repr(value))}, expected {' or '.join(expected)}"
            )


def require_seed(seed: Any) -> None:
    """ConfigError unless random numbers can be drawn from it."""
    if isinstance(seed, bool) or not hasattr(seed, "__index__") or int(seed) < 0:
        raise ConfigError(f"seed is {shown(repr(seed))}, expected a whole number from 0")


def is_number(value: Any, finite: bool = False) -> bool:
    """Whether the value is one number that a float can hold, of whatever library."""
    if isinstance(value, (bool, str, bytes)) or not hasattr(value, "__float__"):
        return False
    try:
        return isfinite(float(value)) or not finite
    except (OverflowError, TypeError, ValueError):
        return False
