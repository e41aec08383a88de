"""Results that are not kept but made again: for each, the nodes that made it run once more before it is next read.

What is left out of memory is chosen greedily. In the moment when memory is fullest, every block that lies idle is a
candidate: it is touched before and again later. To have it later, its maker runs again on what is then still there;
what is not there any more is made again too. The candidate that saves most for its work is taken, and the same is
asked of the graph that this gives, until the fullest moment fits. Nodes that run twice compute the same bits twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import field, replace
from math import inf
from operator import itemgetter

from circle_train.compile.memory import plan_memory
from circle_train.compile.program import Program
from circle_train.compile.thrift.timeline import Timeline
from circle_train.compile.thrift.work import work
from circle_train.ir import Graph, Node, Tensor
from circle_train.ir.lifetimes import Block, Order
from circle_train.ir.verify import verify
from circle_train.passes.dead import needed_nodes
from circle_train.record import mutable

LONGEST = 24
"""So many nodes, at most, are run again to have one block."""
SMALL = 1 / 8
"""What is no longer there is kept rather than made again if it takes less than this share of what is saved."""


def recompute(program: Program, limit: int) -> Program:
    """The program with as few results kept as its arena needs to fit the limit, or with the least arena there is."""
    limit -= program.arena_bytes - program.memory.nbytes
    order, again, least = _lessened(program, limit, limit)
    if least > limit > 0:
        # Which results to drop depends on how many bytes are asked for: what asks for all may reach lower.
        order, again, least = min((order, again, least), _lessened(program, limit, 0), key=itemgetter(2))
    return rebuilt(program, order, again) if order.nodes else program


def _lessened(program: Program, limit: int, goal: int) -> tuple[Order, Set[Tensor], int]:
    """An order, what it makes a second time, and the bytes that it takes: none where the program's own takes fewer."""
    best, least = Order([], [], []), program.memory.nbytes
    thrift = Thrift(program.graph)
    while least > limit and thrift.reduce(goal):
        nbytes = plan_memory(thrift.order, program.draft.keep).nbytes
        if nbytes < least:
            best, least = thrift.order, nbytes
        goal -= max(nbytes - limit, 1)
    return best, set(thrift.originals), least


def rebuilt(program: Program, order: Order, again: Set[Tensor]) -> Program:
    """The program with its nodes in this order, `again` being made a second time; graph and results are its own."""
    twins = {t: replace(t, producer=None) for node in order.nodes for t in node.outputs}
    nodes = [
        replace(
            node,
            inputs=[t if t is None else twins.get(t, t) for t in node.inputs],
            outputs=[twins[t] for t in node.outputs],
        )
        for node in order.nodes
    ]
    made = dict(zip(order.nodes, nodes, strict=True))
    operators = [made.get(node, node) for node in program.operators]
    repeats = [n for n, old in zip(nodes, order.nodes, strict=True) if any(t in again for t in old.outputs)]
    graph = Graph(program.graph.name, order.inputs, [twins.get(t, t) for t in order.outputs], nodes)
    verify(graph)
    draft = program.draft.reading(graph, twins)
    memory = plan_memory(graph, draft.keep)
    return replace(program, graph=graph, operators=operators, memory=memory, draft=draft, repeats=repeats)


class Thrift:
    """An order whose fullest moment is made smaller step by step."""

    def __init__(self, graph: Graph, dear: float = inf) -> None:
        self.timeline = Timeline(graph)
        self.dear = dear
        """So much work for each byte saved, and no more."""
        self.originals: dict[Tensor, Tensor] = {}
        """What each tensor that is made again is a twin of."""
        self.added = 0.0
        """The work of what is made again."""
        self._works: dict[Tensor, float] = {}

    @property
    def order(self) -> Order:
        return self.timeline.order

    def reduce(self, goal: int) -> bool:
        """Drop blocks until the fullest moment takes no more than the goal; whether anything could be dropped."""
        progress = False
        while self.timeline.most > goal and self.drop_one(goal):
            progress = True
        return progress

    def drop_one(self, goal: int) -> bool:
        """Take the best candidate that makes the fullest moment smaller, or leaves fewer that are as full.

        Each is a step down that none can undo: two moments of the same size cannot take turns for ever.
        """
        timeline = self.timeline
        excess = timeline.most - goal
        found = [Repeat(self, block, step) for block, step in timeline.idle()]
        found = [repeat for repeat in found if repeat.plan() and repeat.saved > 0]
        found = [repeat for repeat in found if repeat.cost <= self.dear * repeat.saved]
        for repeat in sorted(found, key=lambda r: min(r.saved, excess) / max(r.cost, 1.0), reverse=True):
            after = Timeline(repeat.applied())
            if after.fullness < timeline.fullness:
                self.timeline, self.added = after, self.added + repeat.cost
                self.originals.update((twin, self.original(t)) for t, twin in repeat.twins.items())
                return True
        return False

    def work_of(self, node: Node) -> float:
        """The work of a node that makes something, the same for its twins."""
        first = self.original(node.outputs[0])
        if first not in self._works:
            self._works[first] = work(node)
        return self._works[first]

    def original(self, tensor: Tensor) -> Tensor:
        return self.originals.get(tensor, tensor)

    def versions(self, tensor: Tensor) -> list[Tensor]:
        """The tensors of the present graph that hold the same values."""
        original = self.original(tensor)
        twins = [twin for twin, of in self.originals.items() if of is original]
        return [t for t in (original, *twins) if t in self.timeline.made]


