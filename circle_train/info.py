"""What a model says of its tensors and operators."""

from __future__ import annotations

from typing import Any

from circle_train.ir import Node, Tensor
from circle_train.ops.base import Op
from circle_train.record import record


@record
class TensorInfo:
    """Name, shape (-1: any size) and numpy dtype of an input or output."""

    name: str
    shape: tuple[int, ...]
    dtype: Any

    @classmethod
    def of(cls, tensor: Tensor) -> TensorInfo:
        signature = tensor.shape_signature
        shape = signature if signature is not None and len(signature) == len(tensor.shape) else tensor.shape
        return cls(
            tensor.name,
            tuple(shape),
            tensor.dtype.numpy if tensor.dtype.numpy is not None else tensor.dtype.name,
        )


@record
class OperatorInfo:
    """One operator: its position, Circle name, tensor names, options, and what training can do with it."""

    index: int
    name: str
    inputs: tuple[str | None, ...]
    outputs: tuple[str, ...]
    options: Op
    runnable: bool
    differentiable: tuple[str, ...]
    """The inputs for which it has a gradient."""
    trainable: tuple[str, ...]
    """Its constants that training may change."""

    @classmethod
    def of(cls, node: Node) -> OperatorInfo:
        op: Op = node.op
        named = [
            (op.input_name(i) if op.inputs else "", t) for i, t in enumerate(node.inputs) if t is not None
        ]
        return cls(
            node.index,
            op.name,
            tuple(None if t is None else t.name for t in node.inputs),
            tuple(t.name for t in node.outputs),
            op,
            op.is_runnable,
            tuple(dict.fromkeys(name for name, t in named if name in op.gradients and t.dtype.is_float)),
            tuple(
                t.name for name, t in named if t.is_constant and t.dtype.is_float and name in op.parameters
            ),
        )
