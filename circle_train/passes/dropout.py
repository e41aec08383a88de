"""Dropout in training: the nodes that a converted model marks multiply by a random mask."""

from __future__ import annotations

from circle_train.ir import DType, Graph, Node, StateKey, Tensor, TensorType
from circle_train.ops.internal.dropout import DropoutMask
from circle_train.ops.numeric.arithmetic import Mul

MARK = "dropout"
"""What such a node carries: {"ratio": …, "seed": … or None}; it passes its input on unchanged."""
RANDOM = StateKey("scalars", "random")
"""The session's seed and the number of training passes so far; both decide what a pass drops."""


def drop_at_random(graph: Graph) -> None:
    """Replace each marked node by a product with its mask."""
    random = Tensor("random", TensorType(DType.INT64, (2,)), state=RANDOM)
    marked = [node for node in graph.nodes if MARK in node.carried]
    for number, node in enumerate(marked):
        graph.replace([node], *_masked(node, random, number))


def _masked(node: Node, random: Tensor, number: int) -> list[Node]:
    """The mask and the product that makes the node's output."""
    (output,), settings = node.outputs, node.carried[MARK]
    op = DropoutMask(output.shape, float(settings["ratio"]), settings.get("seed"), number)
    mask = Tensor(f"{output.name}:mask", TensorType(DType.FLOAT32, output.shape))
    made = Node(op, [random], [mask], node.index)
    return [made, Node(Mul(), [node.inputs[0], mask], [output], node.index)]
