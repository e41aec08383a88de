"""When each tensor of a graph holds something, and which tensors share memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from itertools import accumulate

from circle_train.ir import Graph, Node, Tensor
from circle_train.record import mutable

ALIGNMENT = 64


@mutable
class Block:
    """A piece of the arena and the steps between which it holds something."""

    nbytes: int
    first: int
    last: int
    offset: int = 0
    tensors: list[Tensor] = field(default_factory=list)


@mutable
class Order:
    """Nodes in an order in which they can run, between inputs and outputs; they may be another graph's."""

    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    nodes: Sequence[Node]


def live_bytes(graph: Graph) -> list[int]:
    """What must be in memory during each of the graph's nodes."""
    blocks, _ = lifetimes(graph, graph.outputs)
    change = [0] * (len(graph.nodes) + 2)
    for block in dict.fromkeys(blocks.values()):
        change[max(block.first, 0)] += block.nbytes
        change[min(block.last, len(graph.nodes)) + 1] -= block.nbytes
    return list(accumulate(change))[: len(graph.nodes)]


def lifetimes(
    graph: Graph | Order, keep: Iterable[Tensor]
) -> tuple[dict[Tensor, Block], dict[Tensor, Tensor]]:
    """The block of every tensor, and the tensors that are views of what lies outside the arena."""
    last_use = _last_uses(graph, keep)
    blocks: dict[Tensor, Block] = {}
    views: dict[Tensor, Tensor] = {}
    for tensor in graph.inputs:
        blocks[tensor] = Block(_padded(tensor), -1, last_use.get(tensor, -1), tensors=[tensor])
    for step, node in enumerate(graph.nodes):
        for position, output in enumerate(node.outputs):
            shared = _shared_input(node, position, step, blocks, last_use)
            if shared is None:
                blocks[output] = Block(_padded(output), step, last_use.get(output, step), tensors=[output])
            elif shared in blocks:
                block = blocks[output] = blocks[shared]
                block.last = max(block.last, last_use.get(output, step))
                block.tensors.append(output)
            else:
                views[output] = views.get(shared, shared)
    return blocks, views


def _last_uses(graph: Graph | Order, keep: Iterable[Tensor]) -> dict[Tensor, int]:
    last_use = {t: step for step, node in enumerate(graph.nodes) for t in node.inputs if t is not None}
    last_use.update((tensor, len(graph.nodes)) for tensor in keep)
    return last_use


def _shared_input(
    node: Node, position: int, step: int, blocks: dict[Tensor, Block], last_use: dict[Tensor, int]
) -> Tensor | None:
    """The input whose memory this output takes over: always for a view, in place when nobody reads it later."""
    if position > 0:
        return None
    output = node.outputs[0]
    if node.op.view_input is not None:
        viewed: int = node.op.view_input
        return node.inputs[viewed]
    for index in node.op.inplace_inputs:
        candidate: Tensor | None = node.inputs[index] if index < len(node.inputs) else None
        if candidate is None or candidate not in blocks or candidate.type.nbytes != output.type.nbytes:
            continue
        block = blocks[candidate]
        alone = all(t is candidate or t is None or blocks.get(t) is not block for t in node.inputs)
        if alone and block.last == step and candidate.dtype == output.dtype:
            return candidate
    return None


def _padded(tensor: Tensor) -> int:
    return max(-(-tensor.type.nbytes // ALIGNMENT) * ALIGNMENT, ALIGNMENT)
