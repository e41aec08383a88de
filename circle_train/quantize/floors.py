"""Below what an activation's numbers need not be told apart: masks of -10000 or -3.4e38, which a SOFTMAX makes nothing of."""

from __future__ import annotations

from collections.abc import Mapping

from circle_train.ir import Node, Tensor
from circle_train.ops.attributes import Activation
from circle_train.ops.integers import Scales
from circle_train.ops.numeric.activation import Softmax
from circle_train.ops.numeric.arithmetic import Add
from circle_train.quantize.plan import Plan

DEPTH = 16.0
"""So far below a row's largest number, thousands of others together are no thousandth of it."""


def weighed_rows(plan: Plan) -> list[Tensor]:
    """What is made shares of, row by row."""
    found = (node.inputs[0] for node in plan.nodes if isinstance(node.op, Softmax))
    return [tensor for tensor in dict.fromkeys(found) if tensor is not None]


def floors(plan: Plan, tops: Mapping[Tensor, float], highs: Mapping[Tensor, float]) -> dict[Tensor, float]:
    """By tensor, where all that read it end in a SOFTMAX; `tops`: the least largest of its rows, `highs`: the largest."""
    found: dict[Tensor, float] = {}
    kept = {*plan.graph.outputs, *plan.ends}
    for node in reversed(plan.graph.nodes):
        for tensor in dict.fromkeys(t for t in node.inputs if t is not None and t not in kept):
            told = [_floor(plan, reader, tensor, found, tops, highs) for reader in plan.graph.readers(tensor)]
            if told and None not in told:
                found[tensor] = min(floor for floor in told if floor is not None)
    return found


def _floor(
    plan: Plan, node: Node, tensor: Tensor, found: Mapping[Tensor, float], tops: Mapping[Tensor, float],
    highs: Mapping[Tensor, float],
) -> float | None:  # fmt: skip
    """What this reader need not be told apart."""
    if node not in plan.nodes:
        return None
    op, facts = node.op, node.op.in_integers
    if isinstance(op, Softmax):
        top = tops.get(tensor)
        return None if top is None or op.beta <= 0 else top - DEPTH / op.beta
    below = [found.get(out) for out in node.outputs]
    if None in below:
        return None
    least = min(floor for floor in below if floor is not None)
    if facts is not None and facts.scales is not Scales.OWN:
        return least
    if isinstance(op, Add) and op.fused_activation_function is Activation.NONE:
        others = [_high(t, highs) for t in node.inputs if t is not None and t is not tensor]
        return None if len(others) != 1 or others[0] is None else least - max(others[0], 0.0)
    return None


def _high(tensor: Tensor, highs: Mapping[Tensor, float]) -> float | None:
    """The largest number, where it is known."""
    return float(tensor.data.max(initial=0.0)) if tensor.is_constant else highs.get(tensor)
