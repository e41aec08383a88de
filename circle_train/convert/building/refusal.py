"""How a handler says that a node cannot be converted, and what follows for the model."""

from __future__ import annotations

from collections.abc import Sequence

from circle_train.errors import ConversionError
from circle_train.ir.size import Size


class Refusal(Exception):
    """Why one ONNX node cannot be expressed in Circle; the walk collects all of them."""


class Refused(ConversionError):
    """Nodes cannot be converted."""

    def __init__(self, message: str, culprits: set[str], is_unfit: bool, equations: Sequence[Size]) -> None:
        super().__init__(message)
        self.culprits, self.is_unfit, self.equations = culprits, is_unfit, equations


class Blocked(Exception):
    """No conversion as long as these symbols are open."""

    def __init__(self, failure: ConversionError, culprits: set[str]) -> None:
        super().__init__(str(failure))
        self.failure, self.culprits = failure, culprits
