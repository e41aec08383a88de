"""Recurrent operators begin every run anew."""

from __future__ import annotations

from circle_train.ir import Graph


def reset_states(graph: Graph) -> None:
    """Drop the variable tensors that hold states: an absent one is zeros, as TFLite's are after a reset."""
    fed = set(graph.inputs)
    for node in graph.nodes:
        held = [
            spec.optional and tensor is not None and tensor.is_variable and tensor not in fed
            for spec, tensor in zip(node.op.inputs, node.inputs, strict=False)
        ]
        if any(held):
            rest = node.inputs[len(held) :]
            given = zip(node.inputs, held, strict=False)
            graph.reconnect(node, [*(None if drops else t for t, drops in given), *rest])
