"""A program's graph while its nodes are joined; the order in which states are read and written stays."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from circle_train.ir import Graph, Node, StateKey, Tensor
from circle_train.ir.views import stored_in
from circle_train.ops.internal.fused import Fused, Part
from circle_train.ops.internal.gradient import GuardFinite


class Rewriter:
    """The graph owns its edges; this adds what must be kept, and who may not pass whom though neither reads the other."""

    def __init__(self, graph: Graph, keep: Iterable[Tensor]) -> None:
        self.graph = graph
        self.keep = set(keep)
        self._accesses: dict[StateKey, tuple[dict[Node, None], dict[Node, None]]] = {}
        """Who only reads a state, and who writes it; among them some that are gone."""
        self.views: dict[Tensor, Tensor] = {}
        """Whose memory they show, which no joining changes."""
        self.numbers: dict[tuple[Tensor, float], Tensor] = {}
        """What the updates of a rule read, by where the session writes it and the limit to which they clip."""
        writing = [node for node in graph.nodes if node.op.mutates]
        self._guards = [node for node in writing if isinstance(node.op, GuardFinite)]
        self._changes = len(writing) > len(self._guards)
        """Whether anything is written: else all may be read whenever it is wanted."""
        for node in graph.nodes if self._changes else ():
            self._note(node)

    def __contains__(self, node: Node) -> bool:
        return node in self.graph.edges.place

    def nodes(self) -> Sequence[Node]:
        """The present nodes, in order."""
        return self.graph.nodes

    def readers(self, tensor: Tensor | None) -> list[Node]:
        """The nodes that read the tensor."""
        return [] if tensor is None else self.graph.readers(tensor)

    def only_reader(self, tensor: Tensor) -> Node | None:
        """The node that alone reads the tensor; None if there are others or it must be kept."""
        readers = self.readers(tensor)
        return readers[0] if len(readers) == 1 and tensor not in self.keep else None

    def producer(self, tensor: Tensor | None) -> Node | None:
        """The node that makes the tensor."""
        made = tensor.producer if tensor is not None else None
        return made if made is not None and made in self.graph else None

    def is_before(self, node: Node, other: Node) -> bool:
        return self.graph.place(node) < self.graph.place(other)

    def joins(self, members: Collection[Node]) -> bool:
        """Whether one node could do what these do."""
        return self.graph.joins(members)

    def replace(self, members: Sequence[Node], *nodes: Node) -> bool:
        """Put nodes in the place of the last member, unless that waits for what others make of the members' results."""
        if not self.joins(members):
            return False
        self.graph.replace(members, *nodes)
        for node in nodes:
            self._note(node)
        return True

    def drop(self, nodes: Iterable[Node]) -> None:
        """Remove those of the nodes that nobody reads."""
        for node in nodes:
            if not any(self.readers(t) or t in self.keep for t in node.outputs):
                self.graph.remove([node])

    def insert(self, node: Node, *, before: Node | None = None, after: Node | None = None) -> None:
        self.graph.insert(node, before=before, after=after)
        self._note(node)

    def fuse(
        self, members: Sequence[Node], kernel: str, roles: Mapping[str, Tensor | None], results: Sequence[Tensor],
        settings: Any = None, overwrites: Sequence[Tensor] = (),
    ) -> Node | None:  # fmt: skip
        """One node that computes all the members, if one can; what has no role is read too, but not named."""
        between = self.graph.edges.between(members)
        if between is None:
            return None
        members = sorted(members, key=self.graph.place)
        node = fused_node(members, kernel, roles, results, settings, overwrites)
        self.graph.replace(members, node, between=between)
        self._note(node)
        return node

    def _note(self, node: Node) -> None:
        """Writers of a state follow its readers, readers those who wrote before them, and updates follow the guards."""
        if not self._changes:
            return
        hold, place = self.graph.edges.hold, self.graph.edges.place
        if self._guards and node.op.mutates and node not in self._guards:
            for guard in self._guards:
                hold(node, until=guard)
        for state, writes in _accesses(node, self.views):
            if state not in self._accesses:
                self._accesses[state] = {}, {}
            readers, writers = self._accesses[state]
            for known in (readers, writers) if writes else (writers,):
                for other in list(known) if known else ():
                    if other not in place:
                        del known[other]
                    elif other is not node:
                        first, second = (other, node) if place[other] < place[node] else (node, other)
                        hold(second, until=first)
            (writers if writes else readers)[node] = None


def _accesses(node: Node, views: dict[Tensor, Tensor]) -> list[tuple[StateKey, bool]]:
    """The states that a node reads and (True) writes, be it through a view."""
    read = []
    for tensor in node.inputs:
        if tensor is not None:
            state = (tensor if tensor.producer is None else stored_in(tensor, views)).state
            if state is not None and state.kind != "scalars":
                read.append((tensor, state))
    if not read:
        return []
    written = _written(node)
    return [(state, tensor in written) for tensor, state in read]


def _written(node: Node) -> set[Tensor | None]:
    """The inputs that a node may write into: of several nodes in one, those of the updates among them."""
    op = node.op
    if not op.mutates:
        return set()
    if not isinstance(op, Fused):
        return set(node.inputs)
    numbers = {i for part in op.parts if part.op.mutates for i in part.inputs if i is not None}
    return {tensor for i, tensor in enumerate(node.inputs) if i in numbers}


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
        roles=tuple(
            [tuple(named[tensor]) if tensor in named else (f"_{number[tensor]}",) for tensor in inputs]
        ),
        parts=tuple(_parts(members, number)),
        results=tuple([number[tensor] for tensor in results]),
        types=tuple([tensor.type for tensor in results]),
        settings=settings,
        writes=any(member.op.mutates for member in members),
        overwrites=tuple([number[tensor] for tensor in overwrites if tensor in inputs]),
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
            inputs = tuple([None if t is None else number[t] for t in member.inputs])
            made = range(count, count + len(member.outputs))
            number.update(zip(member.outputs, made, strict=True))
            count = made.stop
            parts.append(Part(op, inputs, tuple(made)))
            continue
        inner = {i: number[t] for i, t in enumerate(member.inputs) if t is not None}
        for part in op.parts:
            for value in part.outputs:
                inner[value], count = count, count + 1
            mapped = tuple([None if i is None else inner[i] for i in part.inputs])
            parts.append(Part(part.op, mapped, tuple([inner[o] for o in part.outputs])))
        number.update({t: inner[r] for t, r in zip(member.outputs, op.results, strict=True)})
    return parts
