"""Bits of what elements hash to, so that inputs that are alike have bits in common."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import DType, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import LSHProjectionType
from circle_train.ops.axes import Mixes
from circle_train.ops.base import Example, Op, random, register
from circle_train.ops.checks import has_rank, same_size
from circle_train.record import record

K0, K1, K2 = (np.uint64(k) for k in (0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F))
MOST_BITS = 32
AT_ONCE = 1 << 20
"""Bytes of rows that are hashed together."""
LONGEST, MOST = 1 << 14, 1 << 26
"""Bytes of a row, and of all rows for all seeds: each eight of them take some sixty operations."""


def fingerprints(keys: Array) -> Array:
    """FarmHash's 64-bit fingerprint of each row of bytes."""
    length = keys.shape[1]
    with np.errstate(over="ignore"):
        if length > 64:
            return _long(keys)
        return (_up_to_16 if length <= 16 else _up_to_32 if length <= 32 else _up_to_64)(keys)


def word(keys: Array, at: int, dtype: str = "<u8") -> Array:
    """The number that begins at a byte of each row; counted from the end where that is negative."""
    at = at % keys.shape[1]
    found: Array = np.ascontiguousarray(keys[:, at : at + np.dtype(dtype).itemsize]).view(dtype)[:, 0]
    return found.astype(np.uint64)


def turned(x: Array, by: int) -> Array:
    """Bits moved to the right, and around."""
    result: Array = (x >> np.uint64(by)) | (x << np.uint64(64 - by))
    return result


def mixed(x: Array) -> Array:
    result: Array = x ^ (x >> np.uint64(47))
    return result


def joined(u: Array, v: Array, by: Array | np.uint64) -> Array:
    """One number of two."""
    a = mixed((u ^ v) * by)
    return mixed((v ^ a) * by) * by


def _factor(keys: Array) -> np.uint64:
    return K2 + np.uint64(2 * keys.shape[1])


def _up_to_16(keys: Array) -> Array:
    length, by = np.uint64(keys.shape[1]), _factor(keys)
    if keys.shape[1] >= 8:
        a, b = word(keys, 0) + K2, word(keys, -8)
        return joined(turned(b, 37) * by + a, (turned(a, 25) + b) * by, by)
    first, last = word(keys, 0, "<u4"), word(keys, -4, "<u4")
    return joined(length + (first << np.uint64(3)), last, by)


def _ends(keys: Array, first: np.uint64) -> tuple[Array, Array]:
    """What the first and the last 16 bytes make."""
    a, b = word(keys, 0) * first, word(keys, 8)
    c, d = word(keys, -8) * _factor(keys), word(keys, -16) * K2
    return turned(a + b, 43) + turned(c, 30) + d, a + turned(b + K2, 18) + c


def _up_to_32(keys: Array) -> Array:
    return joined(*_ends(keys, K1), _factor(keys))


def _up_to_64(keys: Array) -> Array:
    by = _factor(keys)
    y, rest = _ends(keys, K2)
    z = joined(y, rest, by)
    e, f = word(keys, 16) * by, word(keys, 24)
    g, h = (y + word(keys, -32)) * by, (z + word(keys, -24)) * by
    a = word(keys, 0) * K2
    return joined(turned(e + f, 43) + turned(g, 30) + h, e + turned(f + a, 18) + g, by)


Pair = tuple[Array, Array]
State = tuple[Array, Array, Array, Pair, Pair]


