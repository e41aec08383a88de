"""Graphs that differ from another by one operand or one option of one operator, or by who sees a result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from enum import Enum
from typing import Any

import numpy as np
from networks import finish, make

from circle_train.errors import CircleTrainError
from circle_train.ir import Graph, Node, Tensor
from circle_train.ir.graph import constant
from circle_train.model import Model
from circle_train.ops import Op

FEW = 8
"""Numbers of a constant that is changed: those of a formula, axes, orders."""


def near(model: Model) -> Iterator[tuple[str, Model]]:
    """What differs, and the model; what no longer fits together is left out."""
    graph = model.module.main
    for number, node in enumerate(graph.nodes):
        changes: list[tuple[str, Any]] = [*_options(node.op), *_operands(graph, number)]
        if node.outputs[0] not in graph.outputs:
            changes.append(("is seen", None))
        for what, change in changes:
            try:
                yield f"{node} {what}", _rebuilt(graph, node, change)
            except (CircleTrainError, AssertionError, ValueError):
                continue


def _options(op: Op) -> Iterator[tuple[str, Op]]:
    for field in fields(op):
        value, others = getattr(op, field.name), list[Any]()
        if isinstance(value, bool):
            others = [not value]
        elif isinstance(value, Enum):
            others = [other for other in type(value) if other != value]
        elif isinstance(value, (int, float)):
            others = [value + 1]
        yield from ((f"{field.name} {other}", replace(op, **{field.name: other})) for other in others)


def _operands(graph: Graph, number: int) -> Iterator[tuple[str, tuple[int, Tensor | int]]]:
    """Other numbers, another tensor of the same type, or the first entry along an axis instead of all."""
    node = graph.nodes[number]
    there = [*graph.inputs, *(t for other in graph.nodes[:number] for t in other.outputs)]
    for place, tensor in enumerate(node.inputs):
        if tensor is None:
            continue
        name = f"{node.op.input_name(place)} of {place}"
        others = [other for other in there if other.type == tensor.type and other not in node.inputs]
        if tensor.is_constant and tensor.type.size <= FEW:
            others += [
                constant(tensor.data + tensor.data.dtype.type(1), "more"),
                constant(-tensor.data, "turned"),
            ]
        yield from ((f"{name} is {other}", (place, other)) for other in others[-3:])
        for axis, size in enumerate(tensor.shape):
            if size > 1 and tensor.dtype.is_float:
                yield f"{name} narrow along {axis}", (place, axis)


def _rebuilt(graph: Graph, changed: Node, change: Op | tuple[int, Tensor | int] | None) -> Model:
    made, twins = Graph(graph.name, list(graph.inputs)), dict[Tensor, Tensor]()
    for node in graph.nodes:
        op, inputs = node.op, [None if t is None else twins.get(t, t) for t in node.inputs]
        if node is changed and isinstance(change, Op):
            op = change
        elif node is changed and change is not None:
            place, other = change
            whole = inputs[place]
            assert whole is not None
            inputs[place] = _first(made, whole, other) if isinstance(other, int) else twins.get(other, other)
        twins.update(zip(node.outputs, made.emit_all(op, *inputs, name=node.outputs[0].name), strict=True))
    outputs = [twins[t] for t in graph.outputs]
    return finish(made, *outputs, *([twins[changed.outputs[0]]] if change is None else []))


def _first(graph: Graph, whole: Tensor, axis: int) -> Tensor:
    if whole.is_constant:
        return constant(whole.data.take([0], axis), "first")
    sizes = np.full(whole.type.rank, -1, np.int32)
    sizes[axis] = 1
    return graph.emit(make("SLICE"), whole, constant(np.zeros_like(sizes)), constant(sizes))
