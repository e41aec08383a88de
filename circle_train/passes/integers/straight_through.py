"""The roundings of a model with QuantizeLinear and DequantizeLinear as operators that gradients pass.

Floats that become integers behind one, and floats again, are the rounded numbers themselves from here on.
"""

from __future__ import annotations

from circle_train.ir import Graph, Node
from circle_train.ir.node import Rounding
from circle_train.ops.internal.integers.round_within import RoundWithin
from circle_train.ops.numeric.fill import Cast
from circle_train.passes.dead import drop_dead_nodes


def learn_through_rounding(graph: Graph) -> None:
    """Put a RoundWithin in the place of each formula, and in that of the CASTs that turn its integers to floats."""
    found = [(node, node.hint) for node in graph.nodes if isinstance(node.hint, Rounding)]
    for node, hint in found:
        zero = [] if hint.zero is None else [hint.zero]
        graph.replace(
            [node], Node(RoundWithin(hint.low, hint.high), [hint.x, *zero], node.outputs, node.index)
        )
        _pass_by_integers(graph, node)
    if found:
        drop_dead_nodes(graph)


def _pass_by_integers(graph: Graph, node: Node) -> None:
    (rounded,) = node.outputs
    for narrow in graph.readers(rounded):
        for wide in graph.readers(narrow.outputs[0]) if isinstance(narrow.op, Cast) else ():
            if isinstance(wide.op, Cast) and wide.outputs[0].dtype is rounded.dtype:
                graph.redirect(wide.outputs[0], rounded)
