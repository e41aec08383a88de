"""A graph under a name, which a runtime may have a kernel of its own for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field

import numpy as np

from circle_train.ir import DType, Graph, Tensor, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.base import Example, random, register
from circle_train.ops.control.subgraph import WithGraphs, infer_graph, run_graph
from circle_train.ops.numeric.activation import Tanh
from circle_train.ops.numeric.arithmetic import Mul
from circle_train.record import record


@register("STABLEHLO_COMPOSITE", "StableHLOCompositeOptions")
@record
class Composite(WithGraphs):
    """What its decomposition makes of the operands; the name that it goes by changes nothing."""

    decomposition_subgraph_index: int = field(default=0, compare=False)

    graph_options = ("decomposition_subgraph_index",)

    def infer(self, *xs: TensorType) -> Sequence[TensorType]:
        return infer_graph(self.graphs[0], xs)

    def forward(self, *xs: Array) -> list[Array]:
        return run_graph(self.graphs[0], xs)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        x, y = (random(2, 3, seed=seed).astype(np.float32) for seed in (0, 1))
        type_ = TensorType(DType.FLOAT32, (2, 3))
        graph = Graph("gated", [Tensor("x", type_), Tensor("y", type_)])
        graph.outputs = [graph.emit(Mul(), graph.emit(Tanh(), graph.inputs[0]), graph.inputs[1])]
        yield Example(cls(graphs=(graph,)), (x, y), differentiable=False)