@mutable
class Repeat:
    """The nodes to run again before a step so that a block can be dropped until then."""

    thrift: Thrift
    block: Block
    step: int
    nodes: list[Node] = field(default_factory=list)
    twins: dict[Tensor, Tensor] = field(default_factory=dict)
    kept: set[Block] = field(default_factory=set)
    """What must then live until the step."""
    work: float = 0.0
    _later: dict[Tensor, Tensor] = field(default_factory=dict)
    """What is made again after the step already, and need not be then."""

    @property
    def saved(self) -> int:
        """Bytes in the fullest moment, as far as can be said without making the graph."""
        fullest = self.thrift.timeline.fullest
        return self.block.nbytes - sum(b.nbytes for b in self.kept if b.last < fullest)

    @property
    def cost(self) -> float:
        """The work of what runs again, without that which this makes superfluous."""
        timeline = self.thrift.timeline
        spared = {timeline.made[t] for t in self._later}
        return self.work - sum(self.thrift.work_of(timeline.order.nodes[step]) for step in spared)

    def plan(self) -> bool:
        """Find the nodes; False where there is no way."""
        timeline = self.thrift.timeline
        wanted = [
            t
            for t in self.block.tensors
            if timeline.made.get(t, -1) < timeline.fullest and timeline.read_until.get(t, -1) >= self.step
        ]
        return all(self._make(t) is not None for t in wanted)

    def applied(self) -> Order:
        """The order with the nodes run again and read from the step on."""
        order, instead = self.thrift.order, {**self.twins, **self._later}
        later = [_reading(node, instead) for node in order.nodes[self.step :]]
        nodes = [*order.nodes[: self.step], *self.nodes, *later]
        return replace(order, nodes=needed_nodes(nodes, order.outputs))

    def _make(self, tensor: Tensor) -> Tensor | None:
        """The twin of a tensor, its maker planned before it; None if that cannot run again."""
        if tensor in self.twins:
            return self.twins[tensor]
        timeline = self.thrift.timeline
        if tensor not in timeline.made or len(self.nodes) >= LONGEST:
            return None
        node = timeline.order.nodes[timeline.made[tensor]]
        if node.op.mutates:
            return None
        inputs: list[Tensor | None] = []
        for given in node.inputs:
            found = None if given is None else self._find(given, timeline.made[tensor])
            if given is not None and found is None:
                return None
            inputs.append(found)
        outputs = [Tensor(t.name, t.type) for t in node.outputs]
        for t, twin in zip(node.outputs, outputs, strict=True):
            self.twins[t] = twin
            self._later.update((v, twin) for v in self.thrift.versions(t) if timeline.made[v] >= self.step)
        self.nodes.append(Node(node.op, inputs, outputs, node.index))
        self.work += self.thrift.work_of(node)
        return self.twins[tensor]

    def _find(self, tensor: Tensor, since: int) -> Tensor | None:
        """What to read instead of a tensor: itself where it is still there, or a twin that is, or one made for this."""
        timeline = self.thrift.timeline
        state = timeline.views.get(tensor, tensor).state
        if state is not None and any(since < s < self.step for s in timeline.written.get(state, ())):
            return None
        block = timeline.blocks.get(tensor)
        if block is None:
            return tensor
        for version in (tensor, *self.thrift.versions(tensor)):
            if self._is_there(version):
                return version
        if tensor in timeline.made and (block is self.block or block.nbytes > SMALL * self.block.nbytes):
            return self._make(tensor)
        self.kept.add(block)
        return tensor

    def _is_there(self, tensor: Tensor) -> bool:
        """Whether it is made before the step, still read later, and not what is dropped."""
        timeline = self.thrift.timeline
        if timeline.blocks[tensor] is self.block:
            return False
        return timeline.made.get(tensor, -1) < self.step <= timeline.read_until.get(tensor, -1)


def _reading(node: Node, instead: Mapping[Tensor, Tensor]) -> Node:
    """The node with other tensors in the place of its inputs; itself where that changes nothing."""
    if not any(t in instead for t in node.inputs if t is not None):
        return node
    inputs = [None if t is None else instead.get(t, t) for t in node.inputs]
    return Node(node.op, inputs, node.outputs, node.index, node.originals)
