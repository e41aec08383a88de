"""What binders of integer operators share: a registry, what bytes mean, and functions of one byte as tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from circle_train.backends.native.engine import abi
from circle_train.backends.native.engine.abi import Kernel
from circle_train.backends.native.engine.binding import Calls, Values, call, pointer
from circle_train.backends.native.engine.step import Call
from circle_train.ir import Quantization
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import Activation
from circle_train.ops.base import Op
from circle_train.ops.internal.integers.quantized import Quantized
from circle_train.record import mutable

ByteBinder = Callable[[Quantized, Values, Array], Calls]
BINDERS: dict[type[Op], ByteBinder] = {}
SHORTS: dict[type[Op], ByteBinder] = {}
SHORT = 2
"""Bytes of the widest integers that kernels read and write."""


def binds_bytes(
    *ops: type[Op], into: dict[type[Op], ByteBinder] = BINDERS
) -> Callable[[ByteBinder], ByteBinder]:
    """binder(quantized, inputs, output) for what wraps these operators; inputs and output are contiguous."""

    def add(binder: ByteBinder) -> ByteBinder:
        into.update(dict.fromkeys(ops, binder))
        return binder

    return add


def binds_shorts(*ops: type[Op]) -> Callable[[ByteBinder], ByteBinder]:
    """The same where what comes in and goes out is int16."""
    return binds_bytes(*ops, into=SHORTS)


@mutable
class Meaning:
    """Of a tensor's bytes, with one scale for all: real = scale · (stored - zero), unsigned = stored ^ flip."""

    scale: float
    zero: int
    limits: Any

    @property
    def flip(self) -> int:
        return -int(self.limits.min)

    @property
    def unsigned_zero(self) -> int:
        return self.zero + self.flip

    def range(self, activation: Activation) -> dict[str, int] | None:
        """The arguments y_zero, low and high of a kernel that applies the activation."""
        if activation in (Activation.TANH, Activation.SIGN_BIT):
            return None
        low, high = (
            edge if bound is None else self.stored(bound)
            for bound, edge in zip(
                activation.bounds, (int(self.limits.min), int(self.limits.max)), strict=True
            )
        )
        return {"y_zero": self.zero, "low": low, "high": max(high, low)}

    def stored(self, real: float) -> int:
        stored = np.floor(real / self.scale + 0.5) + self.zero
        return int(np.clip(stored, self.limits.min, self.limits.max))


def meaning(array: Array | None, quantization: Quantization | None, widest: int = 1) -> Meaning | None:
    """Of integers of so many bytes with one scale; None where an array holds something else."""
    if array is None or quantization is None or array.itemsize > widest or array.dtype.kind not in "iu":
        return None
    if len(quantization.scale) != 1 or len(set(quantization.zero_point)) > 1:
        return None
    zero = int(quantization.zero_point[0]) if quantization.zero_point else 0
    limits = np.iinfo(array.dtype)
    if not limits.min <= zero <= limits.max:
        return None
    return Meaning(float(quantization.scale[0]), zero, limits)


def made(op: Quantized, y: Array) -> Meaning | None:
    """What the bytes of the result mean."""
    return meaning(y, op.made[0][1])


def is_same(op: Quantized, index: int, x: Array, y: Array) -> bool:
    """Whether bytes of this operand mean in the result what they mean there."""
    given, wanted = op.given[index], op.made[0][1]
    return given is not None and given == wanted and x.dtype == y.dtype and x.itemsize == 1


def looked_up(op: Quantized, index: int, x: Array, y: Array, of: Op | None = None) -> list[Call] | None:
    """y = table[x] for as many rows as y has strides for; `of`: the function, if not the wrapped operator."""
    if meaning(x, op.given[index]) is None or y.itemsize not in (1, 4) or not y.size:
        return None
    every = np.arange(256, dtype=np.uint8).view(x.dtype)
    alone = Quantized(of or op.of, (op.given[index],), op.made)
    with np.errstate(all="ignore"):
        table = np.ascontiguousarray(alone.compute([every])[0].astype(y.dtype))
    rows, width = (1, x.size) if y.flags.c_contiguous else (x.shape[0], x.shape[1])
    step = width if y.flags.c_contiguous else y.strides[0] // y.itemsize
    args = abi.IntTableArgs(pointer(x), pointer(y), pointer(table), rows, width, width, step, y.itemsize)
    return [call(Kernel.INT_TABLE, args, x, y, table)]
