"""From objects back to the indices of a file: tensors per graph, buffers and operator codes of the module."""

from __future__ import annotations

from dataclasses import replace

from circle_train.errors import ModelError
from circle_train.format.flatbuffer.schema import ENUMS
from circle_train.format.model.carried import Apart, OperatorCode
from circle_train.format.model.nodes import CUSTOM, CUSTOM_PREFIX, OPERATORS
from circle_train.ir import Buffer, Graph, Module, Node, Tensor
from circle_train.ops.opaque import Opaque


class TensorIndices:
    """The tensor table of one graph: as loaded, then whatever else the graph uses."""

    def __init__(self, graph: Graph) -> None:
        self.items: list[Tensor] = []
        self.numbers: dict[Tensor, int] = {}
        for tensor in [*graph.tensors, *graph.all_tensors()]:
            self.add(tensor)
        for node in graph.nodes:
            for tensor in node.carried.get("intermediates", ()):
                self.add(tensor)
        self.roots = {tensor.root(): index for index, tensor in reversed(list(enumerate(self.items)))}

    def add(self, tensor: Tensor) -> None:
        if tensor not in self.numbers:
            self.numbers[tensor] = len(self.items)
            self.items.append(tensor)

    def index(self, tensor: Tensor | None) -> int:
        """Position in the table; -1 for an input that is left out."""
        if tensor is None:
            return -1
        number = self.numbers.get(tensor, self.roots.get(tensor.root()))
        if number is None:
            raise ModelError(
                f"tensor {tensor} is referred to, but is not in its graph: the graph contradicts itself"
            )
        return number


class Indices:
    """The numbers that a module's objects have in its file."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.buffers: list[Buffer] = list(module.buffers)
        if "source" not in module.carried and (not self.buffers or self.buffers[0].nbytes):
            self.buffers.insert(0, Buffer())  # by convention "no data"
        self.numbers = {buffer: index for index, buffer in reversed(list(enumerate(self.buffers)))}
        self.replaced: dict[Buffer, Buffer] = module.carried.get("replaced", {})
        self.apart: Apart = module.carried.get("apart", Apart())
        self.codes: list[OperatorCode] = list(module.carried.get("operator_codes", ()))
        self.code_numbers = {code: index for index, code in enumerate(self.codes)}
        self.new_codes: dict[tuple[str, str | None, int], int] = {}
        self.tables: dict[Graph, TensorIndices] = {}

    def tensors(self, graph: Graph) -> TensorIndices:
        if graph not in self.tables:
            self.tables[graph] = table = TensorIndices(graph)
            for node in graph.nodes:
                for tensor in self.apart.inputs.get(node, ()):
                    if tensor is not None:
                        table.add(tensor)
        return self.tables[graph]

    def graph(self, graph: Graph) -> Graph:
        """The graph, if it is still one of the module."""
        return self.module.graphs[self.graph_index(graph)]

    def graph_index(self, graph: Graph) -> int:
        for index, other in enumerate(self.module.graphs):
            if other is graph:
                return index
        raise ModelError(f"a signature refers to graph '{graph.name}', which is not in the module")

    def buffer(self, buffer: Buffer) -> int:
        """Position in the table of buffers, at its end for a new one."""
        buffer = self.replaced.get(buffer, buffer)
        if buffer not in self.numbers:
            self.numbers[buffer] = len(self.buffers)
            self.buffers.append(buffer)
        return self.numbers[buffer]

    def buffer_of(self, tensor: Tensor) -> int:
        """The tensor's buffer; that of no bytes if it has none."""
        if tensor in self.apart.buffers:
            return self.buffer(self.apart.buffers[tensor])
        buffer = tensor.buffer if tensor.buffer is not None else tensor.carried.get("buffer")
        if buffer is not None:
            return self.buffer(buffer)
        if self.buffers[0].nbytes:
            raise ModelError(f"buffer 0 of the file holds data, so {tensor} cannot be written as having none")
        return 0

    def as_read(self, node: Node) -> Node:
        """The node with the tensors that it reads by now."""
        inputs = self.apart.inputs.get(node)
        return node if inputs is None else replace(node, inputs=inputs)

    def code(self, node: Node) -> int:
        """Position in the table of operator codes; the loaded one while the operator is the same."""
        loaded = node.carried.get("operator_code")
        if loaded is not None and loaded.name == node.op.name and loaded in self.code_numbers:
            return self.code_numbers[loaded]
        version = (
            loaded.version
            if loaded is not None and loaded.name == node.op.name
            else node.op.versions.needed(node)
        )
        custom = _custom_code(node)
        key = (node.op.name, custom, version)
        if key not in self.new_codes:
            self.new_codes[key] = len(self.codes)
            self.codes.append(OperatorCode(node.op.name, _number(node), version, custom))
        return self.new_codes[key]


def _custom_code(node: Node) -> str | None:
    if isinstance(node.op, Opaque):
        return node.op.custom_code
    return node.op.name.removeprefix(CUSTOM_PREFIX) if node.op.name.startswith(CUSTOM_PREFIX) else None


def _number(node: Node) -> int:
    if isinstance(node.op, Opaque):
        return node.op.code
    if node.op.name.startswith(CUSTOM_PREFIX):
        return CUSTOM
    number = ENUMS["BuiltinOperator"].get(node.op.name)
    if number is None or number not in OPERATORS:
        raise ModelError(
            f"{node} is no operator of Circle and cannot be saved; save the model, not a training program"
        )
    return number
