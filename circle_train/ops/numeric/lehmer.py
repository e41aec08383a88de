"""Lehmer's random numbers, x ← 16807·x mod 2³¹-1, from any place of their course."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from circle_train.ir.tensor_type import Array

MODULUS = 2**31 - 1
MULTIPLIER = 16807


def uniform(seed: int, count: int, skipped: int = 0) -> Array:
    """Float32 numbers from 0 to 1, as C++'s uniform_real_distribution makes them of minstd_rand0; not the first of them."""
    start = np.uint64((seed % MODULUS or 1) * pow(MULTIPLIER, skipped, MODULUS) % MODULUS)
    states = _powers(max(count - 1, 0).bit_length())[:count] * start % np.uint64(MODULUS)
    numbers = (states - np.uint64(1)).astype(np.float32) / np.float32(MODULUS - 1)
    return np.minimum(numbers, np.nextafter(np.float32(1), np.float32(0)))


@lru_cache(maxsize=4)
def _powers(doublings: int) -> Array:
    """The multiplier's first 2^doublings powers, from the first on."""
    powers = np.array([MULTIPLIER], np.uint64)
    for _ in range(doublings):
        powers = np.concatenate([powers, powers * powers[-1] % np.uint64(MODULUS)])
    return powers
