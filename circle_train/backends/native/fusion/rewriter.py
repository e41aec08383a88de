"""Replacing groups of nodes by one, and putting the nodes into an order in which they can run again."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from circle_train.ir import Graph, Node, StateKey, Tensor
from circle_train.ir.graph import stored_in
from circle_train.ops.internal.fused import Fused, Part
from circle_train.ops.internal.gradient import GuardFinite


class Rewriter:
    """A graph with its readers known, while passes replace its nodes; `settle` writes the result back."""

    def __init__(self, graph: Graph, keep: Iterable[Tensor]) -> None:
        self.graph = graph
        self.keep = set(keep)
        self.position: dict[Node, float] = {node: float(i) for i, node in enumerate(graph.nodes)}
        self.since = dict(self.position)
        """Where the first of a node's members stood: what it reads of the states is what they held there."""
        self.readers: dict[Tensor, list[Node]] = {}
        self._joined: dict[Node, list[tuple[Node, float, float]]] = {}
        """The members of each node that stands for several, with their position and since, in the order of joining."""
        for node in graph.nodes:
            self._read(node)

    def nodes(self) -> list[Node]:
        """The present nodes, in order."""
        return sorted(self.position, key=self.position.__getitem__)

    def only_reader(self, tensor: Tensor) -> Node | None:
        """The node that alone reads the tensor; None if there are others or it must be kept."""
        readers = self.readers.get(tensor, [])
        return readers[0] if len(readers) == 1 and tensor not in self.keep else None

    def producer(self, tensor: Tensor | None) -> Node | None:
        """The node that makes the tensor."""
        made = tensor.producer if tensor is not None else None
        return made if made in self.position else None

    def replace(self, members: Sequence[Node], *nodes: Node) -> None:
        """Put nodes in the place of the last member; they make the same tensors as far as those are read."""
        place = max(self.position[m] for m in members)
        since = min(self.since[m] for m in members)
        if len(members) > 1 and len(nodes) == 1:
            self._joined[nodes[0]] = [(m, self.position[m], self.since[m]) for m in members]
        for member in members:
            self._take_out(member)
        for i, node in enumerate(nodes):
            self.insert(node, place + i / 64)
            self.since[node] = since

    def drop(self, nodes: Iterable[Node]) -> None:
        """Remove those of the nodes that nobody reads."""
        for node in nodes:
            if not any(self.readers.get(t) or t in self.keep for t in node.outputs):
                self._take_out(node)

    def insert(self, node: Node, place: float) -> None:
        self.position[node] = self.since[node] = place
        for tensor in node.outputs:
            tensor.producer = node
        self._read(node)

    def fuse(
        self, members: Sequence[Node], kernel: str, roles: Mapping[str, Tensor | None], results: Sequence[Tensor],
        settings: Any = None, overwrites: Sequence[Tensor] = (),
    ) -> Node:  # fmt: skip
        """One node that computes all the members; what has no role is read too, but not named."""
        members = sorted(members, key=self.position.__getitem__)
        node = fused_node(members, kernel, roles, results, settings, overwrites)
        self.replace(members, node)
        return node

    def settle(self) -> None:
        """Write the nodes back in an order in which they can run; what cannot be one node after all is several again."""
        order, cycle = ordered(self.position, self.since)
        while cycle:
            self._separate(next(node for node in reversed(self._joined) if node in cycle))
            order, cycle = ordered(self.position, self.since)
        self.graph.nodes = order

    def _separate(self, node: Node) -> None:
        self._take_out(node)
        for member, place, since in self._joined.pop(node):
            self.insert(member, place)
            self.since[member] = since

    def _take_out(self, node: Node) -> None:
        del self.position[node], self.since[node]
        for tensor in {t for t in node.inputs if t is not None}:
            self.readers[tensor].remove(node)

    def _read(self, node: Node) -> None:
        for tensor in dict.fromkeys(t for t in node.inputs if t is not None):
            self.readers.setdefault(tensor, []).append(node)


def fused_node(
    members: Sequence[Node], kernel: str, roles: Mapping[str, Tensor | None], results: Sequence[Tensor], settings: Any,
    overwrites: Sequence[Tensor],
) -> Node:  # fmt: skip
    """The node without its place in a graph."""
    made = {out for member in members for out in member.outputs}
    named: dict[Tensor, list[str]] = {}
    for role, tensor in roles.items():
        if tensor is not None:
            named.setdefault(tensor, []).append(role)
    read = [t for m in members for t in m.inputs if t is not None and t not in made]
    inputs = list(dict.fromkeys([*named, *read]))
    number = {tensor: i for i, tensor in enumerate(inputs)}
    op = Fused(
        kernel=kernel,
        roles=tuple(tuple(named.get(tensor, [f"_{i}"])) for i, tensor in enumerate(inputs)),
        parts=tuple(_parts(members, number)),
        results=tuple(number[tensor] for tensor in results),
        types=tuple(tensor.type for tensor in results),
        settings=settings,
        writes=any(member.op.mutates for member in members),
        overwrites=tuple(number[tensor] for tensor in overwrites if tensor in inputs),
    )
    first = next((m for m in members if m.index >= 0), members[0])
    node = Node(op, list(inputs), list(results), first.index)
    node.members = [n for m in members for n in m.originals]
    return node


