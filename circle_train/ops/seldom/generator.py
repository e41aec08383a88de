"""StableHLO's random bits: ciphers of a counter (Salmon and others, 2011), the same on every machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from itertools import cycle, islice

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import DType, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import RngAlgorithm
from circle_train.ops.axes import Mixes
from circle_train.ops.base import Example, Op, register
from circle_train.record import record

HALF = np.uint64(32)
PHILOX = np.array([0xD2511F53, 0xCD9E8D57], np.uint64)
PHILOX_STEPS = (0x9E3779B9, 0xBB67AE85)
"""Added to the key after each of ten rounds."""
THREEFRY_TURNS = (13, 15, 26, 6, 17, 29, 16, 24)
THREEFRY_PARITY = 0x1BD11BDA
WORDS = (DType.INT32, DType.INT64, DType.UINT32, DType.UINT64)


def halves(numbers: Array) -> list[Array]:
    """The low and the high word of each."""
    return [numbers.astype(np.uint32), (numbers >> HALF).astype(np.uint32)]


def philox(key: Sequence[int], words: Sequence[Array]) -> list[Array]:
    """Ten rounds on four words, of which two are multiplied in each."""
    a, b, c, d = words
    for step in range(10):
        (low0, high0), (low1, high1) = (
            halves(one.astype(np.uint64) * by) for one, by in zip((a, c), PHILOX, strict=True)
        )
        first, second = (
            np.uint32((part + step * by) & 0xFFFFFFFF) for part, by in zip(key, PHILOX_STEPS, strict=True)
        )
        a, b, c, d = high1 ^ b ^ first, low1, high0 ^ d ^ second, low0
    return [a, b, c, d]


def threefry(key: Sequence[int], words: Sequence[Array]) -> list[Array]:
    """Twenty rounds on two words; after every fourth one the key is mixed in."""
    keys = [np.array(part, np.uint32) for part in (*key, key[0] ^ key[1] ^ THREEFRY_PARITY)]
    a, b = words[0] + keys[0], words[1] + keys[1]
    for number, turn in enumerate(islice(cycle(THREEFRY_TURNS), 20), 1):
        a = a + b
        b = ((b << np.uint32(turn)) | (b >> np.uint32(32 - turn))) ^ a
        if number % 4 == 0:
            times = number // 4
            a, b = a + keys[times % 3], b + keys[(times + 1) % 3] + np.uint32(times)
    return [a, b]


@register("STABLEHLO_RNG_BIT_GENERATOR", "StablehloRngBitGeneratorOptions")
@record
class StablehloRngBitGenerator(Op):
    """Bits that follow from a key and a counter, both in the state; the state with the counter moved on comes out too."""

    algorithm: RngAlgorithm = RngAlgorithm.DEFAULT
    into: TensorType | None = field(default=None, compare=False)
    """What the file's tensor is: no option says it."""

    stops_gradient = True
    axes = Mixes("its numbers follow one another")

    def with_types(
        self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]
    ) -> StablehloRngBitGenerator:
        return replace(self, into=outputs[1]) if len(outputs) == 2 else self

    def infer(self, state: TensorType) -> Sequence[TensorType]:
        lengths = (2,) if self.algorithm is RngAlgorithm.THREEFRY else (2, 3)
        if state.dtype is not DType.UINT64 or state.rank != 1 or state.shape[0] not in (*lengths, -1):
            raise ModelError(f"{self.name}: state is {state}, expected {lengths[-1]} numbers of UINT64")
        if self.into is None or self.into.dtype not in WORDS or not self.into.is_static:
            raise ModelError(f"{self.name}: makes {self.into}, expected integers of 32 or 64 bits, so many")
        return [TensorType(state.dtype, state.shape), TensorType(self.into.dtype, self.into.shape)]

    def forward(self, state: Array) -> tuple[Array, Array]:
        assert self.into is not None
        dtype = self.into.dtype.numpy
        assert dtype is not None
        count = self.into.size * dtype.itemsize // 4
        is_threefry = self.algorithm is RngAlgorithm.THREEFRY
        blocks = -(-count // (2 if is_threefry else 4))
        counter = state[1] + np.arange(blocks + 1, dtype=np.uint64)
        key = [int(word) for word in halves(state[0])]
        rest = halves(state[2] if len(state) == 3 else state[0])
        words = [np.broadcast_to(word, blocks) for word in (*halves(counter[:-1]), *rest)]
        made = np.stack(threefry(key, words) if is_threefry else philox(key, words), -1)
        after = np.array(state)
        after[1] = counter[-1]
        return after, made.reshape(-1)[:count].view(dtype).reshape(self.into.shape)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        state = np.array([0x0123456789ABCDEF, 0xFFFFFFFFFFFFFFFD, 0x1122334455667788], np.uint64)
        for algorithm in RngAlgorithm:
            for dtype, shape in ((DType.INT32, (3, 5)), (DType.UINT64, (7,)), (DType.UINT32, (2, 2))):
                for length in (2,) if algorithm is RngAlgorithm.THREEFRY else (2, 3):
                    yield Example(cls(algorithm, TensorType(dtype, shape)), (state[:length],))
        yield Example(cls(into=TensorType(DType.INT64, (0, 3))), (state,))