def _long(keys: Array) -> Array:
    """64 bytes at a time, the last of which may overlap those before."""
    seed, length = np.uint64(81), keys.shape[1]
    y = np.full(len(keys), seed * K1 + np.uint64(113))
    zero = np.zeros_like(y)
    state: State = (
        seed * K2 + word(keys, 0),
        y,
        mixed(y * K2 + np.uint64(113)) * K2,
        (zero, zero),
        (zero, zero),
    )
    for at in range(0, (length - 1) // 64 * 64, 64):
        state = _block(keys, at, state, K1, np.uint64(1))
    x, y, z, v, w = state
    by = K1 + ((z & np.uint64(255)) << np.uint64(1))
    w = w[0] + np.uint64((length - 1) % 64), w[1]
    v = v[0] + w[0], v[1]
    w = w[0] + v[0], w[1]
    x, y, z, v, w = _block(keys, length - 64, (x, y, z, v, w), by, np.uint64(9))
    return joined(joined(v[0], w[0], by) + mixed(y) * K0 + z, joined(v[1], w[1], by) + x, by)


def _block(keys: Array, at: int, state: State, by: Array | np.uint64, weight: np.uint64) -> State:
    """What 64 more bytes make of the state."""
    x, y, z, v, w = state
    x = turned(x + y + v[0] + word(keys, at + 8), 37) * by
    y = turned(y + v[1] + word(keys, at + 48), 42) * by
    x = x ^ (w[1] * weight)
    y = y + v[0] * weight + word(keys, at + 40)
    z = turned(z + w[0], 33) * by
    v = _pair(keys, at, v[1] * by, x + w[0])
    w = _pair(keys, at + 32, z + w[1], y + word(keys, at + 16))
    return z, y, x, v, w


def _pair(keys: Array, at: int, a: Array, b: Array) -> Pair:
    first, second, third, last = (word(keys, at + 8 * n) for n in range(4))
    a = a + first
    b = turned(b + a + last, 21)
    total = a + second + third
    return total + last, b + turned(total, 44) + a


@register("LSH_PROJECTION", "LSHProjectionOptions")
@record
class LshProjection(Op):
    """For each seed the sign of Σ weight · fingerprint(seed, row): bits, or one number of each row of them."""

    type: LSHProjectionType = LSHProjectionType.DENSE

    stops_gradient = True
    axes = Mixes("all rows make one bit")

    def infer(self, seeds: TensorType, x: TensorType, weight: TensorType | None = None) -> TensorType:
        has_rank(self.name, "seeds", seeds, 2)
        fits = x.rank > 0 and (weight is None or same_size(weight.size, x.shape[0]))
        if not fits or seeds.shape[1] > MOST_BITS or self.type is LSHProjectionType.UNKNOWN:
            raise ModelError(
                f"{self.name}: seeds {seeds}, rows {x} and weights {weight} make no {self.type!r}, expected up to "
                f"{MOST_BITS} seeds in a row and a weight for each row: the file is damaged"
            )
        if x.is_static and seeds.is_static:
            self._require(x.shape[0], x.nbytes, seeds.size)
        rows, bits = seeds.shape
        is_dense = self.type is LSHProjectionType.DENSE
        return TensorType(DType.INT32, ((rows * bits if min(rows, bits) >= 0 else -1) if is_dense else rows,))

    def forward(self, seeds: Array, x: Array, weight: Array | None = None) -> Array:
        rows = np.ascontiguousarray(x).reshape(len(x), -1).view(np.uint8).reshape(len(x), -1)
        flat = seeds.astype(np.float32).ravel()
        self._require(len(rows), rows.size, flat.size)
        step = max(1, AT_ONCE // max(1, rows.size))
        bits = np.zeros(len(flat), np.int64)
        for i in range(0, len(flat), step):
            bits[i : i + step] = self.bits(flat[i : i + step], rows, weight)
        if self.type is LSHProjectionType.DENSE:
            return bits.astype(np.int32)
        places = 1 << np.arange(seeds.shape[1], dtype=np.int64)[::-1]
        offsets = np.arange(len(seeds)) << seeds.shape[1]
        return (bits.reshape(seeds.shape) @ places + offsets).astype(np.int32)

    def _require(self, rows: int, nbytes: int, seeds: int) -> None:
        if nbytes > LONGEST * rows or nbytes * seeds > MOST:
            raise ModelError(
                f"{self.name}: {nbytes} bytes in {rows} rows are to be hashed for {seeds} seeds, expected up to {LONGEST} in a "
                f"row and {MOST} for all seeds"
            )

    @staticmethod
    def bits(seeds: Array, rows: Array, weight: Array | None) -> Array:
        count = len(seeds), len(rows)
        begin = np.broadcast_to(seeds.view(np.uint8).reshape(-1, 1, 4), (*count, 4))
        keys = np.concatenate([begin, np.broadcast_to(rows, (len(seeds), *rows.shape))], 2)
        values = (
            fingerprints(keys.reshape(-1, keys.shape[2])).view(np.int64).astype(np.float64).reshape(count)
        )
        sums = (values if weight is None else values * weight).cumsum(axis=1)[:, -1:]
        positive: Array = np.any(sums > 0, axis=1)
        return positive

    @classmethod
    def examples(cls) -> Iterable[Example]:
        seeds, weight = random(3, 4).astype(np.float32), random(5).astype(np.float32)
        for kind in (LSHProjectionType.DENSE, LSHProjectionType.SPARSE):
            for columns in (1, 2, 3, 6, 9, 12, 15, 16, 31, 32, 40):
                x = np.arange(5 * columns, dtype=np.int32).reshape(5, columns) * 7919
                yield Example(cls(kind), (seeds, x), constant=(0,), differentiable=False)
            yield Example(cls(kind), (seeds, x, weight), constant=(0, 2), differentiable=False)
            yield Example(
                cls(kind), (seeds, x[:, 0].astype(np.int64), weight), constant=(0, 2), differentiable=False
            )
