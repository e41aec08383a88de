"""Remove what no output depends on."""

from __future__ import annotations

from circle_train.ir import Graph, Tensor


def drop_dead_nodes(graph: Graph) -> None:
    """Nodes none of whose outputs reach a graph output; those that write into memory stay."""
    needed: set[Tensor] = set(graph.outputs)
    kept = []
    for node in reversed(graph.nodes):
        if node.op.mutates or any(out in needed for out in node.outputs):
            kept.append(node)
            needed.update(t for t in node.inputs if t is not None)
    graph.nodes = kept[::-1]
