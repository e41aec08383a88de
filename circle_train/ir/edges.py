"""Who reads what in a graph, and the order in which its nodes run: both stay right while nodes come and go."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from circle_train.ir.node import Node, Tensor


class Edges:
    """The nodes as a linked list, each with a number that grows along it; what must be done in constant time is."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.readers: dict[Tensor, dict[Node, None]] = {}
        self.place: dict[Node, float] = {}
        """Grows from node to node; a node comes behind all that it depends on."""
        self._next: dict[Node | None, Node | None] = {None: None}
        self._previous: dict[Node | None, Node | None] = {None: None}
        self._later: dict[Node, dict[Node, None]] = {}
        """Nodes that must run later, though they need not read what this one makes."""
        self._earlier: dict[Node, dict[Node, None]] = {}
        for node in nodes:
            self.insert(node, self._previous[None])

    def __iter__(self) -> Iterator[Node]:
        node = self._next[None]
        while node is not None:
            yield node
            node = self._next[node]

    def before(self, node: Node) -> Node | None:
        """The node that runs just before; None where there is none."""
        return self._previous[node]

    @property
    def last(self) -> Node | None:
        return self._previous[None]

    def insert(self, node: Node, after: Node | None) -> None:
        """Behind another node; None: at the start."""
        self._link(node, after)
        self._read(node)

    def remove(self, node: Node) -> None:
        self._unlink(node)
        self._unread(node)
        for there, back in ((self._later, self._earlier), (self._earlier, self._later)):
            for other in there.pop(node, ()):
                back[other].pop(node, None)

    def reconnect(self, node: Node, inputs: Sequence[Tensor | None]) -> None:
        """Let the node read other tensors."""
        self._unread(node)
        node.inputs = list(inputs)
        self._read(node)

    def hold(self, node: Node, until: Node) -> None:
        """The node must run later than the other one."""
        if node is not until:
            for there, one, other in ((self._later, until, node), (self._earlier, node, until)):
                if one in there:
                    there[one][other] = None
                else:
                    there[one] = {other: None}

    def inherit(self, node: Node, member: Node) -> None:
        """What a member had to wait for, or waited for it, holds for the node."""
        for other in self._later.get(member, ()):
            self.hold(other, node)
        for other in self._earlier.get(member, ()):
            self.hold(node, other)

    def later(self, node: Node) -> Iterator[Node]:
        """The nodes that read what this one makes or must run later for another reason."""
        for tensor in node.outputs:
            yield from self.readers.get(tensor, ())
        yield from self._later.get(node, ())

    def between(self, members: Collection[Node]) -> list[Node] | None:
        """The others that depend on members and run before the last of them; None where a member depends on these."""
        if len(members) == 1:
            return []
        end = max(self.place[member] for member in members)
        found: set[Node] = set()
        waiting = [node for member in members for node in self.later(member) if node not in members]
        while waiting:
            node = waiting.pop()
            if node in members:
                return None
            if node not in found and self.place[node] < end:
                found.add(node)
                waiting.extend(self.later(node))
        return sorted(found, key=self.place.__getitem__)

    def move(self, nodes: Iterable[Node], after: Node) -> None:
        """Behind another node, in the given order."""
        for node in nodes:
            self._unlink(node)
            self._link(node, after)
            after = node

    def _link(self, node: Node, after: Node | None) -> None:
        follower = self._next[after]
        self._next[after] = self._previous[follower] = node
        self._previous[node], self._next[node] = after, follower
        low = self.place[after] if after is not None else (self.place[follower] if follower else 0.0) - 2
        high = self.place[follower] if follower is not None else low + 2
        self.place[node] = middle = (low + high) / 2
        if not low < middle < high:
            self.place = {each: float(number) for number, each in enumerate(self)}

    def _unlink(self, node: Node) -> None:
        before, follower = self._previous.pop(node), self._next.pop(node)
        self._next[before], self._previous[follower] = follower, before
        del self.place[node]

    def _read(self, node: Node) -> None:
        readers = self.readers
        for tensor in node.inputs:
            if tensor in readers:
                readers[tensor][node] = None
            elif tensor is not None:
                readers[tensor] = {node: None}

    def _unread(self, node: Node) -> None:
        for tensor in node.inputs:
            if tensor is not None:
                self.readers[tensor].pop(node, None)
