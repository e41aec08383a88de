"""Where a finite loss may have gradients that are not finite: what comes of them is looked at before anything is updated."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, sqrt

from circle_train.ir import Node, Tensor
from circle_train.ops.attributes import Activation

AWAY = 1e-12
"""How far from 0 an operand must stay for its slopes to be harmless: an epsilon as layers have it."""
TIMES = 2
"""How often a weight may be used before its uses are taken for the steps of a recurrence."""
KEEPS = """RESHAPE SQUEEZE EXPAND_DIMS TRANSPOSE CAST TILE BROADCAST_TO SLICE STRIDED_SLICE GATHER SPLIT SPLIT_V UNPACK
    REVERSE_V2 MEAN REDUCE_MAX REDUCE_MIN ROUND_TO_BFLOAT16""".split()
"""Operators that give no number below the smallest that they are given."""
LEAST: dict[str, Callable[..., float]] = {
    **dict.fromkeys("RELU RELU6 RELU_0_TO_1".split(), lambda x: max(0.0, x)),
    **dict.fromkeys("SQUARE ABS SQUARED_DIFFERENCE EXP LOGISTIC SOFTMAX".split(), lambda *x: 0.0),
    "ADD": lambda x, y: x + y,
    "MUL": lambda x, y: x * y if min(x, y) > 0 else 0.0 if min(x, y) == 0 else -inf,
    "SUM": lambda x, axes: x if x >= 0 else -inf,
    "SQRT": lambda x: sqrt(max(x, 0.0)),
    "MAXIMUM": max,
    "MINIMUM": min,
}
"""The smallest result, given the smallest operands."""


def is_steep(node: Node) -> bool:
    """Whether a gradient of this node may be infinite where its result is not.

    A sweep back through time multiplies as many factors as there are steps; an epsilon keeps normalisations from dividing by 0.
    """
    if node.op.together:
        return float(getattr(node.op, "epsilon", 0)) < AWAY
    if node.op.name == "POW" and _smallest(node.inputs[1], {}) >= 1:
        return False
    return any(_is_near_zero(node.inputs[node.op.input_index(name)]) for name in node.op.steep)


def is_recurrent(weight: Tensor, uses: int) -> bool:
    """Whether a weight stands in so many places that its gradient may be one through many steps."""
    return uses > TIMES and len(weight.shape) > 1


def _is_near_zero(tensor: Tensor | None) -> bool:
    if tensor is None or (tensor.is_constant and tensor.state is None):
        return tensor is not None and bool((abs(tensor.data) < AWAY).any())
    return _smallest(tensor, {}) < AWAY


def _smallest(tensor: Tensor | None, known: dict[Tensor | None, float]) -> float:
    """A number that no element of the tensor is below."""
    if tensor not in known:
        known[tensor] = -inf
        known[tensor] = _found(tensor, known)
    return known[tensor]


def _found(tensor: Tensor | None, known: dict[Tensor | None, float]) -> float:
    if tensor is None or tensor.state is not None:
        return -inf
    if tensor.is_constant:
        return float(tensor.data.min()) if tensor.dtype.is_float and tensor.type.size else -inf
    node = tensor.producer
    if node is None or node.op.activation not in (Activation.NONE, Activation.RELU):
        return -inf
    if node.op.name == "MUL" and node.inputs[0] is node.inputs[1]:
        return 0.0
    if node.op.name in KEEPS:
        floats = [_smallest(t, known) for t in node.inputs if t is not None and t.dtype.is_float]
        return min(floats, default=-inf)
    rule = LEAST.get(node.op.name)
    return -inf if rule is None else rule(*(_smallest(t, known) for t in node.inputs))
