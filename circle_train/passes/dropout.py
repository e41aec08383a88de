"""Dropout in training: the nodes that stand for it multiply by a random mask."""

from __future__ import annotations

from circle_train.ir import DType, Graph, Node, StateKey, Tensor, TensorType
from circle_train.ir.node import Dropout
from circle_train.ops.internal.dropout import DropoutMask
from circle_train.ops.numeric.arithmetic import Mul

RANDOM = StateKey("scalars", "random")
"""The session's seed, the number of training passes so far, and the part of the batch: they decide what a pass drops."""


def drop_at_random(graph: Graph) -> None:
    """Replace each such node by a product with its mask."""
    random = Tensor("random", TensorType(DType.INT64, (3,)), state=RANDOM)
    marked = [(node, node.hint) for node in graph.nodes if isinstance(node.hint, Dropout)]
    for number, (node, hint) in enumerate(marked):
        graph.replace([node], *_masked(node, hint, random, number))


def _masked(node: Node, hint: Dropout, random: Tensor, number: int) -> list[Node]:
    """The mask and the product that makes the node's output."""
    (output,) = node.outputs
    op = DropoutMask(output.shape, hint.ratio, hint.seed, number)
    mask = Tensor(f"{output.name}:mask", TensorType(DType.FLOAT32, output.shape))
    made = Node(op, [random], [mask], node.index)
    return [made, Node(Mul(), [node.inputs[0], mask], [output], node.index)]
