"""Constants of floats that lie as the bytes of a file: real numbers are made when somebody looks, and go with who looked."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from circle_train.ir.remade import Remade
from circle_train.ir.tensor_type import Array, Quantization

LEAST = 1024
"""Elements from which it is worth it."""


class Coded(Remade):
    """real = scale · (stored - zero), all three as they are or along an axis; the same numbers as in double precision."""

    is_let_go = False

    def __init__(self, stored: Array, scale: Array, zero: Array, axis: int) -> None:
        super().__init__()
        self.stored, self.scale, self.zero, self.axis = stored, scale, zero, axis

    @classmethod
    def of(cls, stored: Array, meaning: Quantization) -> Coded | None:
        """None where float32s do not say exactly what these bytes mean, or there are so few that floats do as well."""
        scale, zero = (np.array(v, np.float32) for v in (meaning.scale, meaning.zero_point or (0,)))
        if stored.size < LEAST or stored.dtype.itemsize != 1 or scale.tolist() != list(meaning.scale):
            return None
        axis = meaning.axis
        fits = scale.size == 1 or (-stored.ndim <= axis < stored.ndim and stored.shape[axis] == scale.size)
        is_sound = zero.size in (1, scale.size) and bool((np.abs(zero) <= 1 << 8).all())
        if not fits or not is_sound:
            return None
        return cls(np.ascontiguousarray(stored), scale, np.broadcast_to(zero, scale.shape).copy(), axis)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.stored.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.stored.dtype

    @property
    def nbytes(self) -> int:
        return self.stored.size * np.dtype(np.float32).itemsize

    @property
    def behind(self) -> Array:
        return self.stored

    @property
    def layout(self) -> tuple[int, int, int]:
        """Numbers before, along, and behind the axis of scales; one scale's all lie behind."""
        if self.scale.size == 1:
            return 1, 1, self.stored.size
        axis = self.axis % len(self.shape)
        return prod(self.shape[:axis]), self.scale.size, prod(self.shape[axis + 1 :])

    def make(self) -> Array:
        """As floats, read-only."""
        real = self.stored.astype(np.float32)
        parts = real.reshape(self.layout)
        parts -= self.zero[:, None]
        parts *= self.scale[:, None]
        real.flags.writeable = False
        return real
