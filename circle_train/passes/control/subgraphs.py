"""Graphs within graphs: made ready like the main one, and written out where a loop's course is known beforehand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import Graph, Node, Tensor
from circle_train.ir.node import known_type
from circle_train.ir.tensor_type import Array
from circle_train.ops.control.branch import Branch
from circle_train.ops.control.composite import Composite
from circle_train.ops.control.loop import While
from circle_train.ops.control.subgraph import SMALL, WithGraphs, run_graph
from circle_train.passes.fold import fold_integers

LONGEST = 4096
"""Nodes that a loop may be written out in."""


def prepare_subgraphs(graph: Graph, prepare: Callable[[Graph], None]) -> None:
    """Give operators graphs of their own that are ready to be run."""
    for node in graph.nodes:
        if isinstance(node.op, WithGraphs):
            copies = tuple(inner.copy() for inner in node.op.graphs)
            for copy in copies:
                prepare(copy)
            node.op = replace(node.op, graphs=copies)


def decompose(graph: Graph) -> None:
    """Put what composites are composed of in their place."""
    while composites := [node for node in graph.nodes if isinstance(node.op, Composite)]:
        for node in composites:
            _replace(graph, node, _inline(graph, node, node.op.graphs[0], node.inputs))


def write_out(graph: Graph) -> None:
    """Put the nodes of branches and loops in their place where constants decide which, and how often."""
    while any(isinstance(node.op, (Branch, While)) for node in graph.nodes):
        fold_integers(graph)
        known = _Known()
        written = [_write_node(graph, node, known) for node in graph.nodes]
        if not any(written):
            break


def _write_node(graph: Graph, node: Node, known: _Known) -> bool:
    """Whether the node was one that could be written out."""
    if isinstance(node.op, Branch):
        return _write_branch(graph, node, known)
    return isinstance(node.op, While) and _write_loop(graph, node, known)


class _Known:
    """Small whole numbers that follow from constants."""

    def __init__(self) -> None:
        self.values: dict[Tensor, Array | None] = {}

    def value(self, tensor: Tensor | None) -> Array | None:
        if tensor is None:
            return None
        if tensor.is_constant:
            return tensor.data if tensor.dtype.numpy is not None and tensor.state is None else None
        if tensor not in self.values:
            self.values[tensor] = None
            self.values[tensor] = self._computed(tensor)
        return self.values[tensor]

    def _computed(self, tensor: Tensor) -> Array | None:
        node = tensor.producer
        if node is None or isinstance(node.op, WithGraphs) or node.op.draws:
            return None
        if tensor.dtype.is_float and node.op.name != "CAST":
            return None
        if node.op.name == "SHAPE":
            source = node.inputs[0]
            if source is None or not source.type.is_static:
                return None
            return np.array(source.shape, tensor.dtype.numpy)
        values = [self.value(source) for source in node.inputs]
        if any(v is None and s is not None for v, s in zip(values, node.inputs, strict=True)):
            return None
        if not node.op.is_runnable or sum(v.size for v in values if v is not None) > SMALL * SMALL:
            return None
        with np.errstate(all="ignore"):
            return np.asarray(node.op.compute(values)[node.outputs.index(tensor)])


def _write_branch(graph: Graph, node: Node, known: _Known) -> bool:
    value = known.value(node.inputs[0])
    if value is None:
        return False
    outputs = _inline(graph, node, node.op.graphs[node.op.chosen(value)], node.inputs[1:])
    _replace(graph, node, outputs)
    return True


def _write_loop(graph: Graph, node: Node, known: _Known) -> bool:
    """All rounds; nothing where the condition is not known beforehand, or the rounds are too many."""
    condition, body = node.op.graphs
    values = list(node.inputs)
    before = set(graph.nodes)
    rounds = LONGEST // max(len(body.nodes), 1)
    for _ in range(rounds + 1):
        going = _decided(condition, values, known)
        if going is False:
            _replace(graph, node, values)
            return True
        if going is None:
            break
        values = list(_inline(graph, node, body, values))
    graph.remove([made for made in graph.nodes if made not in before])
    return False


def _decided(condition: Graph, values: Sequence[Tensor | None], known: _Known) -> bool | None:
    """Whether the loop goes on, if only known numbers decide that."""
    if len(condition.inputs) != len(values):
        raise ModelError(
            f"a loop has {len(values)} values, its condition takes {len(condition.inputs)}; the file is damaged"
        )
    read = {tensor for inner in condition.nodes for tensor in inner.inputs} | set(condition.outputs)
    given: list[Array] = []
    for own, tensor in zip(condition.inputs, values, strict=True):
        value = known.value(tensor)
        if value is None and own in read:
            return None
        given.append(np.zeros(()) if value is None else value)
    return bool(run_graph(condition, given)[0].reshape(()))


def _inline(graph: Graph, place: Node, inner: Graph, inputs: Sequence[Tensor | None]) -> list[Tensor]:
    """Copies of a graph's nodes before the place, reading these inputs; its outputs."""
    if len(inputs) != len(inner.inputs):
        raise ModelError(
            f"{place}: gives {len(inputs)} tensors to a graph that takes {len(inner.inputs)}; the file is damaged"
        )
    twins: dict[Tensor, Tensor | None] = dict(zip(inner.inputs, inputs, strict=True))
    for node in inner.nodes:
        outputs = []
        for tensor in node.outputs:
            twin = Tensor(tensor.name, tensor.type, quantization=tensor.quantization)
            twin.shape_signature = tensor.shape_signature
            twins[tensor] = twin
            outputs.append(twin)
        given = [None if t is None else twins.get(t, t) for t in node.inputs]
        graph.insert(Node(node.op, given, outputs, place.index), before=place)
        types = node.op.infer_types([known_type(t) for t in given])
        for twin, type_ in zip(outputs, types, strict=True):
            twin.type = type_
    return [made for t in inner.outputs if (made := twins.get(t, t)) is not None]


def _replace(graph: Graph, node: Node, outputs: Sequence[Tensor | None]) -> None:
    """Let what the node made be these, under its names."""
    if len(node.outputs) != len(outputs):
        raise ModelError(
            f"{node}: has {len(node.outputs)} outputs, its graph makes {len(outputs)}; the file is damaged"
        )
    for old, new in zip(node.outputs, outputs, strict=True):
        assert new is not None
        graph.redirect(old, new)
        if new.producer is not None:
            new.name = old.name
    graph.remove([node])
