"""Constant factors and summands of channels become part of the weights and biases before them, where nobody trains these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from circle_train.ir import DType, Graph, Node, Tensor
from circle_train.ir.graph import constant
from circle_train.ir.tensor_type import Array
from circle_train.ops.base import Op
from circle_train.ops.layers.conv import Conv2D, DepthwiseConv2D
from circle_train.ops.layers.linear import FullyConnected
from circle_train.ops.numeric.arithmetic import Add, Mul, Sub

OUTPUTS: dict[type[Op], int] = {Conv2D: 0, DepthwiseConv2D: 3, FullyConnected: 0}
"""The axis of the weights along which the outputs lie."""


def fold_into_products(graph: Graph) -> None:
    """act(product(x, w) + b) · s + t with constants alone: a normalisation by running statistics costs nothing then."""
    for node in list(graph.nodes):
        if type(node.op) in OUTPUTS and is_number(node.inputs[1]) and node.outputs[0].dtype is DType.FLOAT32:
            current = node
            while (made := _joined(graph, current)) is not None:
                current = made


def is_number(tensor: Tensor | None) -> bool:
    """Constant float32s that no session may set."""
    return (
        tensor is not None
        and tensor.is_constant
        and tensor.state is None
        and tensor.dtype is DType.FLOAT32
        and tensor.quantization is None
    )


def _joined(graph: Graph, node: Node) -> Node | None:
    """The product with what follows it, if that is a factor or summand of its channels."""
    reader = graph.only_reader(node.outputs[0])
    x, w, *rest = node.inputs
    b = rest[0] if rest else None
    if (
        reader is None
        or node.op.activation
        or type(reader.op) not in (Mul, Add, Sub)
        or not node.outputs[0].shape
    ):
        return None
    first = reader.inputs[0] is node.outputs[0]
    other = reader.inputs[1] if first else reader.inputs[0]
    if (b is not None and not is_number(b)) or (type(reader.op) is Sub and not first):
        return None
    channels = node.outputs[0].shape[-1]
    numbers = _of_channels(other, channels) if reader.outputs[0].shape == node.outputs[0].shape else None
    if numbers is None or w is None:
        return None
    bias = np.zeros(channels, np.float32) if b is None else b.data.reshape(-1)
    weights = w
    if type(reader.op) is Mul:
        shape = [1] * w.type.rank
        shape[OUTPUTS[type(node.op)]] = channels
        weights, bias = constant(w.data * numbers.reshape(shape), w.name), bias * numbers
    else:
        bias = bias + numbers if type(reader.op) is Add else bias - numbers
    op = replace(node.op, fused_activation_function=reader.op.activation)
    inputs: Sequence[Tensor | None] = [x, weights, constant(bias, f"{w.name}.bias")]
    members = [*node.originals, *reader.originals]
    made = Node(op, list(inputs), list(reader.outputs), node.index, members)
    graph.replace([node, reader], made)
    return made


def _of_channels(tensor: Tensor | None, channels: int) -> Array | None:
    """One number a channel, from a constant that is the same for all else."""
    if tensor is None or not is_number(tensor) or tensor.shape[:-1] != (1,) * (tensor.type.rank - 1):
        return None
    return np.broadcast_to(tensor.data.reshape(-1), channels) if tensor.type.size in (1, channels) else None
