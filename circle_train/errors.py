"""Every exception of circle_train; its class says who can fix it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

from circle_train.printable import printable

LONGEST = 300
"""Characters of a foreign error, or of an operator's options, that a message quotes."""


LONGEST_MESSAGE = 1 << 14
"""Characters of a message: names and shapes that it quotes may be as long as a file."""


class CircleTrainError(Exception):
    """Base of every error that circle_train raises on purpose: one sentence on one line, whatever names it quotes."""

    def __init__(self, message: str = "") -> None:
        super().__init__(within_bounds(printable(str(message))))


class ModelError(CircleTrainError):
    """The model file or its graph is damaged or contradicts itself."""


class UnsupportedOpError(ModelError):
    """The model is sound, but holds operators that cannot do what was asked."""


class MadeForFewer(ModelError):
    """The file was made for fewer samples than it is to run, and holds their number where it cannot grow."""

    samples = 1


class ConfigError(CircleTrainError):
    """A setting is unknown, out of range, or does not fit the model."""


class DataError(CircleTrainError):
    """Inputs or labels do not fit the model."""


class CheckpointError(CircleTrainError):
    """A checkpoint is damaged or belongs to another model."""


class ConversionError(CircleTrainError):
    """A model cannot be expressed in the format that was asked for."""


FOREIGN = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    BufferError,
    LookupError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
    struct.error,
)
"""What Python and numpy raise where sizes, types and values that were read contradict each other."""


def within_bounds(message: str) -> str:
    """A message by its ends where it is too long to be read: the place stands at one, what to do at the other."""
    half = LONGEST_MESSAGE // 2
    return message if len(message) <= LONGEST_MESSAGE else f"{message[: half - 3]} … {message[-half:]}"


def shown(value: object) -> str:
    """An error or a setting as one line of bounded length."""
    text = " ".join(str(value).split()) or type(value).__name__
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} …"


@contextmanager
def refusing(kind: type[CircleTrainError], place: str, remedy: str) -> Iterator[None]:
    """What is foreign within this block was caused by what is read there: an error of this kind names the place."""
    try:
        yield
    except FOREIGN as error:
        raise kind(f"{place} contradicts itself ({shown(error)}); {remedy}") from error
