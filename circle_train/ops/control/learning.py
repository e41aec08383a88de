"""Loops that the loss passes through: how often they turn is known when a step runs, and so are their gradients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from circle_train.ir import Graph, Node, Tensor
from circle_train.ir.tensor_type import Array
from circle_train.ops.base import describe
from circle_train.ops.control.loop import While
from circle_train.ops.control.subgraph import run_graph
from circle_train.ops.internal.gradient import influence, unbroadcast
from circle_train.record import record

MOST_KEPT = 64
"""States of a loop that are kept on the way there; from each the turns up to the next are run again on the way back."""


@record
class LearningLoop(While):
    """A loop whose last values are weights, which no turn changes: their gradients add up over the turns."""

    weights: int = 0
    obstacle: str = ""
    """What in the body has no gradient."""

    parameters = ("weights",)
    together: ClassVar[tuple[str, ...]] = ("xs",)

    def input_name(self, index: int) -> str:
        return "weights" if index >= len(self.graphs[1].inputs) - self.weights else "xs"

    def grads(self, dys: Sequence[Array], xs: Sequence[Array]) -> dict[str, list[Array]]:
        """Turn by turn back to the first; dys are the gradients of what the last turn leaves."""
        body = self.graphs[1]
        states, apart = self._states(xs)
        found: list[Array | None] = list(dys)
        for state in reversed(states):
            turns = [state]
            while len(turns) < apart and self._goes_on(turns[-1]):
                turns.append(run_graph(body, turns[-1]))
            for values in reversed(turns):
                if self._goes_on(values):
                    found = run_back(body, values, found)
        made = [np.zeros_like(x) if dy is None else dy for x, dy in zip(xs, found, strict=True)]
        return {"xs": made, "weights": made}

    def _goes_on(self, values: Sequence[Array]) -> bool:
        return bool(run_graph(self.graphs[0], values)[0].reshape(()))

    def _states(self, xs: Sequence[Array]) -> tuple[list[list[Array]], int]:
        """Some of the loop's states, from the first on, and how many turns they are apart."""
        values, states, apart, turn = list(xs), [list(xs)], 1, 0
        while self._goes_on(values):
            values, turn = run_graph(self.graphs[1], values), turn + 1
            if turn % apart == 0:
                states.append(values)
            if len(states) > MOST_KEPT:
                states, apart = states[::2], 2 * apart
        return states, apart


describe(LearningLoop, While.name, While.options)
LearningLoop.together = ("xs", "weights")
_ALL = dict.fromkeys(LearningLoop.together, LearningLoop.gradients["xs"])
LearningLoop.gradients = property(lambda self: {} if self.obstacle else _ALL)  # type: ignore[assignment]
"""`weights` is what some of xs are called, so `forward` has no parameter of that name."""


def run_back(graph: Graph, inputs: Sequence[Array], dys: Sequence[Array | None]) -> list[Array | None]:
    """The gradients of a graph's inputs, given those of its outputs; None where nothing comes back."""
    values: dict[Tensor, Array] = dict(zip(graph.inputs, inputs, strict=True))
    for node in graph.nodes:
        values.update(zip(node.outputs, map(np.asarray, node.op.compute(_given(node, values))), strict=True))
    varies = influence(graph, (t for t in graph.inputs if t.dtype.is_float))
    gradients: dict[Tensor, Array] = {}
    for out, dy in zip(graph.outputs, dys, strict=True):
        if dy is not None and out in varies:
            _add(gradients, out, dy)
    for node in reversed(graph.nodes):
        found = [gradients.pop(out, None) for out in node.outputs]
        if any(dy is not None for dy in found):
            for tensor, dx in _gradients(node, values, found, varies):
                _add(gradients, tensor, dx)
    return [gradients.get(tensor) for tensor in graph.inputs]


def _given(node: Node, values: Mapping[Tensor, Array]) -> list[Array | None]:
    return [None if t is None else values[t] if t in values else t.data for t in node.inputs]


def _add(gradients: dict[Tensor, Array], tensor: Tensor, dy: Array) -> None:
    gradients[tensor] = gradients[tensor] + dy if tensor in gradients else dy


def _gradients(
    node: Node, values: Mapping[Tensor, Array], found: Sequence[Array | None], varies: set[Tensor]
) -> Iterable[tuple[Tensor, Array]]:
    """One node's inputs with their gradients."""
    op, ys = node.op, [values[out] for out in node.outputs]
    dys = [np.zeros_like(y) if dy is None else dy for y, dy in zip(ys, found, strict=True)]
    if op.activation:
        dys = [op.activation.gradient(dy, y) for dy, y in zip(dys, ys, strict=True)]
    known: dict[str, Any] = {"dy": dys[0], "dys": dys, "y": ys[0]}
    given = op.pad(_given(node, values))
    for place, spec in enumerate(op.inputs):
        known[spec.name] = given[place:] if spec.variadic else given[place]
    first = len(op.inputs) - 1 if op.is_variadic else 0
    for index, tensor in enumerate(node.inputs):
        if tensor is not None and tensor in varies:
            name = op.input_name(index)
            needs = op.gradients[name].needs
            made: Any = op.gradient(name, {need: _argument(need, known, index - first) for need in needs})
            result = made[index - first] if isinstance(made, list) else made
            yield tensor, unbroadcast(result, values[tensor].shape)


def _argument(need: str, known: Mapping[str, Any], index: int) -> Any:
    """What a gradient's method calls by this name."""
    if need == "index":
        return index
    if need in known:
        return known[need]
    value = known[need.removesuffix("_shape")]
    return [None if one is None else one.shape for one in value] if isinstance(value, list) else value.shape
