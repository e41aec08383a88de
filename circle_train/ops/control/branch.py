"""One graph or another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field

import numpy as np

from circle_train.ir import DType, Graph, Tensor, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.base import Example, random, register
from circle_train.ops.control.subgraph import WithGraphs, common, infer_graph, run_graph
from circle_train.ops.numeric.arithmetic import Add, Mul
from circle_train.record import record


@register("IF", "IfOptions")
@record
class If(WithGraphs):
    """The outputs of the first graph where the condition holds, else of the second."""

    then_subgraph_index: int = field(default=0, compare=False)
    else_subgraph_index: int = field(default=0, compare=False)

    graph_options = ("then_subgraph_index", "else_subgraph_index")

    def infer(self, condition: TensorType, *xs: TensorType) -> Sequence[TensorType]:
        then, otherwise = (infer_graph(graph, xs) for graph in self.graphs)
        if condition.value is not None:
            return then if condition.value.reshape(()) else otherwise
        return [common(a, b, self.name) for a, b in zip(then, otherwise, strict=True)]

    def forward(self, condition: Array, *xs: Array) -> list[Array]:
        return run_graph(self.graphs[0 if condition.reshape(()) else 1], xs)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        x, y = random(2, 3).astype(np.float32), random(2, 3, seed=1).astype(np.float32)
        for value in (True, False):
            graphs = (_graph("then", Add()), _graph("else", Mul()))
            yield Example(cls(graphs=graphs), (np.array(value), x, y), differentiable=False)


def _graph(name: str, op: Add | Mul) -> Graph:
    graph = Graph(name, [Tensor(f"{name}:{i}", TensorType(DType.FLOAT32, (2, 3))) for i in range(2)])
    graph.outputs = [graph.emit(op, *graph.inputs)]
    return graph
