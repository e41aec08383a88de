"""Tensors that share a buffer are one weight."""

from __future__ import annotations

import numpy as np

from circle_train.ir import Buffer, Graph, Node, Tensor
from circle_train.ir.graph import constant
from circle_train.ops.shape import Reshape


def merge_shared_buffers(graph: Graph) -> None:
    """Let all readers of one buffer read one tensor, through a RESHAPE where the shapes differ."""
    first: dict[tuple[Buffer, int], Tensor] = {}
    replaced: dict[Tensor, Tensor] = {}
    reshapes: list[Node] = []
    for node in graph.nodes:
        for tensor in node.inputs:
            if tensor is None or not tensor.is_constant or not tensor.dtype.is_float or tensor in replaced:
                continue
            assert tensor.buffer is not None
            chosen = first.setdefault((tensor.buffer, tensor.dtype), tensor)
            if chosen is tensor or chosen.type.size != tensor.type.size:
                continue
            replaced[tensor] = chosen if chosen.shape == tensor.shape else _reshaped(chosen, tensor, reshapes)
    for node in graph.nodes:
        node.inputs = [t if t is None else replaced.get(t, t) for t in node.inputs]
    graph.nodes = reshapes + graph.nodes


def _reshaped(source: Tensor, like: Tensor, nodes: list[Node]) -> Tensor:
    view = Tensor(like.name, like.type)
    node = Node(
        Reshape(new_shape=like.shape), [source, constant(np.array(like.shape, np.int32), "shape")], [view]
    )
    view.producer = node
    nodes.append(node)
    return view
