"""When the tensors of a graph are made and read, and what lives meanwhile."""

from __future__ import annotations

from itertools import accumulate

from circle_train.ir import Graph, Node, StateKey, Tensor
from circle_train.ir.lifetimes import Block, Order, lifetimes


class Timeline:
    """A graph's memory, step by step."""

    def __init__(self, graph: Graph | Order) -> None:
        self.order = Order(graph.inputs, graph.outputs, graph.nodes)
        self.blocks, self.views = lifetimes(graph, graph.outputs)
        self.made: dict[Tensor, int] = {t: s for s, node in enumerate(graph.nodes) for t in node.outputs}
        self.live = self._live()
        self.fullest = max(range(len(self.live)), key=self.live.__getitem__, default=0)
        self.touched: dict[Block, list[int]] = {}
        """The steps that read or write something in a block, in order."""
        self.read_until: dict[Tensor, int] = {}
        """The last step that reads a tensor, itself or as a view."""
        self.written: dict[StateKey, list[int]] = {}
        """The steps that change a state."""
        for step, node in enumerate(graph.nodes):
            self._note(step, node)
        for node in reversed(graph.nodes):
            if node.op.view_input is not None and (viewed := node.inputs[node.op.view_input]) is not None:
                until = self.read_until.get(node.outputs[0], -1)
                self.read_until[viewed] = max(until, self.read_until[viewed])

    @property
    def most(self) -> int:
        """Bytes in the fullest moment."""
        return self.live[self.fullest] if self.live else 0

    @property
    def fullness(self) -> tuple[int, int]:
        """Bytes in the fullest moment, and how many moments are as full."""
        return self.most, self.live.count(self.most)

    def idle(self) -> list[tuple[Block, int]]:
        """The blocks that are kept over the fullest moment and when each is touched next; those of outputs apart."""
        found = []
        for block, steps in self.touched.items():
            if block.first >= self.fullest or block.last <= self.fullest or block.last >= len(self.live):
                continue
            following = next((step for step in steps if step >= self.fullest), self.fullest)
            if following > self.fullest:
                found.append((block, following))
        return found

    def _live(self) -> list[int]:
        steps = len(self.order.nodes)
        change = [0] * (steps + 2)
        for block in dict.fromkeys(self.blocks.values()):
            change[max(block.first, 0)] += block.nbytes
            change[min(block.last, steps) + 1] -= block.nbytes
        return list(accumulate(change))[:steps]

    def _note(self, step: int, node: Node) -> None:
        for tensor in (*node.inputs, *node.outputs):
            if tensor is None:
                continue
            block = self.blocks.get(tensor)
            if block is not None:
                self.touched.setdefault(block, []).append(step)
            if tensor.state is not None and node.op.mutates:
                self.written.setdefault(tensor.state, []).append(step)
        for tensor in node.inputs:
            if tensor is not None:
                self.read_until[tensor] = step
