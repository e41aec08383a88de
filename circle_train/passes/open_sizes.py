"""What every tensor's sizes are, written with those that the inputs leave open."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from circle_train.ir import Graph, Node, Tensor, TensorType
from circle_train.ir.blame import Blame
from circle_train.ir.node import known_type
from circle_train.ir.size import Number, Size, is_open, unknown
from circle_train.ops.base import Op
from circle_train.ops.derive import computed, derived

Types = dict[Tensor, TensorType]


def open_types(graph: Graph, shapes: Sequence[Sequence[Number]]) -> Types:
    """Types with expressions for sizes, and for integers that are known but for these; of tensors that have any."""
    found: Types = {
        tensor: TensorType(tensor.dtype, tuple(shape))  # type: ignore[arg-type]
        for tensor, shape in zip(graph.inputs, shapes, strict=True)
        if is_open(shape)
    }
    numbers = count()
    for node in graph.nodes:
        if any(tensor in found for tensor in node.inputs if tensor is not None):
            with Blame(node):
                found.update(_made(node, found, next(numbers)))
    return found


def _made(node: Node, found: Types, number: int) -> Types:
    """The types of what the node makes."""
    op: Op = node.op
    inputs = [
        found.get(tensor) or known_type(tensor) if tensor is not None else None for tensor in node.inputs
    ]

    def read(output: int, axis: int) -> Size:
        return unknown(f"?{number}.{output}.{axis}", ("size", node.outputs[output], axis))

    types = derived(op, inputs, read, learn=False)
    values = None if any(type_.dtype.is_float for type_ in types) else computed(op, inputs)
    result: Types = {}
    for index, (tensor, type_) in enumerate(zip(node.outputs, types, strict=True)):
        value = type_.value if values is None else values[index]
        shape: Any = tuple(
            read(index, axis) if not isinstance(size, Size) and size < 0 else size
            for axis, size in enumerate(type_.shape)
        )
        if is_open(shape) or (value is not None and is_open(value.reshape(-1))):
            result[tensor] = TensorType(type_.dtype, shape, value)
        elif value is not None:
            result[tensor] = TensorType(type_.dtype, shape, value.astype(tensor.dtype.numpy))
    return result
