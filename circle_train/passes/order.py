"""Order nodes so that each comes after what it reads."""

from __future__ import annotations

from circle_train.errors import ModelError
from circle_train.ir import Graph, Node, Tensor


def sort_topologically(graph: Graph) -> None:
    """Stable: a graph that is in order already stays as it is. A cycle is a ModelError."""
    producer = {out: node for node in graph.nodes for out in node.outputs}
    done: set[Node] = set()
    order: list[Node] = []
    for start in graph.nodes:
        stack: list[tuple[Node, int]] = [(start, 0)]
        open_nodes: set[Node] = set()
        while stack:
            node, position = stack.pop()
            if node in done:
                continue
            open_nodes.add(node)
            inputs: list[Tensor | None] = node.inputs
            for next_position in range(position, len(inputs)):
                tensor = inputs[next_position]
                before = producer.get(tensor) if tensor is not None else None
                if tensor is not None and before is not None and before not in done:
                    if before in open_nodes:
                        raise ModelError(
                            f"{node}: depends on its own result through '{tensor.name}', the graph has a cycle"
                        )
                    stack.append((node, next_position + 1))
                    stack.append((before, 0))
                    break
            else:
                done.add(node)
                order.append(node)
    graph.nodes = order
