"""Batch normalisation in training: by the batch's own mean and variance instead of the running ones.

Where a formula of the file stands for one, its result is computed anew from x, γ and β.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from circle_train.ir import Graph, Node, Tensor
from circle_train.ir.graph import constant
from circle_train.ir.node import BatchNorm
from circle_train.ir.tensor_type import Array
from circle_train.ops import Op
from circle_train.ops.internal.norms.batch_statistics import BatchStatistics, NormaliseByBatch
from circle_train.ops.internal.norms.running import MoveTowards
from circle_train.ops.numeric.arithmetic import Add, Mul, Sub
from circle_train.ops.numeric.reduce import Mean
from circle_train.ops.numeric.unary import Rsqrt, Square
from circle_train.passes.fold import infer_node


def normalise_by_batch(graph: Graph) -> list[Node]:
    """Replace every normalisation; the nodes that move the running statistics, to be run last."""
    moves: list[Node] = []
    for node in graph.nodes:
        if isinstance(norm := node.hint, BatchNorm):
            made = _whole(node, norm) if _is_whole(norm) else _Normalised(node, norm)
            graph.replace([node], *made.nodes)
            for running, batch in ((norm.mean, made.mean), (norm.variance, made.variance)):
                moves.append(Node(MoveTowards(norm.momentum), [running, batch], []))
    return moves


def _is_whole(norm: BatchNorm) -> bool:
    """Whether one operator says it: channels are the last axis, ε is a number."""
    rows = norm.gamma.shape == norm.beta.shape == norm.x.shape[-1:]
    return rows and norm.x.type.rank > 1 and norm.epsilon.is_constant and norm.epsilon.state is None


class _Whole(NamedTuple):
    """The statistics and what is normalised by them."""

    nodes: list[Node]
    mean: Tensor
    variance: Tensor


def _whole(end: Node, norm: BatchNorm) -> _Whole:
    types = BatchStatistics().infer_types([norm.x.type])
    names = (f"{kind}({norm.x.name})" for kind in ("mean", "variance"))
    mean, variance = (Tensor(name, type_) for name, type_ in zip(names, types, strict=True))
    op = NormaliseByBatch(float(norm.epsilon.data.reshape(())), end.op.activation)
    found = Node(BatchStatistics(), [norm.x], [mean, variance], end.index)
    normal = Node(op, [norm.x, norm.gamma, norm.beta], end.outputs, end.index)
    return _Whole([found, normal], mean, variance)


class _Normalised:
    """The nodes of (x - mean)/√(variance + ε)·γ + β over all axes but the channels'."""

    def __init__(self, end: Node, norm: BatchNorm) -> None:
        self.nodes: list[Node] = []
        self.index = end.index
        axes, mean = constant(_reduced(norm), "axes"), Mean(keep_dims=norm.gamma.type.rank > 1)
        self.mean = self.emit(mean, norm.x, axes)
        centred = self.emit(Sub(), norm.x, self.mean)
        self.variance = self.emit(mean, self.emit(Square(), centred), axes)
        shifted = self.emit(Add(), self.variance, norm.epsilon)
        inverse = self.emit(Rsqrt(), shifted)
        scaled = self.emit(Mul(), centred, self.emit(Mul(), inverse, norm.gamma))
        self.nodes.append(Node(end.op, [scaled, norm.beta], end.outputs, self.index))

    def emit(self, op: Op, *inputs: Tensor) -> Tensor:
        output = Tensor(f"{op.name.lower()}{self.index}.{len(self.nodes)}", inputs[0].type)
        node = Node(op, list(inputs), [output], self.index)
        infer_node(node)
        self.nodes.append(node)
        return output


def _reduced(norm: BatchNorm) -> Array:
    """All axes but that of γ's entries."""
    rank, sizes = norm.x.type.rank, norm.gamma.shape
    own = next((axis for axis in range(-len(sizes), -1) if sizes[axis] != 1), -1) % rank
    return np.array([axis for axis in range(rank) if axis != own], np.int32)
