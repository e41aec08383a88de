"""Replaces patterns by single operators, then writes out what has remained of the error function."""

from __future__ import annotations

from dataclasses import replace

from circle_train.convert.building import erf
from circle_train.convert.building.builder import Builder
from circle_train.convert.stages.patterns import PATTERNS
from circle_train.passes.dead import drop_dead_nodes


def fuse(builder: Builder) -> None:
    """Recognise patterns in place; drop what nobody reads any more."""
    graph = builder.graph
    for node in graph.nodes:
        for pattern in PATTERNS:
            if node.outputs[0].dtype.is_float and (match := pattern(node, graph)) is not None:
                node.op = match.op
                graph.reconnect(node, match.inputs)
                break
    drop_dead_nodes(graph)
    lower_erf(builder)


def lower_erf(builder: Builder) -> None:
    """Write every remaining ERF by operators that Circle has."""
    graph = builder.graph
    for node in [node for node in graph.nodes if node.op.name == "ERF"]:
        (x,) = node.inputs
        assert x is not None
        builder.annotation, graph.cursor = dict(node.carried), node
        last = erf.lowered(builder, x).producer
        assert last is not None
        graph.replace([last, node], replace(last, outputs=node.outputs))
    builder.annotation, graph.cursor = {}, None
