"""Writing one node by others, in its place."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import replace
from typing import Any

import numpy as np

from circle_train.ir import DType, Graph, Node, Role, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ir.node import known_type
from circle_train.ops import REGISTRY
from circle_train.ops.attributes import Activation
from circle_train.ops.numeric.fill import Cast


class Emission:
    """Emits operators before a node."""

    def __init__(self, graph: Graph, node: Node) -> None:
        self.graph, self.node = graph, node

    def __call__(self, name: str, *inputs: Tensor | None, **options: Any) -> Tensor:
        return self.all(name, *inputs, **options)[0]

    def all(self, name: str, *inputs: Tensor | None, **options: Any) -> list[Tensor]:
        self.graph.cursor = self.node
        stem = f"{self.node.outputs[0].name}/{name.lower()}{len(self.graph.nodes)}"
        made = self.graph.emit_all(REGISTRY[name](**options), *inputs, name=stem)
        self.graph.cursor = None
        return made

    def number(self, value: float, like: Tensor) -> Tensor:
        return fixed(np.asarray(value, like.dtype.numpy))

    def integers(self, *values: int) -> Tensor:
        return fixed(np.array(values, np.int32))

    def cast(self, tensor: Tensor, dtype: DType) -> Tensor:
        made = self("CAST", tensor, in_data_type=tensor.dtype, out_data_type=dtype)
        made.shape_signature = tensor.shape_signature
        return made


def fixed(value: np.ndarray[Any, Any]) -> Tensor:
    """A constant that is never trained."""
    tensor = constant(value)
    tensor.role = Role.FIXED
    return tensor


def rewrite(graph: Graph, node: Node, write: Callable[[Emission], Tensor]) -> None:
    """Put what `write` emits in the node's place; its last operator makes the node's output, activation included."""
    made = write(Emission(graph, node)).producer
    assert made is not None
    activation = node.op.activation
    op = (
        replace(made.op, fused_activation_function=activation)
        if activation is not Activation.NONE
        else made.op
    )
    graph.replace([made, node], replace(made, op=op, outputs=node.outputs, index=node.index, hint=node.hint))


def cast_around(graph: Graph, node: Node, old: Set[DType], new: DType) -> None:
    """Let the node compute in another element type: what it reads of the old ones is cast, and what it makes cast back."""
    emission = Emission(graph, node)
    inputs = [
        emission.cast(tensor, new) if tensor is not None and tensor.dtype in old else tensor
        for tensor in node.inputs
    ]
    op = retyped(node.op, old, new)
    types = op.infer_types([known_type(tensor) for tensor in inputs])
    outputs, behind = [], []
    for tensor, type_ in zip(node.outputs, types, strict=True):
        made = tensor
        if type_.dtype != tensor.dtype:
            made = Tensor(f"{tensor.name}:{type_.dtype.name.lower()}", TensorType(type_.dtype, tensor.shape))
            made.shape_signature = tensor.shape_signature
            behind.append(Node(Cast(type_.dtype, tensor.dtype), [made], [tensor], node.index))
        outputs.append(made)
    graph.replace([node], replace(node, inputs=inputs, outputs=outputs, op=op), *behind)


def retyped(op: Any, old: Set[DType], new: DType) -> Any:
    """The op with the options that name an element type following."""
    if isinstance(op, Cast):
        return op
    options = {name: getattr(op, name) for name in op.__dataclass_fields__}
    named = [name for name, value in options.items() if isinstance(value, DType) and value in old]
    return replace(op, **dict.fromkeys(named, new)) if named else op
