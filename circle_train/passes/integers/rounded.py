"""Weights on their file's grids: what a master is rounded to before anything reads it."""

from __future__ import annotations

import numpy as np

from circle_train.ir import DType, Node, Quantization, Role, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import Activation
from circle_train.ops.base import Op
from circle_train.ops.internal.integers.on_grid import OnGrid
from circle_train.ops.numeric.arithmetic import Mul
from circle_train.passes.integers.four_bits import LIMITS


def rounded(master: Tensor, dtype: DType, meaning: Quantization) -> list[Node]:
    """Where channels have scales of their own: rounded in units of them. The last node makes the result."""
    if len(meaning.scale) == 1:
        return [_node(on_grid(meaning, dtype, Activation.NONE), master)]
    shape = [1] * master.type.rank
    shape[meaning.axis] = -1
    scale = np.array(meaning.scale, np.float32).reshape(shape)
    whole = Quantization((1.0,), ((meaning.zero_point or (0,))[0],))
    units = _node(Mul(), master, _fixed(np.float32(1) / scale))
    steps = _node(on_grid(whole, dtype, Activation.NONE), units.outputs[0])
    return [units, steps, _node(Mul(), steps.outputs[0], _fixed(scale))]


def on_grid(meaning: Quantization, dtype: DType, clip: Activation) -> OnGrid:
    """The grid of a tensor, within a fused activation."""
    low, high = limits_of(dtype)
    scale, zero = float(np.float32(meaning.scale[0])), float((meaning.zero_point or (0,))[0])
    ends = [
        float(edge if bound is None else np.clip(np.rint(bound / scale) + zero, low, high))
        for bound, edge in zip(clip.bounds, (low, high), strict=True)
    ]
    return OnGrid(scale, zero, ends[0], max(ends))


def limits_of(dtype: DType) -> tuple[int, int]:
    """The least and the largest integer of a type."""
    return LIMITS[dtype] if dtype in LIMITS else (np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max)


def _node(op: Op, *inputs: Tensor) -> Node:
    made = Tensor(f"{inputs[0].name}:{op.name.lower()}", TensorType(DType.FLOAT32, inputs[0].shape))
    return Node(op, list(inputs), [made])


def _fixed(scale: Array) -> Tensor:
    tensor = constant(scale, "scales")
    tensor.role = Role.FIXED | Role.GRID
    return tensor
