"""A graph again and again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import DType, Graph, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ir.tensor_type import Array
from circle_train.ops.base import Example, random, register
from circle_train.ops.control.subgraph import WithGraphs, common, infer_graph, run_graph
from circle_train.ops.numeric.arithmetic import Add, Mul
from circle_train.ops.numeric.logic import Less
from circle_train.record import record

MOST_TURNS = 1 << 16
"""Of a loop whose end only its values decide."""


@register("WHILE", "WhileOptions")
@record
class While(WithGraphs):
    """x = body(x) as long as condition(x)."""

    cond_subgraph_index: int = field(default=0, compare=False)
    body_subgraph_index: int = field(default=0, compare=False)

    graph_options = ("cond_subgraph_index", "body_subgraph_index")

    def infer(self, *xs: TensorType) -> Sequence[TensorType]:
        """Sizes that the body changes are open."""
        types = [TensorType(x.dtype, x.shape) for x in xs]
        for _ in range(2 + sum(x.rank for x in xs)):
            made = infer_graph(self.graphs[1], types)
            wider = [common(a, b, self.name) for a, b in zip(types, made, strict=True)]
            if wider == types:
                break
            types = wider
        return types

    def forward(self, *xs: Array) -> list[Array]:
        condition, body = self.graphs
        values = list(xs)
        for _ in range(MOST_TURNS):
            if not run_graph(condition, values)[0].reshape(()):
                return values
            values = run_graph(body, values)
        raise ModelError(
            f"{self.name}: its condition still holds after {MOST_TURNS} turns; give other inputs, or a model whose loop ends"
        )

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for limit in (0, 3):
            graphs = counting(limit, DType.INT32)
            yield Example(
                cls(graphs=graphs),
                (np.array(0, np.int32), random(2, 3).astype(np.float32)),
                differentiable=False,
            )


def counting(limit: int, dtype: DType) -> tuple[Graph, Graph]:
    """Graphs of a loop that runs `limit` times and doubles its second value."""
    condition, body = (
        Graph(
            name,
            [
                Tensor(f"{name}:i", TensorType(dtype, ())),
                Tensor(f"{name}:x", TensorType(DType.FLOAT32, (2, 3))),
            ],
        )
        for name in ("condition", "body")
    )
    one, end = (constant(np.array(value, dtype.numpy), f"number{value}") for value in (1, limit))
    condition.outputs = [condition.emit(Less(), condition.inputs[0], end)]
    two = constant(np.array(2, np.float32), "two")
    body.outputs = [body.emit(Add(), body.inputs[0], one), body.emit(Mul(), body.inputs[1], two)]
    return condition, body
