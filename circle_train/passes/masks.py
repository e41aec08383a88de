"""Masks of attention in one form, which the engine joins: large negative numbers that are added to scores.

Exporters write them also as a choice between scores and such a number, and guard the probabilities against rows of which
everything is hidden. What is hidden has the probability 0 in either form.
"""

from __future__ import annotations

import numpy as np

from circle_train.ir import DType, Graph, Node, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ir.tensor_type import Array
from circle_train.ops.numeric.activation import Softmax
from circle_train.ops.numeric.arithmetic import Add
from circle_train.ops.numeric.logic import NotEqual
from circle_train.ops.numeric.select import SelectV2

HIDES = -1e9
"""At most this hides a score from a row that sees another one."""
ABSORBS = -1e30
"""At most this is the same number with a score added to it: rows of which everything is hidden stay as they are, too."""


def add_masks(graph: Graph) -> None:
    """Replace choices by sums, and drop guards of rows that see something."""
    known: dict[tuple[object, float, int], Tensor] = {}
    for node in [node for node in graph.nodes if type(node.op) is SelectV2]:
        made = _as_sum(graph, node, known)
        if made:
            graph.replace([node], *made)
        elif _guards_nothing(node):
            graph.redirect(node.outputs[0], _given(node)[2])


def _given(node: Node) -> list[Tensor]:
    return [tensor for tensor in node.inputs if tensor is not None]


def _as_sum(graph: Graph, node: Node, known: dict[tuple[object, float, int], Tensor]) -> list[Node]:
    """What makes the same probabilities; nothing where it is no such choice."""
    condition, *ways = _given(node)
    (out,) = node.outputs
    reader = graph.only_reader(out)
    if reader is None or type(reader.op) is not Softmax or out in graph.outputs:
        return []
    for place, (hidden, scores) in enumerate((ways, ways[::-1])):
        least = _number(hidden)
        if least is None or scores.shape != out.shape or scores.dtype is not DType.FLOAT32:
            continue
        sees = condition.is_constant and _every_row(condition.data if place else ~condition.data)
        if least > (HIDES if sees else ABSORBS):
            continue
        mask = Tensor(f"{out.name}:mask", TensorType(DType.FLOAT32, condition.shape))
        chosen = [hidden, constant(np.zeros((), np.float32))]
        choice = Node(SelectV2(), [condition, *(chosen[::-1] if place else chosen)], [mask], node.index)
        if not condition.is_constant:
            return [choice, Node(Add(), [scores, mask], [out], node.index)]
        key = condition.buffer, least, place
        known[key] = known.get(key) or constant(_chosen(choice), mask.name)
        return [Node(Add(), [scores, known[key]], [out], node.index)]
    return []


def _number(tensor: Tensor) -> float | None:
    is_one = tensor.is_constant and tensor.state is None and tensor.type.size == 1
    return float(tensor.data.reshape(())) if is_one and tensor.dtype is DType.FLOAT32 else None


def _chosen(node: Node) -> Array:
    return np.asarray(node.op.forward(*(tensor.data for tensor in _given(node))), np.float32)


def _every_row(seen: Array) -> bool:
    return bool(seen.ndim) and bool(seen.any(-1).all())


def _guards_nothing(node: Node) -> bool:
    """Whether it puts 0 for what is no number among probabilities, of which every row sees something."""
    condition, zero, probabilities = _given(node)
    asks, softmax = condition.producer, probabilities.producer
    if asks is None or type(asks.op) is not NotEqual or set(asks.inputs) != {probabilities}:
        return False
    if softmax is None or type(softmax.op) is not Softmax or _number(zero) != 0:
        return False
    shift = _given(softmax)[0].producer
    if shift is None or type(shift.op) is not Add:
        return False
    return any(t.is_constant and t.state is None and _every_row(t.data > HIDES) for t in _given(shift))
