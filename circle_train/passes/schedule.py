"""Update a weight as soon as its gradient is there and nobody reads the old value any more."""

from __future__ import annotations

from circle_train.ir import Graph, Node, Tensor
from circle_train.ir.views import stored_in
from circle_train.ops.internal.gradient import GuardFinite


def update_early(graph: Graph) -> None:
    """Move each node that writes into memory behind the last of its inputs' makers and readers, and of the guards."""
    position = {node: i for i, node in enumerate(graph.nodes)}
    readers: dict[Tensor, list[Node]] = {}
    views: dict[Tensor, Tensor] = {}
    for node in graph.nodes:
        for tensor in node.inputs:
            if tensor is not None:
                readers.setdefault(stored_in(tensor, views), []).append(node)
    guarded = max((i for i, node in enumerate(graph.nodes) if isinstance(node.op, GuardFinite)), default=-1)
    after: dict[int, list[Node]] = {}
    for node in graph.nodes:
        if node.op.mutates and not isinstance(node.op, GuardFinite) and node.inputs[0] is not None:
            written = node.inputs[0]
            makers = [position[t.producer] for t in node.inputs if t is not None and t.producer in position]
            others = [position[reader] for reader in readers[written] if reader is not node]
            after.setdefault(max([*makers, *others, guarded], default=position[node]), []).append(node)
    moved = {node for nodes in after.values() for node in nodes}
    order: list[Node] = []
    for i, node in enumerate(graph.nodes):
        if node not in moved:
            order.append(node)
        order.extend(after.get(i, ()))
    graph.nodes = order
