"""Integer and boolean operators that LiteRT does not compute in their own element type."""

from __future__ import annotations

from circle_train.ir import DType, Graph, Node
from circle_train.passes.litert.emission import cast_around

SMALL = frozenset({DType.BOOL, DType.INT8, DType.UINT8})
"""Without a scale; with one most operators take bytes."""
SHORT = SMALL | {DType.INT16}
ALL = SHORT | {DType.INT64}

LACKS: dict[str, frozenset[DType]] = {
    **dict.fromkeys(("ABS", "NEG", "SIGN"), SMALL | {DType.INT64}),
    **dict.fromkeys(("ADD", "SUB", "MUL", "SQUARED_DIFFERENCE"), SHORT),
    **dict.fromkeys(("DIV", "POW"), ALL - {DType.BOOL}),
    "ADD_N": ALL,
    **dict.fromkeys(("ARG_MAX", "ARG_MIN"), frozenset({DType.INT64, DType.INT16})),
    **dict.fromkeys(("BITWISE_XOR", "RIGHT_SHIFT"), frozenset({DType.INT64, DType.BOOL})),
    **dict.fromkeys(("CUMSUM", "RANGE"), SHORT),
    "FLOOR_DIV": frozenset({DType.UINT8, DType.INT64}),
    "FLOOR_MOD": frozenset({DType.UINT8}),
    **dict.fromkeys(
        ("MAXIMUM", "MINIMUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"), frozenset({DType.BOOL})
    ),
    **dict.fromkeys(("MEAN", "SUM"), SHORT),
    **dict.fromkeys(("EQUAL", "NOT_EQUAL"), SHORT - {DType.BOOL}),
    **dict.fromkeys(("GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"), SHORT),
    **dict.fromkeys(("DEPTH_TO_SPACE", "SPACE_TO_DEPTH"), frozenset({DType.BOOL, DType.INT16})),
    "PACK": frozenset({DType.BOOL}),
    "REVERSE_SEQUENCE": frozenset({DType.BOOL, DType.INT8}),
}
"""What LiteRT 2.3 refuses or gets wrong, as every operator's examples in every type showed; INT32 it has of all of these."""
IN_FLOATS = frozenset({"MAX_POOL_2D", "AVERAGE_POOL_2D"})
"""Operators that it has in float only: exact up to 2²⁴."""


def lacking(node: Node) -> set[DType]:
    """Element types of the node's numbers that have to become others."""
    given = [tensor for tensor in (*node.inputs, *node.outputs) if tensor is not None]
    if not node.inputs or node.inputs[0] is None or any(t.quantization is not None for t in given):
        return set()
    first = node.inputs[0].dtype
    if node.op.name in IN_FLOATS:
        return set() if first.is_float else {first}
    return {first} & LACKS.get(node.op.name, frozenset())


def is_other_integer(node: Node) -> bool:
    return bool(lacking(node))


def compute_in_other_integers(graph: Graph) -> None:
    """Cast to INT32, compute, and cast back."""
    for node in graph.nodes:
        if old := lacking(node):
            cast_around(graph, node, old, DType.FLOAT32 if node.op.name in IN_FLOATS else DType.INT32)
