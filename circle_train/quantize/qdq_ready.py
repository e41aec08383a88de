"""An ONNX graph before anything is rounded: which constants there are, and what will stay float."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any


def hold_copies(graph: Any) -> None:
    """What an Identity makes of a constant is one: PyTorch writes equal weights once."""
    held = {tensor.name: tensor for tensor in graph.initializer}
    outputs = {output.name for output in graph.output}
    for node in [node for node in graph.node if node.op_type == "Identity"]:
        if node.input[0] in held and node.output[0] not in outputs:
            made = graph.initializer.add()
            made.CopyFrom(held[node.input[0]])
            made.name = node.output[0]
            held[made.name] = made
            graph.node.remove(node)


def left_in_floats(
    graph: Any, products: Collection[int], known: Collection[str], real: Collection[str]
) -> Iterator[str]:
    """Operators that compute floats and stay so, and why; `products` by their ids, `real` are tensors."""
    for node in graph.node:
        if id(node) in products or node.op_type in known:
            continue
        if any(name in real for name in node.input) and any(name in real for name in node.output):
            why = (
                "its weights are no constants"
                if node.op_type in ("Conv", "Gemm", "MatMul")
                else "QDQ has it in float alone"
            )
            yield f"{node.op_type} '{node.output[0]}': {why}"
