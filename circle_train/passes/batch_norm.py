"""Batch normalisation in training: by the batch's own mean and variance instead of the running ones.

A converted model computes x·s + (β - γ·μ/σ) with s = γ/σ and 1/σ = RSQRT(variance + ε); the ADD at its end
carries the momentum. The running statistics are frozen numbers there. Here such an ADD is computed anew from
x, γ and β.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circle_train.errors import UnsupportedOpError
from circle_train.ir import Graph, Node, Tensor
from circle_train.ir.graph import constant
from circle_train.ops import REGISTRY, Op
from circle_train.ops.internal.running import MoveTowards
from circle_train.passes.fold import infer_node
from circle_train.record import record

MARK = "batch_norm"
"""What the ADD at the end carries: {"momentum": …}."""
STATISTIC = "statistic"
"""What a running mean or variance carries: it is never trained."""


@record
class BatchNorm:
    """One normalisation of the graph and the tensors that it is made of."""

    node: Node
    x: Tensor
    gamma: Tensor
    beta: Tensor
    mean: Tensor
    variance: Tensor
    epsilon: Tensor
    momentum: float


def is_statistic(tensor: Tensor) -> bool:
    """Whether a constant is a running mean or variance."""
    return bool(tensor.root().carried.get(STATISTIC))


def normalise_by_batch(graph: Graph) -> list[Node]:
    """Replace every normalisation; the nodes that move the running statistics, to be run last."""
    moves: list[Node] = []
    for node in [node for node in graph.nodes if MARK in node.carried]:
        found = _recognise(node)
        made = _Normalised(found)
        graph.replace([node], *made.nodes)
        for running, batch in ((found.mean, made.mean), (found.variance, made.variance)):
            moves.append(Node(MoveTowards(found.momentum), [running, batch], []))
    return moves


class _Normalised:
    """The nodes of (x - mean)/√(variance + ε)·γ + β over all axes but the last."""

    def __init__(self, norm: BatchNorm) -> None:
        self.nodes: list[Node] = []
        self.index = norm.node.index
        axes = constant(np.arange(norm.x.type.rank - 1, dtype=np.int32), "axes")
        self.mean = self.emit(REGISTRY["MEAN"](), norm.x, axes)
        centred = self.emit(REGISTRY["SUB"](), norm.x, self.mean)
        self.variance = self.emit(REGISTRY["MEAN"](), self.emit(REGISTRY["SQUARE"](), centred), axes)
        shifted = self.emit(REGISTRY["ADD"](), self.variance, norm.epsilon)
        inverse = self.emit(REGISTRY["RSQRT"](), shifted)
        scaled = self.emit(REGISTRY["MUL"](), centred, self.emit(REGISTRY["MUL"](), inverse, norm.gamma))
        self.nodes.append(Node(norm.node.op, [scaled, norm.beta], norm.node.outputs, self.index))

    def emit(self, op: Op, *inputs: Tensor) -> Tensor:
        output = Tensor(f"{op.name.lower()}{self.index}.{len(self.nodes)}", inputs[0].type)
        node = Node(op, list(inputs), [output], self.index)
        infer_node(node)
        self.nodes.append(node)
        return output


def _recognise(node: Node) -> BatchNorm:
    """Walk back from the ADD to what the normalisation was made of."""
    try:
        scaled, shift = _split(node)
        beta, moved = _inputs(shift, "SUB")
        gamma, moved_mean = _inputs(moved, "MUL")
        mean, deviation = _inputs(moved_mean, "MUL")
        (shifted,) = _inputs(deviation, "RSQRT")
        variance, epsilon = _inputs(shifted, "ADD")
        x, scale = _inputs(scaled, "MUL")
        if scale.producer is None or gamma not in scale.producer.inputs:
            x, scale = scale, x
        _inputs(scale, "MUL")
    except (LookupError, ValueError) as error:
        raise UnsupportedOpError(
            f"{node}: its batch normalisation has been changed ({error}), so it cannot use the batch's "
            "statistics; train with batch_norm='frozen'"
        ) from None
    return BatchNorm(node, x, gamma, beta, mean, variance, epsilon, float(node.carried[MARK]["momentum"]))


def _split(node: Node) -> tuple[Tensor, Tensor]:
    """The two operands of the ADD: what varies with the data, and the shift."""
    first, second = _inputs(node.outputs[0], "ADD")
    is_shift = first.producer is not None and first.producer.op.name == "SUB" and first.type.rank == 1
    return (second, first) if is_shift else (first, second)


def _inputs(tensor: Tensor, name: str) -> Sequence[Tensor]:
    """What the operator of this name reads that makes the tensor."""
    producer = tensor.producer
    if producer is None or producer.op.name != name:
        found = producer.op.name if producer else "nothing"
        raise LookupError(f"'{tensor.name}' is made by {found}, expected {name}")
    return [t for t in producer.inputs if t is not None]
