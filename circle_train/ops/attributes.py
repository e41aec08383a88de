"""The enumerations that operators' options are made of; the numbers are the file format's."""

from __future__ import annotations

import enum

import numpy as np

from circle_train.ir.size import largest
from circle_train.ir.tensor_type import Array


class Activation(enum.IntEnum):
    """A fused activation function. Its gradient is a function of its own output."""

    NONE = 0
    RELU = 1
    RELU_N1_TO_1 = 2
    RELU6 = 3
    TANH = 4
    SIGN_BIT = 5

    def apply(self, x: Array) -> Array:
        if self is Activation.TANH:
            return np.tanh(x)
        if self is Activation.SIGN_BIT:
            return np.signbit(x).astype(x.dtype)
        low, high = self.bounds
        if low is None:
            return x
        return (
            np.maximum(x, x.dtype.type(low))
            if high is None
            else np.clip(x, x.dtype.type(low), x.dtype.type(high))
        )

    def gradient(self, dy: Array, y: Array) -> Array:
        """dy times the derivative, from the output alone; open intervals, as every framework has it."""
        if self is Activation.TANH:
            return dy * (1 - y * y)
        if self is Activation.SIGN_BIT:
            return np.zeros_like(dy)
        low, high = self.bounds
        if low is None:
            return dy
        inside = y > low if high is None else (y > low) & (y < high)
        return np.where(inside, dy, dy.dtype.type(0))

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """What the output is clipped to; None: not bounded."""
        return _BOUNDS.get(self, (None, None))


_BOUNDS: dict[Activation, tuple[float | None, float | None]] = {
    Activation.RELU: (0.0, None),
    Activation.RELU_N1_TO_1: (-1.0, 1.0),
    Activation.RELU6: (0.0, 6.0),
}


class Padding(enum.IntEnum):
    SAME = 0
    VALID = 1

    def output_size(self, size: int, window: int, stride: int) -> int:
        """Output positions of a window (dilation included) moved over `size` elements."""
        if self is Padding.SAME:
            return -(-size // stride)
        positions: int = largest(-(-(size - window + 1) // stride), 0)
        return positions

    def amounts(self, size: int, window: int, stride: int) -> tuple[int, int]:
        """Zeros before and after; SAME puts the odd one behind, as TensorFlow does."""
        if self is Padding.VALID:
            return 0, 0
        total: int = largest((self.output_size(size, window, stride) - 1) * stride + window - size, 0)
        return total // 2, (total + 1) // 2


class MirrorPadMode(enum.IntEnum):
    REFLECT = 0
    SYMMETRIC = 1


class WeightsFormat(enum.IntEnum):
    """How FULLY_CONNECTED weights lie in memory; only DEFAULT (outputs × inputs) is computed."""

    DEFAULT = 0
    SHUFFLED4x16INT8 = 1
    SHUFFLED16x1FLOAT32 = 127


class LSTMKernelType(enum.IntEnum):
    """Whether gates have weights of their own (FULL), or one matrix of all of them."""

    FULL = 0
    BASIC = 1


class CombinerType(enum.IntEnum):
    SUM = 0
    MEAN = 1
    SQRTN = 2


class ReduceWindowFunction(enum.IntEnum):
    """What REDUCE_WINDOW makes of a window."""

    UNSUPPORTED = 0
    ADD = 1
    MUL = 2
    MINIMUM = 3
    MAXIMUM = 4
    ALL = 5
    ANY = 6


class RngAlgorithm(enum.IntEnum):
    """The cipher that STABLEHLO_RNG_BIT_GENERATOR draws by; the default is PHILOX."""

    DEFAULT = 0
    PHILOX = 1
    THREEFRY = 2


class LSHProjectionType(enum.IntEnum):
    """Whether LSH_PROJECTION joins bits to numbers."""

    UNKNOWN = 0
    SPARSE = 1
    DENSE = 2
