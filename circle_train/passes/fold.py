"""Infer every type in order; compute at once what is known before running."""

from __future__ import annotations

from operator import is_
from typing import Any

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import Buffer, Graph, Node, TensorType
from circle_train.ir.blame import Blame
from circle_train.ir.node import known_type
from circle_train.ir.tensor_type import Array
from circle_train.ops.control.subgraph import WithGraphs

LARGEST_FOLDED = 1 << 24
"""Elements; a longer result is left to be computed while running."""


def fold_integers(graph: Graph) -> None:
    """Infer all types; integer results of constants (shape arithmetic) become constants. Floats may yet be trained."""
    infer(graph, fold_floats=False)


def fold_constants(graph: Graph) -> None:
    """Compute everything that depends on constants alone; what is a state by now stays."""
    infer(graph, fold_floats=True)


def infer(graph: Graph, fold_floats: bool) -> None:
    folded = []
    for node in graph.nodes:
        infer_node(node)
        if _fold(node, fold_floats):
            folded.append(node)
    if folded:
        graph.remove(folded)


def infer_node(node: Node) -> None:
    """Set the output types of one node; its errors name the node."""
    told = _told(node)
    if len(told) == len(node.inferred) and all(map(is_, told, node.inferred)):
        return
    with Blame(node):
        types = node.op.infer_types([known_type(t) for t in node.inputs])
    if len(types) != len(node.outputs):
        raise ModelError(
            f"{node}: has {len(node.outputs)} outputs, the operator makes {len(types)}: the file is damaged"
        )
    for tensor, type_ in zip(node.outputs, types, strict=True):
        tensor.type = type_
    node.inferred = () if isinstance(node.op, WithGraphs) else _told(node)


def _told(node: Node) -> tuple[Any, ...]:
    """What a type rule is told, and what it has said: objects that are replaced, not changed."""
    told: list[Any] = [node.op]
    for tensor in node.inputs:
        if tensor is None:
            told.append(None)
        else:
            told += (tensor, tensor.type, tensor.buffer, tensor.quantization)
    told += [tensor.type for tensor in node.outputs]
    return tuple(told)


def _fold(node: Node, fold_floats: bool) -> bool:
    """Make the outputs constants if they are known; whether the node has become superfluous."""
    if (
        node.op.mutates
        or node.op.draws
        or not node.op.is_runnable
        or any(t.is_variable for t in node.outputs)
    ):
        return False
    values: list[Array | None] = [t.type.value for t in node.outputs]
    if any(value is None for value in values):
        given = [t is None or (t.is_constant and t.state is None) for t in node.inputs]
        integers = not any(t.dtype.is_float for t in node.outputs)
        small = all(0 <= t.type.size <= LARGEST_FOLDED for t in node.outputs) or not node.outputs
        if not all(given) or not (integers or fold_floats) or not small:
            return False
        values = list(_compute(node))
    for tensor, value in zip(node.outputs, values, strict=True):
        assert value is not None
        array = np.asarray(value, order="C")
        tensor.buffer = Buffer(array.reshape(-1).view(np.uint8))
        tensor.type = TensorType(tensor.type.dtype, array.shape)
    return True


def _compute(node: Node) -> tuple[Array, ...]:
    with Blame(node), np.errstate(all="ignore"):
        return tuple(node.op.compute([None if t is None else t.data for t in node.inputs]))
