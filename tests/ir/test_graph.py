"""The graph owns its edges: what is taken out is read by nobody, and refused where somebody reads it."""

from __future__ import annotations

import numpy as np
import pytest
from networks import make, new_input

from circle_train.ir import Graph, Tensor
from circle_train.ir.node import Buffer
from circle_train.ir.verify import verify


def chain() -> tuple[Graph, Tensor, Tensor]:
    """abs of x, and what is computed of that; both are made, the second is an output."""
    graph = Graph("chain", [new_input("x", 2, 3)])
    first = graph.emit(make("ABS"), graph.inputs[0], name="first")
    graph.outputs = [graph.emit(make("NEG"), first, name="second")]
    return graph, first, graph.outputs[0]


def test_what_is_still_read_is_not_removed() -> None:
    graph, first, second = chain()
    for tensor in (first, second):
        assert tensor.producer is not None
        with pytest.raises(ValueError, match=f"'{tensor.name}' is still read"):
            graph.remove([tensor.producer])
    assert len(graph.nodes) == 2
    verify(graph)


def test_what_is_known_by_now_is_removed_though_it_is_read() -> None:
    graph, first, second = chain()
    first.buffer = Buffer(np.ones(6, np.float32).view(np.uint8))
    assert first.producer is not None
    graph.remove([first.producer])
    assert [node.outputs for node in graph.nodes] == [[second]]
    assert first.producer is None
    verify(graph)


def test_nodes_that_read_each_other_go_together() -> None:
    graph, first, second = chain()
    graph.outputs = list(graph.inputs)
    graph.remove(list(graph.nodes))
    assert not graph.nodes and first.producer is None and second.producer is None
    assert not graph.edges.readers.get(graph.inputs[0])
