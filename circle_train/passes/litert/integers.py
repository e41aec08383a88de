"""Integer and boolean operators that LiteRT does not compute in their own element type."""

from __future__ import annotations

from circle_train.ir import DType, Graph, Node
from circle_train.ops.layers.pool import AveragePool2D, MaxPool2D
from circle_train.passes.litert.emission import cast_around

IN_FLOATS = (MaxPool2D, AveragePool2D)
"""Operators that it has in float only: exact up to 2²⁴."""


def lacking(node: Node) -> set[DType]:
    """Element types of the node's numbers that have to become others."""
    given = [tensor for tensor in (*node.inputs, *node.outputs) if tensor is not None]
    if not node.inputs or node.inputs[0] is None or any(t.quantization is not None for t in given):
        return set()
    first = node.inputs[0].dtype
    if isinstance(node.op, IN_FLOATS):
        return set() if first.is_float else {first}
    lacks: frozenset[DType] = node.op.litert_lacks
    return {first} & lacks


def is_other_integer(node: Node) -> bool:
    return bool(lacking(node))


def compute_in_other_integers(graph: Graph) -> None:
    """Cast to INT32, compute, and cast back."""
    for node in graph.nodes:
        if old := lacking(node):
            cast_around(graph, node, old, DType.FLOAT32 if isinstance(node.op, IN_FLOATS) else DType.INT32)