def _parts(members: Sequence[Node], number: dict[Tensor, int]) -> list[Part]:
    """The members' ops over numbered values; fused members are written out."""
    count = len(number)
    parts = []
    for member in members:
        op = member.op
        if not isinstance(op, Fused):
            inputs = tuple(None if t is None else number[t] for t in member.inputs)
            for tensor in member.outputs:
                number[tensor], count = count, count + 1
            parts.append(Part(op, inputs, tuple(number[t] for t in member.outputs)))
            continue
        inner = {i: number[t] for i, t in enumerate(member.inputs) if t is not None}
        for part in op.parts:
            for value in part.outputs:
                inner[value], count = count, count + 1
            mapped = tuple(None if i is None else inner[i] for i in part.inputs)
            parts.append(Part(part.op, mapped, tuple(inner[o] for o in part.outputs)))
        number.update({t: inner[r] for t, r in zip(member.outputs, op.results, strict=True)})
    return parts


def ordered(places: Mapping[Node, float], since: Mapping[Node, float]) -> tuple[list[Node], list[Node]]:
    """The nodes so that each follows its makers, writers of a state follow its readers, and updates follow the guard.

    Where there is no such order: nodes that wait for one another in a circle.
    """
    nodes = sorted(places, key=places.__getitem__)
    position = {node: i for i, node in enumerate(nodes)}
    after = {
        node: {t.producer for t in node.inputs if t is not None and t.producer in position} for node in nodes
    }
    guards = [node for node in nodes if isinstance(node.op, GuardFinite)]
    accesses: dict[StateKey, list[tuple[Node, bool]]] = {}
    for _, node, state, writes in sorted(_accesses(places, since), key=lambda access: access[0]):
        before = accesses.setdefault(state, [])
        after[node].update(other for other, wrote in before if wrote or writes)
        before.append((node, writes))
    for node in nodes:
        if node.op.mutates and node not in guards:
            after[node].update(guards)
        after[node].discard(node)
    return _topological(nodes, position, after)


def _accesses(
    places: Mapping[Node, float], since: Mapping[Node, float]
) -> Iterator[tuple[float, Node, StateKey, bool]]:
    """When each node reads a state or (True) writes it, be it through a view."""
    for node, place in places.items():
        written = _written(node)
        for tensor in node.inputs:
            state = None if tensor is None else stored_in(tensor).state
            if state is None or state.kind == "scalars":
                continue
            yield since[node], node, state, False
            if tensor in written:
                yield place, node, state, True


def _written(node: Node) -> set[Tensor | None]:
    """The inputs that a node may write into: of several nodes in one, those of the updates among them."""
    op = node.op
    if not op.mutates:
        return set()
    if not isinstance(op, Fused):
        return set(node.inputs)
    numbers = {i for part in op.parts if part.op.mutates for i in part.inputs if i is not None}
    return {tensor for i, tensor in enumerate(node.inputs) if i in numbers}


def _topological(
    nodes: Sequence[Node], position: dict[Node, int], after: dict[Node, set[Node]]
) -> tuple[list[Node], list[Node]]:
    """The earliest of the ready nodes first; and a cycle, if not all become ready."""
    waiting = {node: len(makers) for node, makers in after.items()}
    followers: dict[Node, list[Node]] = {}
    for node, makers in after.items():
        for maker in makers:
            followers.setdefault(maker, []).append(node)
    ready = [position[node] for node in nodes if not waiting[node]]
    heapq.heapify(ready)
    order = []
    while ready:
        node = nodes[heapq.heappop(ready)]
        order.append(node)
        for follower in followers.get(node, ()):
            waiting[follower] -= 1
            if not waiting[follower]:
                heapq.heappush(ready, position[follower])
    return order, [] if len(order) == len(nodes) else _cycle(after, set(order))


def _cycle(after: dict[Node, set[Node]], done: set[Node]) -> list[Node]:
    """Whoever waits, waits for somebody who waits: sooner or later for somebody we have met."""
    node = next(node for node in after if node not in done)
    met: list[Node] = []
    while node not in met:
        met.append(node)
        node = next(maker for maker in after[node] if maker not in done)
    return met[met.index(node) :]
