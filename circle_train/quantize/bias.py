"""What rounded weights shift on average, which biases make up for.

An operator is linear in its input: on the mean of all inputs it gives the mean of all outputs.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from circle_train.ir import Node
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import Activation


def shift(node: Node, place: int, error: Array, mean: Array, at: int) -> Array:
    """How much less each output channel is for want of this part of the weights, on average over samples and places."""
    inputs: list[Any] = [None if tensor is None else _value(tensor) for tensor in node.inputs]
    data = next(i for i, t in enumerate(node.inputs) if t is not None and not t.is_constant)
    inputs[data], inputs[place], inputs[at] = mean[None].astype(np.float32), error.astype(np.float32), None
    (made,) = _linear(node.op).compute(inputs[:at] if at == len(inputs) - 1 else inputs)
    moved: Array = made.reshape(-1, made.shape[-1]).mean(axis=0, dtype=np.float64)
    return moved


def _value(tensor: Any) -> Any:
    return tensor.data if tensor.is_constant else None


def _linear(op: Any) -> Any:
    """Without what is fused behind it."""
    fused = any(field.name == "fused_activation_function" for field in fields(op))
    return replace(op, fused_activation_function=Activation.NONE) if fused else op
