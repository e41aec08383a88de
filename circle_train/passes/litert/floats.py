"""Half and double precision: LiteRT stores both, and computes next to nothing in them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from circle_train.ir import DType, Graph, Node, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ir.node import moved
from circle_train.ops.numeric.fill import Cast
from circle_train.ops.numeric.quantize import Dequantize
from circle_train.passes.litert.emission import retyped

OTHER = frozenset({DType.FLOAT16, DType.FLOAT64})
CONVERTS = frozenset({"CAST", "DEQUANTIZE"})


def is_other_float(node: Node) -> bool:
    """Whether the node computes in halves or doubles."""
    if node.op.name in CONVERTS:
        return False
    return any(tensor is not None and tensor.dtype in OTHER for tensor in (*node.inputs, *node.outputs))


def compute_in_float32(graph: Graph) -> None:
    """Every node in float32; inputs and outputs keep their types through a CAST, half constants their size."""
    if not any(map(is_other_float, graph.nodes)):
        return
    wide = {tensor: _twin(tensor) for tensor in graph.inputs if tensor.dtype in OTHER}
    nodes = [_cast(tensor, twin) for tensor, twin in wide.items()]
    _widen(graph, wide, nodes)
    for made in dict.fromkeys(graph.outputs):
        if made in wide and made not in graph.inputs:
            nodes.append(_cast(wide[made], made))
    graph.nodes = nodes


def carry_float32(graph: Graph) -> None:
    """The same of a graph that an operator runs: its inputs and outputs are that operator's, of float32 too."""
    wide = {tensor: _twin(tensor) for tensor in graph.inputs if tensor.dtype in OTHER}
    nodes: list[Node] = []
    _widen(graph, wide, nodes)
    graph.inputs, graph.outputs = ([wide.get(t, t) for t in group] for group in (graph.inputs, graph.outputs))
    graph.nodes = nodes


def _widen(graph: Graph, wide: dict[Tensor, Tensor], nodes: list[Node]) -> None:
    """Append the graph's nodes, reading and making tensors of float32."""
    for node in graph.nodes:
        for given in node.inputs:
            if given is not None and given.dtype in OTHER and given not in wide and given.is_constant:
                wide[given] = _widened(given, nodes)
        outputs = [wide.setdefault(t, _twin(t)) if t.dtype in OTHER else t for t in node.outputs]
        inputs = [wide.get(t, t) if t is not None else None for t in node.inputs]
        hint = moved(node.hint, lambda tensor: wide.get(tensor, tensor))
        nodes.append(
            replace(node, op=_retyped(node, inputs, outputs), inputs=inputs, outputs=outputs, hint=hint)
        )


def _retyped(node: Node, inputs: list[Tensor | None], outputs: list[Tensor]) -> object:
    if isinstance(node.op, Cast):
        source = inputs[0]
        assert source is not None
        return Cast(source.dtype, outputs[0].dtype)
    return retyped(node.op, OTHER, DType.FLOAT32)


def _twin(tensor: Tensor) -> Tensor:
    """The same in float32."""
    twin = Tensor(f"{tensor.name}:float32", TensorType(DType.FLOAT32, tensor.shape))
    twin.shape_signature = tensor.shape_signature
    return twin


def _cast(source: Tensor, result: Tensor) -> Node:
    return Node(Cast(source.dtype, result.dtype), [source], [result])


def _widened(tensor: Tensor, nodes: list[Node]) -> Tensor:
    """A double as a float; a half stays one in the file and is decoded, as LiteRT's own converter writes it."""
    if tensor.dtype is DType.FLOAT64:
        narrow = constant(tensor.data.astype(np.float32), tensor.name)
        narrow.role, narrow.carried = tensor.role, dict(tensor.carried)
        return narrow
    twin = _twin(tensor)
    nodes.append(Node(Dequantize(), [tensor], [twin]))
    return twin
