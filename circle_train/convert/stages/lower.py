"""Writes what Circle has no operator for by those that it has; the last of these says what they stand for."""

from __future__ import annotations

from typing import Any

from circle_train.convert.building import erf
from circle_train.convert.building.builder import Builder
from circle_train.ir import Node, Tensor
from circle_train.ir.node import BatchNorm, Dropout, Hint, Rounding
from circle_train.ir.size import Size
from circle_train.ops.internal.dropout import Dropout as DropoutOp
from circle_train.ops.internal.integers.round_within import RoundWithin
from circle_train.ops.internal.norms.batch_norm import BatchNorm as BatchNormOp

Spelled = tuple[Tensor, Hint | None]
FORMULAS = (DropoutOp, BatchNormOp, RoundWithin)
"""Written out last, so that nothing need recognise them before."""


def lower(builder: Builder, *ops: type[Any]) -> None:
    """Every node of these ops, in place."""
    graph = builder.graph
    for node in [node for node in graph.nodes if type(node.op) in ops]:
        graph.cursor = node
        result, hint = SPELLED[type(node.op)](builder, node)
        last = result.producer
        assert last is not None
        graph.replace([last, node], Node(last.op, last.inputs, node.outputs, hint=hint))
    graph.cursor = None


def _erf(b: Builder, node: Node) -> Spelled:
    (x,) = node.inputs
    assert x is not None
    return erf.lowered(b, x), None


def _dropout(b: Builder, node: Node) -> Spelled:
    """A RESHAPE that changes nothing."""
    (x,) = node.inputs
    assert x is not None
    target = b.integers([-1 if isinstance(size, Size) else size for size in b.shape(x)])
    return b.emit_unfolded("RESHAPE", x, target), Dropout(node.op.ratio, node.op.seed)


def _batch_norm(b: Builder, node: Node) -> Spelled:
    x, gamma, beta, mean, variance = (tensor for tensor in node.inputs if tensor is not None)
    epsilon = b.like(x, node.op.epsilon)
    deviation = b("RSQRT", b("ADD", variance, epsilon))
    y = b("MUL", x, b("MUL", gamma, deviation))
    shift = b("SUB", beta, b("MUL", gamma, b("MUL", mean, deviation)))
    y = b("ADD", y, shift, fused_activation_function=node.op.activation)
    return y, BatchNorm(x, gamma, beta, mean, variance, epsilon, node.op.momentum)


def _rounding(b: Builder, node: Node) -> Spelled:
    x, zero = (*node.inputs, None)[:2]
    assert x is not None
    return rounded(b, x, zero, node.op), Rounding(x, zero, node.op.low, node.op.high)


def rounded(b: Builder, x: Tensor, zero: Tensor | None, op: RoundWithin) -> Tensor:
    """Rounded half to even, shifted and clipped."""
    y = b("ROUND", x)
    if zero is not None:
        y = b("ADD", y, zero)
    return b("MINIMUM", b("MAXIMUM", y, b.like(x, op.low)), b.like(x, op.high))


SPELLED = {erf.Erf: _erf, DropoutOp: _dropout, BatchNormOp: _batch_norm, RoundWithin: _rounding}
