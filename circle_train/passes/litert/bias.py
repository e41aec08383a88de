"""LiteRT's convolutions, and more so its delegates, want a bias: those without one are lent zeros."""

from __future__ import annotations

import numpy as np

from circle_train.ir import Buffer, DType, Graph, Node, Quantization, Role, Tensor, TensorType
from circle_train.ir.graph import constant

OUTPUTS = {"CONV_2D": 0, "DEPTHWISE_CONV_2D": 3, "CONV_3D": 4}
"""Operators and the axis of their weights that counts the outputs."""
MAY_LACK = {"TRANSPOSE_CONV": 3}
"""Operators that LiteRT computes without a bias, if its place is not there either."""


def lacks_bias(node: Node) -> bool:
    """Whether LiteRT would refuse the node for want of a bias."""
    given = len(node.inputs)
    if node.op.name in MAY_LACK:
        return given > MAY_LACK[node.op.name] and node.inputs[-1] is None
    return node.op.name in OUTPUTS and (given < 3 or node.inputs[2] is None)


def lend_bias(graph: Graph) -> None:
    """Zeros where a bias is missing: constants that training leaves alone, one for each number of outputs."""
    zeros: dict[tuple[object, ...], Buffer] = {}
    for node in graph.nodes:
        if not lacks_bias(node):
            continue
        if node.op.name in MAY_LACK:
            graph.reconnect(node, node.inputs[:-1])
            continue
        bias = _zeros(node)
        key = (bias.dtype, bias.shape)
        bias.buffer = zeros.setdefault(key, bias.buffer or Buffer())
        graph.reconnect(node, [*node.inputs[:2], bias])


def _zeros(node: Node) -> Tensor:
    """Of the type that goes with the input: floats, or integers that count products of its scale and the weights'."""
    x, w = node.inputs[:2]
    assert x is not None and w is not None
    count = w.shape[OUTPUTS[node.op.name]]
    dtype = {DType.INT8: DType.INT32, DType.UINT8: DType.INT32, DType.INT16: DType.INT64}.get(
        x.dtype, x.dtype
    )
    bias = constant(np.zeros(count, dtype.numpy), f"{node.outputs[0].name}:bias")
    bias.role = Role.FIXED
    if x.quantization is not None and w.quantization is not None and x.quantization.scale:
        scale = tuple(x.quantization.scale[0] * each for each in w.quantization.scale)
        bias.quantization = Quantization(scale, (0,) * len(scale))
        bias.type = TensorType(dtype, (count,))
    return bias
