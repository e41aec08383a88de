"""Graphs, which own the edges between their nodes, and modules, which hold all that is in a file."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from circle_train.ir.edges import Edges
from circle_train.ir.node import Buffer, Node, Operation, Tensor, Variable, known_type, moved
from circle_train.ir.tensor_type import Array, TensorType
from circle_train.record import mutable


class Graph:
    """Nodes in an order in which they can run, between inputs and outputs. It alone says who makes and who reads a tensor:
    nodes come, go and are connected by its methods."""

    def __init__(
        self, name: str = "", inputs: Iterable[Tensor] = (), outputs: Iterable[Tensor] = (),
        nodes: Iterable[Node] = (), tensors: Iterable[Tensor] = (),
    ) -> None:  # fmt: skip
        self.name = name
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        self.tensors = list(tensors)
        """The file's tensor table, in its order, also of tensors that no node uses; empty in graphs we make."""
        self.variables: list[Variable] = []
        """What runs remember, where operators on variables were lowered."""
        self.carried: dict[str, Any] = {}
        self.cursor: Node | None = None
        """What is emitted goes before this node; None: behind all."""
        self.changes = 0
        """How often nodes came, went or were connected otherwise."""
        self.verified: tuple[int, list[Tensor], list[Tensor]] | None = None
        """How many changes there were, and the inputs and outputs, when all was last seen to be right (see ir/verify.py)."""
        self._nodes: list[Node] | None = []
        self._edges: Edges | None = None
        self.append(*nodes)

    def __contains__(self, node: Node) -> bool:
        return node in self.edges.place

    @property
    def nodes(self) -> Sequence[Node]:
        """As they are now: those who change the graph meanwhile go on over what they began with."""
        if self._nodes is None:
            self._nodes = list(self.edges)
        return self._nodes

    @nodes.setter
    def nodes(self, nodes: Iterable[Node]) -> None:
        """Exactly these from now on, in this order."""
        for node in self.nodes:
            _let_go(node)
        self._nodes, self._edges = [], None
        self.changes += 1
        self.append(*nodes)

    @property
    def edges(self) -> Edges:
        if self._edges is None:
            self._edges = Edges(self.nodes)
        return self._edges

    # Questions

    def readers(self, tensor: Tensor) -> list[Node]:
        """The nodes that read the tensor."""
        return list(self.edges.readers.get(tensor, ()))

    def only_reader(self, tensor: Tensor) -> Node | None:
        """The one node that reads a tensor which nobody else needs."""
        readers = self.edges.readers.get(tensor, ())
        return next(iter(readers)) if len(readers) == 1 and tensor not in self.outputs else None

    def place(self, node: Node) -> float:
        """Grows from node to node in the order in which they run; changes as others come and go."""
        return self.edges.place[node]

    def joins(self, members: Collection[Node]) -> bool:
        """Whether one node could do what these do: none needs what others make of another's results."""
        return len(members) == 1 or self.edges.between(members) is not None

    # Changes

    def append(self, *nodes: Node) -> None:
        """Behind all others."""
        self.changes += 1
        for node in nodes:
            for tensor in node.outputs:
                tensor.producer = node
            if self._nodes is not None:
                self._nodes.append(node)
            if self._edges is not None:
                self._edges.insert(node, self._edges.last)

    def insert(self, *nodes: Node, before: Node | None = None, after: Node | None = None) -> None:
        """Before or behind another node; with neither at the start."""
        edges = self.edges
        last = edges.before(before) if before is not None else after
        self.changes += 1
        for node in nodes:
            for tensor in node.outputs:
                tensor.producer = node
            edges.insert(node, last)
            last = node
        self._nodes = None

    def take_over(self, members: Sequence[Node], node: Node) -> None:
        """Put a node where the first member stands; it makes what the last made, of nothing that is made between."""
        first, edges = members[0], self.edges
        makers = [t.producer for t in node.inputs if t is not None and t.producer is not None]
        if any(edges.place[maker] >= edges.place[first] for maker in makers):
            raise ValueError(f"{node} reads what is made behind {first}")
        self.insert(node, before=first)
        self._take_out(members)

    def replace(self, members: Collection[Node], *nodes: Node, between: list[Node] | None = None) -> None:
        """Put nodes where the last member stands; they make whatever is still read of what the members made.

        What needs that and stands before (`between`, where that is known) moves behind. Members must be such that `joins`
        holds.
        """
        edges, members = self.edges, dict.fromkeys(members)
        last = max(members, key=edges.place.__getitem__)
        behind = edges.between(members) if between is None else between
        if behind is None:
            raise ValueError(f"{last} needs what others make of the results that it was to be joined with")
        self.insert(*nodes, after=last)
        for node in nodes:
            for member in members:
                edges.inherit(node, member)
        self._take_out(members)
        if nodes:
            edges.move(behind, nodes[-1])

    def remove(self, nodes: Iterable[Node]) -> None:
        """Take nodes out of which nothing is needed any more, or nothing that is not known by now."""
        group = dict.fromkeys(nodes)
        outputs = set(self.outputs)
        for node in group:
            for tensor in node.outputs:
                needed = tensor in outputs or any(r not in group for r in self.edges.readers.get(tensor, ()))
                if needed and tensor.buffer is None:
                    raise ValueError(f"{node} cannot be removed: '{tensor.name}' is still read")
        self._take_out(group)

    def reconnect(self, node: Node, inputs: Sequence[Tensor | None]) -> None:
        """Let the node read other tensors."""
        self.changes += 1
        self.edges.reconnect(node, inputs)

    def redirect(self, old: Tensor, new: Tensor) -> None:
        """Whoever reads the old tensor, or hints at it, reads the new one, the graph's outputs included."""
        for node in self.nodes:
            if node.hint is not None:
                node.hint = moved(node.hint, lambda tensor: new if tensor is old else tensor)
        for node in self.readers(old):
            self.reconnect(node, [new if tensor is old else tensor for tensor in node.inputs])
        self.outputs = [new if tensor is old else tensor for tensor in self.outputs]

    def _take_out(self, nodes: Iterable[Node]) -> None:
        edges = self.edges
        for node in nodes:
            edges.remove(node)
            _let_go(node)
        self._nodes = None
        self.changes += 1

    # Making

    def emit(self, op: Operation, *inputs: Tensor | None, name: str = "") -> Tensor:
        """Append a node; its first output, with the type that the op infers."""
        return self.emit_all(op, *inputs, name=name)[0]

    def emit_all(self, op: Operation, *inputs: Tensor | None, name: str = "") -> list[Tensor]:
        """Append a node; all its outputs."""
        types = op.infer_types([known_type(tensor) for tensor in inputs])
        stem = name or f"{op.name.lower()}{len(self.nodes if self._edges is None else self._edges.place)}"
        outputs = [Tensor(stem if not i else f"{stem}:{i}", type_) for i, type_ in enumerate(types)]
        node = Node(op, list(inputs), outputs)
        if self.cursor is None:
            self.append(node)
        else:
            self.insert(node, before=self.cursor)
        return outputs

    def all_tensors(self) -> Iterator[Tensor]:
        """Every tensor once: inputs, then what nodes read and write, then outputs."""
        seen: set[Tensor] = set()
        groups = [
            self.inputs,
            *(group for node in self.nodes for group in (node.inputs, node.outputs)),
            self.outputs,
        ]
        for group in groups:
            for tensor in group:
                if tensor is not None and tensor not in seen:
                    seen.add(tensor)
                    yield tensor

    def copy(self) -> Graph:
        """A graph of new tensors and nodes over the same buffers; each new tensor knows its origin."""
        twins: dict[Tensor, Tensor] = {}

        def twin(tensor: Tensor) -> Tensor:
            if tensor not in twins:
                twins[tensor] = Tensor(
                    tensor.name, tensor.type, tensor.buffer, None, tensor.state, tensor.quantization,
                    tensor.is_variable, tensor.shape_signature, tensor, tensor.role, tensor.weight, dict(tensor.carried),
                    tensor.rigid,
                )  # fmt: skip
            return twins[tensor]

        copy = Graph(self.name, [twin(t) for t in self.inputs], [twin(t) for t in self.outputs])
        for node in self.nodes:
            inputs = [None if t is None else twin(t) for t in node.inputs]
            outputs = [twin(t) for t in node.outputs]
            hint = moved(node.hint, twin)
            copy.append(Node(node.op, inputs, outputs, node.index, None, hint, dict(node.carried)))
        return copy


def _let_go(node: Node) -> None:
    """What the node made is made by nobody, unless another one makes it by now."""
    for tensor in node.outputs:
        if tensor.producer is node:
            tensor.producer = None


@mutable
class Metadata:
    """A named blob that travels with the module."""

    name: str
    buffer: Buffer


@mutable
class Module:
    """A whole model file: graphs (the first is the main one), buffers, metadata, signatures."""

    graphs: list[Graph]
    buffers: list[Buffer] = field(default_factory=list)
    metadata: list[Metadata] = field(default_factory=list)
    version: int = 3
    description: str = ""
    identifier: str = "CIR0"
    attachments: dict[str, bytes] = field(default_factory=dict)
    """Files behind the flatbuffer, by name: labels, vocabularies."""
    carried: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def main(self) -> Graph:
        return self.graphs[0]


def constant(value: Array, name: str = "constant") -> Tensor:
    """A new constant tensor with the array's elements."""
    array = np.asarray(value, order="C")
    type_ = TensorType.of(array)
    return Tensor(name, type_, Buffer(array.reshape(-1).view(np.uint8)))
