"""Randomness: dropout in training multiplies by a mask, and what a model draws is drawn anew in each training pass."""

from __future__ import annotations

from dataclasses import replace

from circle_train.errors import UnsupportedOpError
from circle_train.ir import DType, Graph, Node, StateKey, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ir.node import Dropout
from circle_train.ops.internal.dropout import DropoutMask
from circle_train.ops.numeric.arithmetic import Mul
from circle_train.ops.numeric.draw import Draw, Drawn, Multinomial, RandomUniform, Seeded

RANDOM = StateKey("scalars", "random")
"""The session's seed, the number of training passes so far, and the part of the batch: they decide what a pass drops."""


def tell_draws_apart(graph: Graph) -> None:
    """Give draws without a seed the operator's place as theirs, so that no two draw the same."""
    for node in graph.nodes:
        if isinstance(node.op, Seeded) and not (node.op.seed or node.op.seed2):
            node.op = replace(node.op, seed2=node.index + 1)


def refuse_draws(graph: Graph) -> None:
    """Within a loop each pass would draw the same numbers."""
    found = next((node for node in graph.nodes if isinstance(node.op, Seeded)), None)
    if found is not None:
        raise UnsupportedOpError(
            f"{found}: draws within a loop or a branch, where each pass would draw the same; draw before it"
        )


def randomise(graph: Graph, drops: bool) -> None:
    """Make draws depend on the pass and, where asked for, drop at random."""
    random = Tensor("random", TensorType(DType.INT64, (3,)), state=RANDOM)
    for node in [node for node in graph.nodes if isinstance(node.op, Multinomial)]:
        graph.replace([node], *_from_uniform(node, node.op))
    for node in [node for node in graph.nodes if isinstance(node.op, Draw)]:
        made = Node(Drawn(node.op), [node.inputs[0], random], list(node.outputs), node.index)
        graph.replace([node], made)
    if drops:
        _drop_at_random(graph, random)


def _from_uniform(node: Node, op: Multinomial) -> list[Node]:
    """The numbers that classes are drawn by, and the classes."""
    logits, count = node.inputs
    assert logits is not None and count is not None
    shape = constant(op.shape(logits.type, count.data), f"{node.outputs[0].name}:shape")
    numbers = Tensor(f"{node.outputs[0].name}:numbers", TensorType(DType.FLOAT32, node.outputs[0].shape))
    drawn = Node(RandomUniform(op.seed, op.seed2), [shape], [numbers], node.index)
    return [drawn, Node(op.places, [logits, numbers], list(node.outputs), node.index)]


def _drop_at_random(graph: Graph, random: Tensor) -> None:
    """Replace each such node by a product with its mask."""
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
