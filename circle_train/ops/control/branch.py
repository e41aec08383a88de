"""One graph of several."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from functools import reduce

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import DType, Graph, Tensor, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.base import Example, Op, random, register
from circle_train.ops.control.subgraph import WithGraphs, common, infer_graph, run_graph
from circle_train.ops.numeric.arithmetic import Add, Maximum, Mul
from circle_train.record import record


class Branch(WithGraphs):
    """Base: the outputs of one graph, which the first input chooses."""

    def infer(self, condition: TensorType, *xs: TensorType) -> Sequence[TensorType]:
        found = [infer_graph(graph, xs) for graph in self.graphs]
        if condition.value is not None:
            return found[self.chosen(condition.value)]
        return [reduce(lambda a, b: common(a, b, self.name), types) for types in zip(*found, strict=True)]

    def chosen(self, condition: Array) -> int:
        """The number of the graph that runs."""
        raise NotImplementedError

    def forward(self, condition: Array, *xs: Array) -> list[Array]:
        return run_graph(self.graphs[self.chosen(condition)], xs)


@register("IF", "IfOptions")
@record
class If(Branch):
    """The outputs of the first graph where the condition holds, else of the second."""

    then_subgraph_index: int = field(default=0, compare=False)
    else_subgraph_index: int = field(default=0, compare=False)

    graph_options = ("then_subgraph_index", "else_subgraph_index")

    def chosen(self, condition: Array) -> int:
        return 0 if condition.reshape(()) else 1

    @classmethod
    def examples(cls) -> Iterable[Example]:
        x, y = random(2, 3).astype(np.float32), random(2, 3, seed=1).astype(np.float32)
        for value in (True, False):
            graphs = (_graph("then", Add()), _graph("else", Mul()))
            yield Example(cls(graphs=graphs), (np.array(value), x, y), differentiable=False)


@register("STABLEHLO_CASE", "StablehloCaseOptions")
@record
class StablehloCase(Branch):
    """The outputs of the graph of that number, or of the last where there is none of it."""

    branch_subgraph_indices: tuple[int, ...] = field(default=(), compare=False)

    graph_options = ("branch_subgraph_indices",)

    def infer(self, condition: TensorType, *xs: TensorType) -> Sequence[TensorType]:
        if not self.graphs:
            raise ModelError(f"{self.name}: has no branches, expected at least one: the file is damaged")
        return super().infer(condition, *xs)

    def chosen(self, condition: Array) -> int:
        number = int(condition.reshape(()))
        return number if 0 <= number < len(self.graphs) else len(self.graphs) - 1

    @classmethod
    def examples(cls) -> Iterable[Example]:
        x, y = random(2, 3).astype(np.float32), random(2, 3, seed=1).astype(np.float32)
        for value in (0, 1, 2, 9, -1):
            graphs = (_graph("sum", Add()), _graph("product", Mul()), _graph("largest", Maximum()))
            op = cls(graphs=graphs, branch_subgraph_indices=(0,) * len(graphs))
            yield Example(op, (np.array([value], np.int32), x, y), differentiable=False)


def _graph(name: str, op: Op) -> Graph:
    graph = Graph(name, [Tensor(f"{name}:{i}", TensorType(DType.FLOAT32, (2, 3))) for i in range(2)])
    graph.outputs = [graph.emit(op, *graph.inputs)]
    return graph
