"""Replaces patterns by single operators, then writes out what has remained of the error function."""

from __future__ import annotations

from circle_train.convert.building.builder import Builder
from circle_train.convert.building.erf import Erf
from circle_train.convert.stages.lower import lower
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
    lower(builder, Erf)
