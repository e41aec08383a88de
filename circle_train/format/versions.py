"""Operator versions that runtimes ask for, for operators that we add; loaded operators keep theirs."""

from __future__ import annotations

from circle_train.ir import DType, Node

AT_LEAST = {"BROADCAST_TO": 2}
"""Operators of which no version 1 was ever registered."""


def version_of(node: Node) -> int:
    """The lowest version of the operator that has what this node uses."""
    return AT_LEAST.get(node.op.name, 1)


__all__ = ["DType", "version_of"]
