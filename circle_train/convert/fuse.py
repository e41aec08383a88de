"""Replaces patterns by single operators, then writes out what has remained of the error function."""

from __future__ import annotations

from circle_train.convert import erf
from circle_train.convert.builder import Builder
from circle_train.convert.patterns import PATTERNS, positions_of
from circle_train.ir import Graph, Node


def fuse(builder: Builder) -> None:
    """Recognise patterns in place; drop what nobody reads any more."""
    graph = builder.graph
    positions = positions_of(graph)
    for node in graph.nodes:
        for pattern in PATTERNS:
            if node.outputs[0].dtype.is_float and (match := pattern(node, positions)) is not None:
                node.op, node.inputs = match.op, list(match.inputs)
                break
    drop_dead(graph)
    lower_erf(builder)


def lower_erf(builder: Builder) -> None:
    """Write every remaining ERF by operators that Circle has."""
    graph = builder.graph
    old, graph.nodes = graph.nodes, []
    for node in old:
        if node.op.name != "ERF" or node.inputs[0] is None:
            graph.nodes.append(node)
            continue
        builder.annotation = dict(node.carried)
        made = erf.lowered(builder, node.inputs[0])
        last = made.producer
        assert last is not None
        last.outputs[0] = node.outputs[0]
        node.outputs[0].producer = last
    builder.annotation = {}


def drop_dead(graph: Graph) -> None:
    """Remove nodes of which no output is read."""
    needed = {id(tensor) for tensor in graph.outputs}
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if any(id(tensor) in needed for tensor in node.outputs):
            kept.append(node)
            needed.update(id(tensor) for tensor in node.inputs if tensor is not None)
    graph.nodes = kept[::-1]
