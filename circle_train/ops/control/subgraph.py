"""Operators that run graphs of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any, ClassVar

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import Graph, Node, Tensor, TensorType
from circle_train.ir.node import known_type
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Mixes
from circle_train.ops.base import Op
from circle_train.record import record

SMALL = 64
"""Elements of a tensor whose value is followed while types are inferred."""


@record
class WithGraphs(Op):
    """Base: a file names the graphs by number, in memory they are referred to."""

    graphs: tuple[Graph, ...] = field(default=(), compare=False, repr=False)

    graph_options: ClassVar[tuple[str, ...]] = ()
    """The options that name them, in the same order; one may name several."""
    axes = Mixes("its graphs may do anything")

    def linked(self, graphs: Sequence[Graph]) -> WithGraphs:
        """The op with the graphs that its numbers mean in this list."""
        numbers = [n for name in self.graph_options for n in np.atleast_1d(getattr(self, name)).tolist()]
        if unknown := [n for n in numbers if not 0 <= n < len(graphs)]:
            raise ModelError(
                f"{self.name}: runs subgraph {unknown[0]}, the file has {len(graphs)}: the file is damaged"
            )
        return replace(self, graphs=tuple(graphs[number] for number in numbers))

    def numbered(self, graphs: Sequence[Graph]) -> WithGraphs:
        """The op with the numbers that its graphs have in this list."""
        places = {id(graph): number for number, graph in enumerate(graphs)}
        numbers = iter([places[id(graph)] for graph in self.graphs])
        options: dict[str, Any] = {
            name: tuple(numbers) if isinstance(getattr(self, name), tuple) else next(numbers)
            for name in self.graph_options
        }
        return replace(self, **options)


def run_graph(graph: Graph, inputs: Sequence[Array]) -> list[Array]:
    """The outputs, node after node by the specification's arithmetic."""
    values: dict[Tensor, Array] = dict(zip(graph.inputs, inputs, strict=True))
    for node in graph.nodes:
        given = [None if t is None else values[t] if t in values else t.data for t in node.inputs]
        values.update(zip(node.outputs, map(np.asarray, node.op.compute(given)), strict=True))
    return [values[t] if t in values else t.data for t in graph.outputs]


def infer_graph(graph: Graph, inputs: Sequence[TensorType]) -> list[TensorType]:
    """The outputs' types for inputs of these types; small whole numbers are followed by value."""
    if len(inputs) != len(graph.inputs):
        raise ModelError(
            f"subgraph '{graph.name}' takes {len(graph.inputs)} inputs, expected {len(inputs)}: the file is damaged"
        )
    types: dict[Tensor, TensorType] = dict(zip(graph.inputs, inputs, strict=True))
    for node in graph.nodes:
        given = [None if t is None else types.get(t) or known_type(t) for t in node.inputs]
        made = node.op.infer_types(given)
        if (
            all(t is None or t.value is not None for t in given)
            and _are_small(node, made)
            and not node.op.draws
        ):
            with np.errstate(all="ignore"):
                values = node.op.compute([None if t is None else t.value for t in given])
            made = tuple(
                TensorType(t.dtype, v.shape, v) for t, v in zip(made, map(np.asarray, values), strict=True)
            )
        types.update(zip(node.outputs, made, strict=True))
    return [found for t in graph.outputs if (found := types.get(t) or known_type(t)) is not None]


def _are_small(node: Node, types: Sequence[TensorType]) -> bool:
    """Whole numbers, or what is compared of them: as floats, by TensorFlow's exporter."""
    is_cast = node.op.name == "CAST"
    return bool(types) and all((is_cast or not t.dtype.is_float) and 0 <= t.size <= SMALL for t in types)


def common(first: TensorType, second: TensorType, name: str) -> TensorType:
    """A type that both have: sizes that differ are open."""
    if first.dtype != second.dtype or first.rank != second.rank:
        raise ModelError(f"{name}: gives {first} or {second}, which must be alike in element type and rank")
    shape = tuple(a if a == b else -1 for a, b in zip(first.shape, second.shape, strict=True))
    return TensorType(first.dtype, shape)
