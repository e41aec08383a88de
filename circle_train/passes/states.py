"""Recurrent operators begin every run anew."""

from __future__ import annotations

from circle_train.ir import Graph


def reset_states(graph: Graph) -> None:
    """Drop the variable tensors that hold states: an absent one is zeros, as TFLite's are after a reset."""
    fed = {id(tensor) for tensor in graph.inputs}
    for node in graph.nodes:
        for position, (spec, tensor) in enumerate(zip(node.op.inputs, node.inputs, strict=False)):
            if spec.optional and tensor is not None and tensor.is_variable and id(tensor) not in fed:
                node.inputs[position] = None
