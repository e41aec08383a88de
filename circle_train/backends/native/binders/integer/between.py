"""From floats to integers that stand for them, and back."""

from __future__ import annotations

from math import prod

import numpy as np

from circle_train.backends.native.binders.integer.bytes import SHORT, binds_bytes, looked_up, meaning
from circle_train.backends.native.engine import abi
from circle_train.backends.native.engine.abi import IntType, Kernel
from circle_train.backends.native.engine.binding import Calls, Values, call, pointer
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import Activation
from circle_train.ops.internal.integers.quantized import Quantized
from circle_train.ops.numeric.quantize import Dequantize, Quantize

TYPES = {"int8": IntType.INT8, "uint8": IntType.UINT8, "int16": IntType.INT16}


@binds_bytes(Quantize)
def rounded(op: Quantized, inputs: Values, y: Array) -> Calls:
    """From floats; from bytes by a table."""
    (x,) = inputs
    if x.dtype != np.float32:
        return looked_up(op, 0, x, y)
    wanted = meaning(y, op.made[0][1], SHORT)
    if wanted is None:
        return None
    args = abi.IntRoundArgs(
        pointer(x), pointer(y), x.size, **(wanted.range(Activation.NONE) or {}), type=TYPES[y.dtype.name],
        scale=1 / wanted.scale,
    )  # fmt: skip
    return [call(Kernel.INT_ROUND, args, x, y)]


@binds_bytes(Dequantize)
def widened(op: Quantized, inputs: Values, y: Array) -> Calls:
    """To floats; entries of an axis may have scales of their own."""
    (x,), given = inputs, op.given[0]
    if given is None or x.dtype.name not in TYPES or y.dtype != np.float32 or not x.ndim:
        return None
    scale, zero = (np.array(values, np.float32) for values in (given.scale, given.zero_point or (0,)))
    axis = given.axis % x.ndim
    is_exact = scale.astype(np.float64).tolist() == [*given.scale]
    if (x.itemsize == 1 and not is_exact) or (scale.size > 1 and scale.size != x.shape[axis]):
        return None  # a table has the very numbers
    zero = np.broadcast_to(zero, scale.shape).copy()
    outer, inner = (prod(x.shape[:axis]), prod(x.shape[axis + 1 :])) if scale.size > 1 else (1, x.size)
    args = abi.IntWidenArgs(
        pointer(x), pointer(y), pointer(scale), pointer(zero), outer, scale.size, inner, TYPES[x.dtype.name]
    )
    return [call(Kernel.INT_WIDEN, args, x, y, scale, zero)]
