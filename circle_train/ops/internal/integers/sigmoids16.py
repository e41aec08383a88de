"""LOGISTIC and TANH of 16 bit integers as LiteRT computes them, to the bit; real arithmetic is up to 21 steps from that.

Of most scales it draws lines between points of the logistic function. Where a step is 2^-12 (of TANH 2^-11 too) it divides:
tanh v and the logistic function are fractions of exp, an exponential is a polynomial times constants, a quotient Newton's.
"""

from __future__ import annotations

import numpy as np

from circle_train.ir import Quantization
from circle_train.ir.tensor_type import Array

UNIT = 2.0**-15
"""The scale that LiteRT asks of their results."""
NEAR = 1e-3
"""So far from a whole number a scale's logarithm counts as one."""
LARGEST = 32767
MOST_SHARE = 65535
"""What the last point is, and all behind it."""
MOST = float(1 << 31)
"""From here on factors cut off whatever is not 0."""


def has_integer_form(given: Quantization | None, made: Quantization | None) -> bool:
    """Whether LiteRT computes what lies on these scales."""
    if given is None or made is None or len(given.scale) != 1 or len(made.scale) != 1:
        return False
    return not any(given.zero_point) and not any(made.zero_point) and _power(made.scale[0]) == -15


def sigmoid(x: Array, scale: float, is_tanh: bool) -> Array:
    """Of stored integers: those of the result."""
    power, wide = _power(scale), x.astype(np.int64)
    if power is not None and power + 12 in ((0, 1) if is_tanh else (0,)):
        found = _tanh(_within(wide << power + 12)) if is_tanh else _logistic(wide)
    else:
        found = _drawn(wide, float(np.float32(scale)), is_tanh)
    return found.astype(np.int16)


def _power(scale: float) -> int | None:
    exact = float(np.log2(np.float32(scale)))
    return round(exact) if abs(exact - round(exact)) < NEAR else None


def _drawn(x: Array, scale: float, is_tanh: bool) -> Array:
    """On lines between 256 points of 1 / (1 + exp(-v)), 1/24 apart; tanh v from those of 2v."""
    factor, shift, bits = scale * 3 * 4096, 0, 8 if is_tanh else 9
    while factor <= 32767 / 2 and shift <= 30:
        factor, shift = factor * 2, shift + 1
    at = (x * int(min(factor, MOST)) + (1 << shift >> 1)) >> shift
    points, near = _points(), np.abs(at) < 255 << bits
    i, rest = np.where(near, np.abs(at), 0) >> bits, np.abs(at) & ((1 << bits) - 1)
    line = (points[i] << bits) + rest * (points[i + 1] - points[i])
    most, middle = (MOST_SHARE, 1 << 15 + bits) if is_tanh else (MOST_SHARE - 1, 0)
    above = np.where(near, line, most << bits) - middle
    below = (0 if is_tanh else 1 << 16 + bits) - above
    half = 1 << bits - 1 if is_tanh else 1 << bits
    found: Array = np.where(at >= 0, above + half, below + half - 1) >> (bits if is_tanh else bits + 1)
    return found


def _points() -> Array:
    """In units of 2^-16, each moved by half of what the line beside it is wrong by in its middle."""
    share = 1 / (1 + np.exp(-np.arange(256) / 24))
    bend = share * (1 - share) * (2 * share - 1) / 24**2 / 8
    points = np.rint(65536 * (share + bend / 2)).astype(np.int64)
    points[-1] = MOST_SHARE
    return points


def _logistic(x: Array) -> Array:
    """1 / (1 + exp(-|v|)), in units of 2^-15, of v in units of 2^-12."""
    share = _within(_inverse_of_one_and(_exponential(-np.minimum(np.abs(x), LARGEST), 12)) << 1)
    found: Array = np.where(x == 0, 1 << 14, np.where(x > 0, share, LARGEST - share))
    return found


def _tanh(x: Array) -> Array:
    """2 / (1 + exp(-2|v|)) - 1, likewise: as many units are twice as much in a grid of 2^-11."""
    share = _within(_inverse_of_one_and(_exponential(-np.abs(x), 11)) - (1 << 13) << 2)
    found: Array = np.where(x == 0, 0, np.sign(x) * share)
    return found


def _exponential(x: Array, bits: int) -> Array:
    """exp of numbers up to 0 in units of 2^-bits, in those of 2^-15.

    A polynomial around -1/8 gives that of the last quarter, which constants multiply for every bit of the rest.
    """
    quarter = 1 << bits - 2
    last = (x & quarter - 1) - quarter
    v = (last << 15 - bits) + (1 << 12)
    second = _times(v, v)
    third, fourth = _times(second, v), _times(second, second)
    tail = _halved(_times(_halved(fourth, 2) + third, _fixed(1 / 3)) + second, 1)
    around = _fixed(np.exp(-1 / 8))
    found = _within(around + _times(v + tail, around))
    for power in range(-2, 15 - bits):
        is_there = (last - x) & (1 << bits + power)
        found = np.where(is_there, _times(found, _fixed(np.exp(-(2.0**power)))), found)
    exact: Array = np.where(x == 0, LARGEST, found)
    return exact


def _inverse_of_one_and(x: Array) -> Array:
    """2 / (1 + x) in units of 2^-13: three of Newton's steps from a line."""
    half = (x + LARGEST + 1) >> 1
    found = _fixed(48 / 17, 13) + _times(half, _fixed(-32 / 17, 13))
    for _ in range(3):
        found = found + _within(_times(found, (1 << 13) - _times(half, found)) << 2)
    return found


def _fixed(real: float, bits: int = 15) -> int:
    return round(float(real) * (1 << bits))


def _times(a: Array, b: Array | int) -> Array:
    """The upper half of the doubled product, halves upwards."""
    return _within(_rounded(a * b, 15))


def _halved(x: Array, times: int) -> Array:
    """Divided by 2^times, halves away from 0."""
    size: Array = np.abs(x)
    return np.where(x < 0, -_rounded(size, times), _rounded(size, times))


def _rounded(x: Array, times: int) -> Array:
    return (x + (1 << times - 1)) >> times


def _within(x: Array) -> Array:
    found: Array = np.clip(x, -LARGEST - 1, LARGEST)
    return found
