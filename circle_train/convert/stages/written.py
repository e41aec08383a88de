"""What a small ONNX file may become: functions call functions twice each, loops run loops."""

from __future__ import annotations

from circle_train.convert.building.refusal import Refusal
from circle_train.convert.onnx_file.protobuf import DEEPEST
from circle_train.errors import CircleTrainError

MOST_WRITTEN = 1 << 16
"""Nodes of functions and loops, as often as they are called and run."""


class Endless(CircleTrainError):
    """There is more to write out than any model has; other examples of its sizes would not help."""


class Written:
    """Counts the nodes that stand in functions, branches and loops."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, count: int, depth: int) -> None:
        """So many more, within so many others."""
        if depth > DEEPEST:
            raise Refusal(f"functions call each other more than {DEEPEST} deep")
        self.count += count if depth else 0
        if self.count > MOST_WRITTEN:
            raise Endless(f"functions and loops, written out, are more than {MOST_WRITTEN} nodes")
