"""How a handler says that a node cannot be converted, and what follows for the model."""

from __future__ import annotations

from circle_train.errors import ConversionError


class Refusal(Exception):
    """Why one ONNX node cannot be expressed in Circle; the walk collects all of them."""


class Refused(ConversionError):
    """Nodes cannot be converted."""

    def __init__(self, message: str, culprits: set[str], is_unfit: bool) -> None:
        super().__init__(message)
        self.culprits, self.is_unfit = culprits, is_unfit


class Blocked(Exception):
    """No conversion as long as these symbols are open."""

    def __init__(self, failure: ConversionError, culprits: set[str]) -> None:
        super().__init__(str(failure))
        self.failure, self.culprits = failure, culprits
