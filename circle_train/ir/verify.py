"""What must hold in every graph: each tensor has one maker, knows it, and is made before it is read."""

from __future__ import annotations

from circle_train.errors import ModelError
from circle_train.ir.graph import Graph
from circle_train.ir.node import Node, Tensor

MOST_ENDS, MOST_OPERANDS = 1 << 12, 1 << 16
"""Inputs, or outputs, of a graph and of an operator in a file: four bytes each there, a loss or a gradient here."""
UNMADE = object()


def verify(graph: Graph) -> None:
    """Raise ModelError naming the first node that reads something nobody made, or that its tensors do not know."""
    state = graph.changes, graph.inputs, graph.outputs
    if graph.verified == state:
        return
    made: dict[Tensor, Node | object | None] = dict.fromkeys(graph.inputs)
    for node in graph.nodes:
        for tensor in node.inputs:
            if tensor is None:
                continue
            maker = made.get(tensor, UNMADE)
            if tensor.producer is maker or (
                maker is UNMADE and tensor.producer is None and _is_given(tensor)
            ):
                continue
            if maker is UNMADE and not _is_given(tensor):
                raise ModelError(
                    f"{node}: reads tensor '{tensor.name}', which is no input, no constant and not the result of an "
                    "earlier operator: the file is damaged"
                )
            raise ModelError(
                f"{node}: reads tensor '{tensor.name}', which names {tensor.producer or 'nobody'} as its maker, "
                f"expected {made.get(tensor) or 'nobody'}: the graph was not changed by its own methods"
            )
        for tensor in node.outputs:
            if tensor in made:
                raise ModelError(
                    f"{node}: writes tensor '{tensor.name}', which already has a value: the file is damaged"
                )
            made[tensor] = node
    for tensor in graph.outputs:
        if tensor not in made and not _is_given(tensor):
            raise ModelError(f"output '{tensor.name}' is not the result of any operator: the file is damaged")
    graph.verified = graph.changes, list(graph.inputs), list(graph.outputs)


def _is_given(tensor: Tensor) -> bool:
    return tensor.buffer is not None or tensor.state is not None or tensor.is_variable
