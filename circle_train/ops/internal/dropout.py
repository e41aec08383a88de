"""The random masks of dropout: which elements a step keeps."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from circle_train.ir import DType, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Mixes
from circle_train.ops.base import Example, Op, register
from circle_train.ops.elementwise import Unary
from circle_train.record import record

MODULUS = 2**31 - 1
MULTIPLIER = 16807


@register("DROPOUT_MASK", internal=True)
@record
class DropoutMask(Op):
    """0 with probability `ratio`, else 1/(1-ratio); `random` holds the session's seed, the passes so far, and which
    part of its batch is run.

    The numbers are those of the Lehmer generator x ← 16807·x mod 2³¹-1, begun anew in each pass. A `seed` of
    the node's own counts as in ONNX Runtime: the pass's number is added to it, so the masks are the same. The masks of
    parts are those of the whole batch, one behind the other.
    """

    shape: tuple[int, ...] = ()
    ratio: float = 0.5
    seed: int | None = None
    number: int = 0
    """Tells the masks of one pass apart."""
    stops_gradient = True
    axes = Mixes("its numbers follow one another")
    draws = True

    def infer(self, random: TensorType) -> TensorType:
        return TensorType(DType.FLOAT32, self.shape)

    def forward(self, random: Array) -> Array:
        session, passes, part = (int(value) for value in random)
        if self.seed is None:
            start = int(np.random.SeedSequence([session, passes, self.number]).generate_state(1)[0])
        else:
            start = self.seed + passes
        count = int(np.prod(self.shape))
        kept = uniform(start, count, part * count) >= np.float32(self.ratio)
        return np.where(kept, np.float32(1 / (1 - self.ratio)), np.float32(0)).reshape(self.shape)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield Example(cls((3, 4), 0.25, seed=7), (np.array([1, 2, 0], np.int64),), differentiable=False)
        yield Example(cls((2, 3, 4), 0.5), (np.array([1, 2, 3], np.int64),), differentiable=False)


@register("DROPOUT", internal=True)
@record
class Dropout(Unary):
    """Passes its input on; training drops elements of it."""

    ratio: float = 0.5
    seed: int | None = None
    stops_gradient = True

    def forward(self, x: Array) -> Array:
        return x


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
