"""Order nodes so that each comes after what it reads."""

from __future__ import annotations

from circle_train.ir import Graph
from circle_train.ir.order import in_order


def sort_topologically(graph: Graph) -> None:
    """Stable: a graph that is in order already stays as it is. A cycle is a ModelError."""
    order = in_order(graph.nodes)
    if order != list(graph.nodes):
        graph.nodes = order
