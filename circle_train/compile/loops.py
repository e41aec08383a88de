"""Loops whose end the data decides, made ready to be learned through."""

from __future__ import annotations

from dataclasses import fields

from circle_train.compile.autodiff import without_gradients
from circle_train.errors import ConfigError
from circle_train.ir import Graph, Node, Role, Tensor, TensorType
from circle_train.ops.control.learning import LearningLoop
from circle_train.ops.control.loop import While
from circle_train.ops.control.subgraph import WithGraphs
from circle_train.ops.internal.gradient import Gradients, influence


def learn_through_loops(graph: Graph) -> None:
    """Give loops that can be differentiated their gradients, and their weights as operands; the others have none."""
    for node in [node for node in graph.nodes if type(node.op) is While]:
        body = node.op.graphs[1]
        weights = _weights(node.op)
        places = [
            (inner, index) for inner in body.nodes for index, t in enumerate(inner.inputs) if t in weights
        ]
        twins = {w: Tensor(w.name, TensorType(w.dtype, w.shape)) for w in weights}
        for inner in {inner for inner, _ in places}:
            body.reconnect(inner, [None if t is None else twins.get(t, t) for t in inner.inputs])
        made = _carry(graph, node, twins)
        varies = influence(body, (t for t in body.inputs if t.dtype.is_float))
        obstacles = without_gradients([n for n in body.nodes if not varies.isdisjoint(n.outputs)], varies)
        values = {one.name: getattr(node.op, one.name) for one in fields(node.op)}
        made.op = LearningLoop(**values, weights=len(weights), obstacle=next(iter(obstacles), ""))


def _weights(loop: While) -> list[Tensor]:
    """The constants that the body's layers have as parameters, and nothing else that the loop runs reads."""
    condition, body = loop.graphs
    inner = [part for node in body.nodes if isinstance(node.op, WithGraphs) for part in node.op.graphs]
    elsewhere = {t.buffer for part in (condition, *inner) for t in part.all_tensors()}
    found: dict[Tensor, None] = {}
    for node in body.nodes:
        for index, tensor in enumerate(node.inputs):
            if (
                tensor is not None
                and tensor.is_constant
                and tensor.dtype.is_float
                and tensor.producer is None
                and tensor.type.size > 1
                and node.op.input_name(index) in node.op.parameters
                and not tensor.root().role & Role.FIXED
                and tensor.buffer not in elsewhere
            ):
                found[tensor] = None
    return list(found)


def _carry(graph: Graph, node: Node, twins: dict[Tensor, Tensor]) -> Node:
    """Hand weights to a loop as values that no turn changes; one that the graph holds already is the same weight."""
    condition, body = node.op.graphs
    held = {t.buffer: t for t in graph.all_tensors() if t.is_constant and t.dtype.is_float}
    for weight, twin in twins.items():
        condition.inputs.append(Tensor(weight.name, twin.type))
        body.inputs.append(twin)
        body.outputs.append(twin)
    given = [held.get(weight.buffer, weight) for weight in twins]
    made = [Tensor(f"{weight.name}:after", twin.type) for weight, twin in twins.items()]
    carrying = Node(node.op, [*node.inputs, *given], [*node.outputs, *made], node.index)
    graph.replace([node], carrying)
    return carrying


def refuse_budget(graph: Graph, budget: int | str | None) -> None:
    """What a loop keeps of its turns stands in no plan."""
    for node in graph.nodes if budget is not None else ():
        if isinstance(node.op, Gradients) and isinstance(node.op.of, LearningLoop):
            raise ConfigError(
                f"memory_budget: how often operator {node.op.source} (WHILE) turns, and so what learning through it takes, is "
                "known only while running; leave the budget out, or train only operators behind it"
            )
