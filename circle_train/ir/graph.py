"""Modules, graphs, nodes, tensors and the buffers behind constant tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from circle_train.ir.tensor_type import Array, DType, Quantization, TensorType

EMPTY = np.empty(0, np.uint8)


class Operation(Protocol):
    """What a graph needs to know of an operator: its name and its type rule (see ops.base.Op)."""

    @property
    def name(self) -> str: ...

    def infer_types(self, inputs: Sequence[TensorType | None]) -> tuple[TensorType, ...]: ...


class StateKey(NamedTuple):
    """Where a tensor's memory lives between steps: ("value" | an optimizer slot | "scalars", owner)."""

    kind: str
    owner: str


@dataclass(eq=False, slots=True)
class Buffer:
    """Raw bytes of constants; tensors that share one Buffer share their values."""

    bytes: Array = field(default_factory=lambda: EMPTY, repr=False)
    carried: dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass(eq=False, slots=True)
class Tensor:
    """A value in a graph: an input, a constant (has a buffer), a state, or the output of a node."""

    name: str
    type: TensorType
    buffer: Buffer | None = None
    producer: Node | None = field(default=None, repr=False)
    state: StateKey | None = None
    quantization: Quantization | None = None
    is_variable: bool = False
    shape_signature: tuple[int, ...] | None = None
    origin: Tensor | None = field(default=None, repr=False)
    """The tensor of the loaded module that this one was copied from."""
    carried: dict[str, Any] = field(default_factory=dict, repr=False)
    """Fields of the file that we keep without interpreting them."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def is_constant(self) -> bool:
        """Has bytes in the file (a zero-element tensor is constant when it has a buffer at all)."""
        return self.buffer is not None and (self.buffer.bytes.size > 0 or self.type.size == 0)

    @property
    def data(self) -> Array:
        """The constant's elements, as a read-only view of its buffer."""
        numpy_dtype = self.dtype.numpy
        if self.buffer is None or numpy_dtype is None:
            raise ValueError(f"tensor '{self.name}' has no elements that numpy can view")
        return self.buffer.bytes.view(numpy_dtype).reshape(self.shape)

    def root(self) -> Tensor:
        """The tensor of the loaded module at the end of the chain of copies."""
        tensor = self
        while tensor.origin is not None:
            tensor = tensor.origin
        return tensor

    def __str__(self) -> str:
        return f"'{self.name}' ({self.type})"


@dataclass(eq=False, slots=True)
class Node:
    """One operator of a graph with the tensors that it reads and writes."""

    op: Any  # ops.base.Op; ir knows only the Operation protocol
    inputs: list[Tensor | None]
    outputs: list[Tensor]
    index: int = -1
    """Position in the loaded module's operator list; -1 for what we added."""
    carried: dict[str, Any] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        name = self.outputs[0].name if self.outputs else ""
        where = f" (operator {self.index})" if self.index >= 0 else ""
        return f"{self.op.name} '{name}'{where}"


@dataclass(eq=False, slots=True)
class Graph:
    """Nodes in an order in which they can run, between inputs and outputs."""

    name: str = ""
    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    """The file's tensor table, in its order, also of tensors that no node uses; empty in graphs we make."""
    carried: dict[str, Any] = field(default_factory=dict, repr=False)

    def emit(self, op: Operation, *inputs: Tensor | None, name: str = "") -> Tensor:
        """Append a node; its first output, with the type that the op infers."""
        return self.emit_all(op, *inputs, name=name)[0]

    def emit_all(self, op: Operation, *inputs: Tensor | None, name: str = "") -> list[Tensor]:
        """Append a node; all its outputs."""
        types = op.infer_types([known_type(tensor) for tensor in inputs])
        stem = name or f"{op.name.lower()}{len(self.nodes)}"
        outputs = [Tensor(stem if not i else f"{stem}:{i}", type_) for i, type_ in enumerate(types)]
        node = Node(op, list(inputs), outputs)
        for tensor in outputs:
            tensor.producer = node
        self.nodes.append(node)
        return outputs

    def all_tensors(self) -> Iterator[Tensor]:
        """Every tensor once: inputs, then what nodes read and write, then outputs."""
        seen: set[int] = set()
        groups = [
            self.inputs,
            *(group for node in self.nodes for group in (node.inputs, node.outputs)),
            self.outputs,
        ]
        for group in groups:
            for tensor in group:
                if tensor is not None and id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield tensor

    def copy(self) -> Graph:
        """A graph of new tensors and nodes over the same buffers; each new tensor knows its origin."""
        twins: dict[int, Tensor] = {}

        def twin(tensor: Tensor) -> Tensor:
            if id(tensor) not in twins:
                twins[id(tensor)] = Tensor(
                    tensor.name, tensor.type, tensor.buffer, None, tensor.state, tensor.quantization,
                    tensor.is_variable, tensor.shape_signature, tensor, dict(tensor.carried),
                )  # fmt: skip
            return twins[id(tensor)]

        copy = Graph(self.name, [twin(t) for t in self.inputs], [twin(t) for t in self.outputs])
        for node in self.nodes:
            inputs = [None if t is None else twin(t) for t in node.inputs]
            made = Node(node.op, inputs, [twin(t) for t in node.outputs], node.index, dict(node.carried))
            for tensor in made.outputs:
                tensor.producer = made
            copy.nodes.append(made)
        return copy


@dataclass(eq=False, slots=True)
class Metadata:
    """A named blob that travels with the module."""

    name: str
    buffer: Buffer


@dataclass(eq=False, slots=True)
class Module:
    """A whole model file: graphs (the first is the main one), buffers, metadata, signatures."""

    graphs: list[Graph]
    buffers: list[Buffer] = field(default_factory=list)
    metadata: list[Metadata] = field(default_factory=list)
    version: int = 3
    description: str = ""
    identifier: str = "CIR0"
    carried: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def main(self) -> Graph:
        return self.graphs[0]


def known_type(tensor: Tensor | None) -> TensorType | None:
    """A tensor's type together with its value where that is a constant numpy can hold."""
    if tensor is None:
        return None
    value = tensor.type.value
    if value is None and tensor.is_constant and tensor.dtype.numpy is not None:
        value = tensor.data
    return TensorType(tensor.dtype, tensor.shape, value, tensor.quantization)


def stored_in(tensor: Tensor) -> Tensor:
    """The tensor whose memory a view shows; itself where it is none."""
    maker = tensor.producer
    while maker is not None and maker.op.view_input is not None:
        tensor = maker.inputs[maker.op.view_input] or tensor
        maker = tensor.producer
    return tensor


def constant(value: Array, name: str = "constant") -> Tensor:
    """A new constant tensor with the array's elements."""
    array = np.asarray(value, order="C")
    type_ = TensorType(DType.of(array.dtype), array.shape)
    return Tensor(name, type_, Buffer(array.reshape(-1).view(np.uint8)))
