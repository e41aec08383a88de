"""Graphs of a few nodes, run node by node in whatever precision they are fed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from circle_train.compile.autodiff import add_backward
from circle_train.ir import DType, Graph, Tensor, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.losses.loss import Loss
from circle_train.losses.symbol import Symbol


def evaluate(graph: Graph, feeds: Mapping[Tensor, Array]) -> dict[Tensor, Array]:
    """The value of every tensor."""
    values = dict(feeds)
    for node in graph.nodes:
        for tensor in node.inputs:
            if tensor is not None and tensor not in values:
                values[tensor] = tensor.data
        inputs = [tensor and values[tensor] for tensor in node.inputs]
        values.update(zip(node.outputs, map(np.asarray, node.op.compute(inputs)), strict=True))
    return values


def loss_and_gradient(
    loss: Loss, x: Array, target: Array, form: str = "", **options: float
) -> tuple[Array, Array]:
    """Of a loss on `x`, or on what the operator `form` makes of it, with respect to `x`."""
    graph = Graph()
    leaf = Tensor("x", TensorType(DType.FLOAT32, x.shape))
    output = Symbol(graph, leaf).apply(form, **options).tensor if form else leaf
    expected = Tensor("target(x)", loss.target_type(output.type))
    total = loss.add_to(graph, output, expected)
    gradient = add_backward(graph, total, [leaf])[leaf]
    values = evaluate(graph, {leaf: x, expected: target})
    return values[total], values[gradient]
