"""Variables of a file as plain tensors: what is read is what was assigned before, at first the initial value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import DType, Graph, Node, Tensor, TensorType, Variable
from circle_train.ir.graph import constant
from circle_train.ir.tensor_type import Array
from circle_train.ops.control.subgraph import WithGraphs
from circle_train.ops.opaque import Opaque

HANDLE, READ, ASSIGN, CALL_ONCE = "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE"
NAMES = (HANDLE, READ, ASSIGN, CALL_ONCE)


def lower_variables(graph: Graph) -> None:
    """Replace the operators on variables by the tensors that they mean; every run begins anew with the first values."""
    nodes = [node for node in graph.nodes if node.op.name in NAMES]
    if not nodes:
        return
    lowering = _Lowering(graph, {}, _initial_values(nodes))
    lowering.run()
    graph.variables = list(lowering.variables.values())


def begin_each_sample(graph: Graph, batch_size: int | None) -> None:
    """Let every sample of a batch begin with the values of which the file, made for one sample, holds one set."""
    made_for = next((tensor.shape[0] for tensor in graph.inputs if tensor.shape), None)
    if made_for != 1 or batch_size in (None, 1):
        return
    for variable in graph.variables:
        first = variable.first
        if first is not None and first.shape[:1] == (1,):
            many = constant(np.repeat(first.data, batch_size, axis=0), first.name)
            many.quantization, many.carried = first.quantization, first.carried
            graph.redirect(first, many)
            variable.first = many


class _Lowering:
    """One graph; within an operator that runs graphs, a handle is the value of its variable."""

    def __init__(self, graph: Graph, handles: dict[Tensor, Variable], initial: dict[str, Array]) -> None:
        self.graph, self.handles, self.initial = graph, handles, initial
        self.variables: dict[str, Variable] = {}

    def run(self) -> None:
        lowered = []
        for node in self.graph.nodes:
            if isinstance(node.op, WithGraphs):
                self._within(node)
            elif node.op.name == HANDLE:
                name = _label(node)
                self.handles[node.outputs[0]] = self.variables.setdefault(name, Variable(name))
            elif node.op.name == READ:
                self.graph.redirect(node.outputs[0], self._value(self._variable(node), node.outputs[0]))
            elif node.op.name == ASSIGN:
                value = node.inputs[1] if len(node.inputs) == 2 else None
                if value is None:
                    raise ModelError(f"{node}: it is given no value; the file is damaged")
                self._value(variable := self._variable(node), value)
                variable.last = value
            if node.op.name in NAMES:
                lowered.append(node)
        self.graph.outputs = [
            t if (v := self.handles.get(t)) is None or v.last is None else v.last for t in self.graph.outputs
        ]
        self._require_all_known(lowered)
        self.graph.remove(lowered)

    def _require_all_known(self, lowered: Sequence[Node]) -> None:
        """Refuse handles, and what nothing makes, that are used as if they were tensors."""
        made = {tensor for node in lowered for tensor in node.outputs}
        users = [n for n in self.graph.nodes if n.op.name not in NAMES and made.intersection(n.inputs)]
        found = [*map(str, users), *(f"output '{t.name}'" for t in self.graph.outputs if t in made)]
        if found:
            raise ModelError(
                f"{found[0]}: what a variable's operator leaves is taken for a value; the file is damaged"
            )

    def _variable(self, node: Node) -> Variable:
        """The variable whose handle the node is given."""
        handle = node.inputs[0] if node.inputs else None
        if handle not in self.handles:
            raise ModelError(f"{node}: its variable is not made by a VAR_HANDLE; the file is damaged")
        return self.handles[handle]

    def _value(self, variable: Variable, like: Tensor) -> Tensor:
        """The present value; where there is none yet, what the file sets before the first run, or zeros."""
        if variable.last is None:
            variable.first = variable.last = _begun(variable.name, like, self.initial)
        return variable.last

    def _within(self, node: Node) -> None:
        """Give an operator's graphs the values in place of the handles, and take what they make of them."""
        held = [None if t is None else self.handles.get(t) for t in node.inputs]
        if not any(held):
            return
        graphs = tuple(graph.copy() for graph in node.op.graphs)
        offset = len(node.inputs) - len(graphs[0].inputs)
        likes = [_read_in(graphs, index - offset) if v is not None else None for index, v in enumerate(held)]
        inputs = list(node.inputs)
        for index, (variable, like) in enumerate(zip(held, likes, strict=True)):
            if variable is not None and (known := like or variable.last) is not None:
                inputs[index] = self._value(variable, known)
        for graph in graphs:
            inner: dict[Tensor, Variable] = {}
            for index, (tensor, variable) in enumerate(zip(graph.inputs, held[offset:], strict=True)):
                given = inputs[index + offset]
                if variable is not None and given is not None:
                    tensor.type = TensorType(given.dtype, given.shape)
                    inner[tensor] = Variable(variable.name, tensor, tensor)
            _Lowering(graph, inner, self.initial).run()
        node.op = replace(node.op, graphs=graphs)
        self.graph.reconnect(node, inputs)
        for index, out in enumerate(node.outputs):
            variable = held[index + offset] if offset + index < len(held) else None
            if out.dtype is DType.RESOURCE and variable is not None and variable.last is not None:
                out.type = TensorType(variable.last.dtype, variable.last.shape)
                variable.last = out
                self.handles[out] = variable


def _read_in(graphs: Sequence[Graph], index: int) -> Tensor | None:
    """What one of the graphs reads of, or assigns to, the variable whose handle is its input of this number."""
    for graph in graphs:
        for node in graph.nodes:
            if node.op.name in (READ, ASSIGN) and node.inputs[0] is graph.inputs[index]:
                return node.outputs[0] if node.op.name == READ else node.inputs[1]
    return None


def _label(handle: Node) -> str:
    options: dict[str, Any] = handle.op.fields.get("builtin_options") or {}
    return "/".join(part for part in (options.get("container"), options.get("shared_name")) if part)


def _begun(name: str, like: Tensor, initial: dict[str, Array]) -> Tensor:
    """What the file sets before the first run, else zeros."""
    if name not in initial and not like.type.is_static:
        raise ModelError(f"variable '{name}': nothing gives it a first value, and its shape is not stated")
    value = initial[name] if name in initial else np.zeros(like.shape, like.dtype.numpy)
    first = constant(value, name)
    first.quantization = like.quantization
    return first


def _initial_values(nodes: list[Node]) -> dict[str, Array]:
    """What the graphs that are called once assign."""
    found: dict[str, Array] = {}
    for node in nodes:
        inner = node.op.once if isinstance(node.op, Opaque) else None
        if inner is None:
            continue
        for assignment in inner.nodes:
            if assignment.op.name != ASSIGN:
                continue
            handle, value = assignment.inputs
            if handle is not None and value is not None and handle.producer is not None:
                found[_label(handle.producer)] = _computed(value)
    return found


def _computed(tensor: Tensor) -> Array:
    """The value of a tensor that is made of constants alone."""
    if tensor.producer is None:
        return tensor.data
    node = tensor.producer
    values = node.op.compute([None if source is None else _computed(source) for source in node.inputs])
    return np.asarray(values[node.outputs.index(tensor)])
