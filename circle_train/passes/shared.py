"""Tensors that share a buffer are one weight."""

from __future__ import annotations

import numpy as np

from circle_train.ir import Buffer, Graph, Node, Tensor
from circle_train.ir.graph import constant
from circle_train.ops.shapes.shape import Reshape


def merge_shared_buffers(graph: Graph) -> None:
    """Let all readers of one buffer read one tensor, through a RESHAPE where the shapes differ."""
    first: dict[tuple[Buffer, int], Tensor] = {}
    replaced: dict[Tensor, Tensor] = {}
    for node in graph.nodes:
        for tensor in node.inputs:
            if tensor is None or not tensor.is_constant or not tensor.dtype.is_float or tensor in replaced:
                continue
            assert tensor.buffer is not None
            chosen = first.setdefault((tensor.buffer, tensor.dtype), tensor)
            if chosen is tensor or chosen.type.size != tensor.type.size:
                continue
            replaced[tensor] = chosen
    views = [(old, chosen) for old, chosen in replaced.items() if chosen.shape != old.shape]
    shown = [_reshaped(chosen, old) for old, chosen in views]
    if shown:
        graph.insert(*shown)
        replaced.update((old, node.outputs[0]) for (old, _), node in zip(views, shown, strict=True))
    for old, new in replaced.items():
        graph.redirect(old, new)


def _reshaped(source: Tensor, like: Tensor) -> Node:
    shape = constant(np.array(like.shape, np.int32), "shape")
    return Node(Reshape(new_shape=like.shape), [source, shape], [Tensor(like.name, like.type)])
