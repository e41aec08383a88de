"""How a handler says that a node cannot be converted."""

from __future__ import annotations


class Refusal(Exception):
    """Why one ONNX node cannot be expressed in Circle; the walk collects all of them."""
