"""A graph again and again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from itertools import pairwise

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import DType, Graph, Node, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ir.tensor_type import Array
from circle_train.ops.base import Example, random, register
from circle_train.ops.control.subgraph import SMALL, WithGraphs, common, infer_graph, run_graph
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
        """Sizes that the body changes are open, unless each turn adds as much to them and it is known how many there are."""
        if (count := len(self.graphs[0].outputs)) != 1:
            raise ModelError(
                f"{self.name}: its condition gives {count} tensors, expected one: the file is damaged"
            )
        types = [TensorType(x.dtype, x.shape) for x in xs]
        for _ in range(2 + sum(x.rank for x in xs)):
            made = infer_graph(self.graphs[1], types)
            wider = [common(a, b, self.name) for a, b in zip(types, made, strict=True)]
            if wider == types:
                break
            types = wider
        if all(type_.is_static for type_ in types) or (turns := self._turns(xs)) is None:
            return types
        return self._grown(xs, types, turns)

    def _grown(
        self, xs: Sequence[TensorType], types: Sequence[TensorType], turns: int
    ) -> Sequence[TensorType]:
        """The types after so many turns, where results are put behind others of their kind."""
        body = self.graphs[1]
        steps = [list(xs)]
        for _ in range(min(turns, 2)):
            steps.append(infer_graph(body, steps[-1]))
        found = []
        for number, type_ in enumerate(types):
            maker = body.outputs[number].producer
            adds = (
                maker is not None and maker.op.name == "CONCATENATION" and body.inputs[number] in maker.inputs
            )
            sizes = [
                size if size >= 0 or not adds else _after([step[number].shape[axis] for step in steps], turns)
                for axis, size in enumerate(type_.shape)
            ]
            found.append(TensorType(type_.dtype, tuple(sizes)))
        return found

    def _turns(self, xs: Sequence[TensorType]) -> int | None:
        """How often it runs, where what decides that is known."""
        condition, body = self.graphs
        deciding = _sources(condition, condition.outputs)
        while more := _sources(body, [body.outputs[i] for i in deciding]) - deciding:
            deciding |= more
        if any(xs[i].value is None or xs[i].size > SMALL for i in deciding):
            return None
        places = sorted(deciding)
        within = [
            _part(condition, places, condition.outputs),
            _part(body, places, [body.outputs[i] for i in places]),
        ]
        values = [np.asarray(xs[i].value) for i in places]
        if any(value.dtype == object for value in values):
            return None
        for turns in range(MOST_TURNS):
            if not run_graph(within[0], values)[0].reshape(()):
                return turns
            values = run_graph(within[1], values)
        return None

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


def _after(sizes: Sequence[int], turns: int) -> int:
    """A size that grows by as much in every turn; -1 where it does not."""
    steps = {after - before for before, after in pairwise(sizes)}
    return (
        sizes[0] + turns * steps.pop()
        if len(steps) == 1 and min(sizes) >= 0
        else sizes[0]
        if not turns
        else -1
    )


def _needed(graph: Graph, ends: Sequence[Tensor]) -> list[Node]:
    """The nodes that make these tensors."""
    wanted, found = set(ends), []
    for node in reversed(graph.nodes):
        if not wanted.isdisjoint(node.outputs):
            wanted.update(t for t in node.inputs if t is not None)
            found.append(node)
    return found[::-1]


def _sources(graph: Graph, ends: Sequence[Tensor]) -> set[int]:
    """The numbers of the graph's inputs that these tensors are made of."""
    read = {t for node in _needed(graph, ends) for t in node.inputs} | set(ends)
    return {number for number, tensor in enumerate(graph.inputs) if tensor in read}


def _part(graph: Graph, places: Sequence[int], ends: Sequence[Tensor]) -> Graph:
    """What makes these tensors of those inputs; the nodes stay the graph's."""
    part = Graph(graph.name, [graph.inputs[i] for i in places], ends)
    part.append(*_needed(graph, ends))
    return part


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
