"""Functions of int16 as LiteRT computes them, by points and the lines between: real arithmetic is some steps from those."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from circle_train.backends.native.binders.integer.bytes import SHORT, binds_shorts, meaning
from circle_train.backends.native.engine import abi
from circle_train.backends.native.engine.abi import Kernel
from circle_train.backends.native.engine.binding import Calls, Values, call, pointer
from circle_train.ir.tensor_type import Array
from circle_train.ops.internal.integers.quantized import Quantized
from circle_train.ops.internal.integers.sigmoids16 import UNIT
from circle_train.ops.numeric.activation import Logistic, Softmax, Tanh

LARGEST_ROW = 1 << 16
"""So many exponentials add up within 32 bits."""


def fixed_point(real: Array, bits: int) -> tuple[Array, Array]:
    """real = factor / 2^shift, the factor rounded to 31 bits, and from these to as many as are asked for."""
    part, power = np.frexp(real)
    whole, dropped = np.floor(part * 2.0**31 + 0.5).astype(np.int64), 31 - bits
    kept = (whole + (1 << dropped >> 1)) >> dropped
    return np.minimum(kept, (1 << bits) - 1), np.minimum(bits - power, 62).astype(np.int64)


@binds_shorts(Softmax)
def softmax(op: Quantized, inputs: Values, y: Array) -> Calls:
    (x,) = inputs
    given, wanted = meaning(x, op.given[0], SHORT), meaning(y, op.made[0][1], SHORT)
    assert isinstance(op.of, Softmax)
    if given is None or wanted is None or wanted.scale != UNIT or not 0 < x.shape[-1] <= LARGEST_ROW:
        return None
    rate = given.scale * float(np.float32(op.of.beta))
    if not 0 < rate < 1:
        return None
    # From -10 to 0 in 65,535 steps.
    at = 65535 - _multiplied(np.arange(1 << 16), rate * 65535 / 10)
    power = _between(_points(np.exp, -10, 0), np.maximum(at, 0)).astype(np.int16)
    inverse = _points(lambda v: 1 / (1 + v), 0, 1)
    rows, cols = x.size // x.shape[-1], x.shape[-1]
    args = abi.IntSoftmaxArgs(pointer(x), pointer(y), pointer(power), pointer(inverse), rows, cols)
    return [call(Kernel.INT_SOFTMAX, args, x, y, power, inverse)]


def _multiplied(x: Array, real: float) -> Array:
    """By a factor, to the high half, and by the shift; LiteRT's numbers are negative here, whose high halves it rounds up."""
    (factor,), (shift,) = fixed_point(np.array([real]), 31)
    high = ((x << max(31 - int(shift), 0)) * factor + (1 << 30) - 1) >> 31
    by = max(int(shift) - 31, 0)
    found: Array = (high + (1 << by >> 1)) >> by
    return found


def _points(function: Callable[[Array], Array], begin: float, end: float) -> Array:
    """513 in units of 2^-15, moved by half of what the lines between them are wrong by in their middle."""
    step = (end - begin) / 512
    at = begin + np.arange(513) * step
    exact, middle = function(at) / UNIT, function(at[:-1] + step / 2) / UNIT
    whole = _away(exact)
    error = _away((exact[1:] + whole[:-1]) / 2) - _away(middle)
    whole[:-1] -= _away(error / 2)
    return np.minimum(whole, 32767).astype(np.int16)


def _away(real: Array) -> Array:
    """Whole numbers, halves away from 0."""
    found: Array = np.trunc(real + np.copysign(0.5, real))
    return found


def _between(known: Array, at: Array, bits: int = 7) -> Array:
    """Of points 2^bits apart, on the lines between."""
    base, i = known.astype(np.int64), at >> bits
    found: Array = base[i] + (((base[i + 1] - base[i]) * (at & ((1 << bits) - 1)) + (1 << bits >> 1)) >> bits)
    return found


@binds_shorts(Logistic, Tanh)
def sigmoid(op: Quantized, inputs: Values, y: Array) -> Calls:
    """By a table of all there are."""
    (x,) = inputs
    if meaning(x, op.given[0], SHORT) is None or meaning(y, op.made[0][1], SHORT) is None or x.itemsize != 2:
        return None
    table = op.compute([np.arange(1 << 16).astype(np.uint16).view(x.dtype)])[0]
    args = abi.IntTableArgs(pointer(x), pointer(y), pointer(table), 1, x.size, x.size, x.size, SHORT)
    return [call(Kernel.INT_TABLE, args, x, y, table)]
