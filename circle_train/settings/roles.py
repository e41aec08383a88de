"""What makes a constant a parameter: a gradient and its role. One rule for every format, wherever a file keeps the constant."""

from __future__ import annotations

from dataclasses import field

import numpy as np

from circle_train.ir import Graph, Node, Role, Tensor
from circle_train.ir.tensor_type import Array
from circle_train.ops.numeric.fill import Cast
from circle_train.ops.shapes.shape import Transpose
from circle_train.record import mutable

FORBIDDING = 1e4
"""Beyond this a summand forbids: what it is added to counts nothing any more."""


@mutable
class Roles:
    """The constants of a graph, as its operators read them."""

    graph: Graph
    untouched: set[Tensor] = field(default_factory=set)
    """Inputs, and what is only scaled, shifted and rearranged of them, before the first layer."""

    def __post_init__(self) -> None:
        if any(_is_layer(node) for node in self.graph.nodes):
            self.untouched.update(self.graph.inputs)
        for node in self.graph.nodes:
            if _only_prepares(node) and all(
                _is_number(t) or t in self.untouched for t in node.inputs if t is not None
            ):
                self.untouched.update(node.outputs)

    def why_not(self, node: Node, index: int, leaf: Tensor) -> str:
        """Why training this operator does not mean training this input, a constant or made of one; nothing: it does."""
        name = node.op.input_name(index)
        if name not in node.op.parameters:
            return "no weight, bias, scale or shift of an operator"
        if name not in node.op.gradients:
            return "has no gradient"
        if leaf.root().role & Role.FIXED:
            return "a number of a formula"
        if node.op.scalar_parameters:
            return ""
        if leaf.type.size == 1:
            return "one number of a formula"
        if node.inputs[index] is leaf and any(t in self.untouched for t in node.inputs):
            return "prepares the input"
        return _looks_fixed(leaf.data)


def _is_layer(node: Node) -> bool:
    """Whether what the operator's parameters are is beyond doubt."""
    op = node.op
    return op.scalar_parameters and any(
        t is not None and t.is_constant and op.input_name(i) in op.parameters
        for i, t in enumerate(node.inputs)
    )


def _only_prepares(node: Node) -> bool:
    is_arithmetic = bool(node.op.parameters) and not node.op.scalar_parameters and not node.op.is_variadic
    return is_arithmetic or node.op.view_of is not None or isinstance(node.op, (Cast, Transpose))


def _is_number(tensor: Tensor) -> bool:
    return tensor.is_constant and tensor.producer is None


def _looks_fixed(values: Array) -> str:
    """What nobody has learned: masks, and tables of sines and cosines."""
    if not values.size:
        return "without numbers"
    if not np.isfinite(values).all() or np.abs(values).max() >= FORBIDDING:
        return "a mask"
    if ((values == 0) | (values == 1)).all() and values.any() and not values.all():
        return "a mask"
    rows = values.reshape(-1, values.shape[-1]) if values.ndim else values.reshape(1, -1)
    count, width = rows.shape
    if (
        count > 1
        and width > 1
        and not width % 2
        and np.allclose(np.square(rows).sum(-1), width / 2, rtol=1e-3)
    ):
        return "a table of sines and cosines" if np.abs(values).max() <= 1 + 1e-6 else ""
    return ""
