"""Random numbers: a prediction draws the same ones every time, each training pass draws anew."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import DType, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Mixes
from circle_train.ops.base import Example, Op, register
from circle_train.ops.checks import length, sizes_in
from circle_train.ops.numeric.lehmer import uniform
from circle_train.record import record

BITS = (1 << 64) - 1
SHAPES = ((2, 3), (5,), (), (0, 2))


@record
class Draw(Op):
    """Base: numbers of a given shape, decided by the seeds; without any, the model's other draws are others."""

    seed: int = 0
    seed2: int = 0
    stops_gradient = True
    draws = True
    axes = Mixes("its numbers follow one another")
    static_inputs = ("shape",)

    def infer(self, shape: TensorType) -> TensorType:
        rank = length(self.name, "shape", shape)
        if shape.value is None:
            return TensorType(DType.FLOAT32, (-1,) * rank)
        sizes = tuple(sizes_in(shape.value))
        if min(sizes, default=0) < 0:
            raise ModelError(f"{self.name}: shape is {list(sizes)}, expected sizes of at least 0")
        return TensorType(DType.FLOAT32, sizes)

    def forward(self, shape: Array) -> Array:
        return self.drawn(shape, ())

    def drawn(self, shape: Array, moment: Sequence[int], part: int = 0) -> Array:
        """The numbers of a moment; those of a batch's parts are the whole batch's, one behind the other."""
        sizes = [int(n) for n in shape]
        entropy = [self.seed & BITS, self.seed2 & BITS, *moment]
        first, second = (int(n) for n in np.random.SeedSequence(entropy).generate_state(2))
        return self.numbers((first, second), prod(sizes), part * prod(sizes)).reshape(sizes)

    def numbers(self, starts: tuple[int, int], count: int, skipped: int) -> Array:
        raise NotImplementedError

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for seed, shape in enumerate(SHAPES):
            yield Example(cls(seed, 7), (np.array(shape, np.int32),), differentiable=False)


@register("RANDOM_UNIFORM", "RandomOptions")
@record
class RandomUniform(Draw):
    """From 0 to below 1."""

    def numbers(self, starts: tuple[int, int], count: int, skipped: int) -> Array:
        return uniform(starts[0], count, skipped)


@register("RANDOM_STANDARD_NORMAL", "RandomOptions")
@record
class RandomStandardNormal(Draw):
    """√(-2 log(1 - a)) · cos(2πb) of two uniform numbers from courses of their own (Box and Muller)."""

    def numbers(self, starts: tuple[int, int], count: int, skipped: int) -> Array:
        a, b = (uniform(start, count, skipped).astype(np.float64) for start in starts)
        return (np.sqrt(-2 * np.log1p(-a)) * np.cos(2 * np.pi * b)).astype(np.float32)


@register("DRAWN", internal=True)
@record
class Drawn(Op):
    """The same in training: `random` holds the session's seed, the passes so far, and which part of its batch is run."""

    of: Draw = RandomUniform()
    stops_gradient = True
    draws = True
    axes = Mixes("its numbers follow one another")
    static_inputs = ("shape",)

    def infer(self, shape: TensorType, random: TensorType) -> TensorType:
        return self.of.infer(shape)

    def forward(self, shape: Array, random: Array) -> Array:
        session, passes, part = (int(value) for value in random)
        return self.of.drawn(shape, (session, passes), part)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for op in (RandomUniform(1, 2), RandomStandardNormal(0, 3)):
            numbers = np.array([2, 3], np.int32), np.array([1, 2, 0], np.int64)
            yield Example(cls(op), numbers, differentiable=False)
