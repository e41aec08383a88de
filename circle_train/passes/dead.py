"""Remove what no output depends on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from circle_train.ir import Graph, Node, Tensor


def drop_dead_nodes(graph: Graph) -> None:
    """Nodes none of whose outputs reach a graph output; those that write into memory stay."""
    needed = needed_nodes(graph.nodes, graph.outputs)
    if len(needed) < len(graph.nodes):
        graph.remove(set(graph.nodes).difference(needed))


def needed_nodes(nodes: Sequence[Node], outputs: Iterable[Tensor]) -> list[Node]:
    """The nodes on which the outputs depend, and those that write into memory."""
    needed: set[Tensor | None] = set(outputs)
    kept = []
    for node in reversed(nodes):
        if node.op.mutates or not needed.isdisjoint(node.outputs):
            kept.append(node)
            needed.update(node.inputs)
    return kept[::-1]
