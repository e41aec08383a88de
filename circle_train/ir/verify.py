"""What must hold in every graph: each tensor has one maker, and is made before it is read."""

from __future__ import annotations

from circle_train.errors import ModelError
from circle_train.ir.graph import Graph, Tensor


def verify(graph: Graph) -> None:
    """Raise ModelError naming the first node that reads something nobody made."""
    made: set[Tensor] = set(graph.inputs)
    for node in graph.nodes:
        for tensor in node.inputs:
            if tensor is not None and tensor not in made and not _is_given(tensor):
                raise ModelError(
                    f"{node}: reads tensor '{tensor.name}', which is no input, no constant and not the result of an "
                    "earlier operator: the file is damaged"
                )
        for tensor in node.outputs:
            if tensor in made:
                raise ModelError(
                    f"{node}: writes tensor '{tensor.name}', which already has a value: the file is damaged"
                )
            made.add(tensor)
    for tensor in graph.outputs:
        if tensor not in made and not _is_given(tensor):
            raise ModelError(f"output '{tensor.name}' is not the result of any operator: the file is damaged")


def _is_given(tensor: Tensor) -> bool:
    return tensor.buffer is not None or tensor.state is not None or tensor.is_variable
