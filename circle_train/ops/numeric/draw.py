"""Random numbers: a prediction draws the same ones every time, each training pass draws anew."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from math import prod

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import DType, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Mixes
from circle_train.ops.base import Example, Op, random, register
from circle_train.ops.checks import has_rank, length, scalar, sizes_in
from circle_train.ops.numeric.lehmer import uniform
from circle_train.record import record

BITS = (1 << 64) - 1
SHAPES = ((2, 3), (5,), (), (0, 2))


@record
class Seeded(Op):
    """Base: what the seeds decide; without any, the model's other draws are others."""

    seed: int = 0
    seed2: int = 0
    stops_gradient = True
    draws = True
    axes = Mixes("its numbers follow one another")


@record
class Draw(Seeded):
    """Base: numbers of a given shape."""

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


@register("MULTINOMIAL", "RandomOptions")
@record
class Multinomial(Seeded):
    """So many classes for each row of logits, each as often as its softmax says."""

    into: DType | None = field(default=None, compare=False)
    """What the file's tensor is: no option says it."""
    static_inputs = ("count",)

    def with_types(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Multinomial:
        return replace(self, into=outputs[0].dtype) if len(outputs) == 1 else self

    def infer(self, logits: TensorType, count: TensorType) -> TensorType:
        has_rank(self.name, "logits", logits, 2)
        number = scalar(self.name, "count", count)
        if logits.shape[1] == 0 or (number is not None and number < 0):
            raise ModelError(
                f"{self.name}: draws {number} of each row of {logits}, expected classes, and no fewer than none"
            )
        return TensorType(self.into or DType.INT64, (logits.shape[0], -1 if number is None else number))

    def forward(self, logits: Array, count: Array) -> Array:
        numbers = RandomUniform(self.seed, self.seed2).drawn(self.shape(logits, count), ())
        return self.places.forward(logits, numbers)

    @staticmethod
    def shape(logits: Array | TensorType, count: Array) -> Array:
        """Of what it draws."""
        return np.array([logits.shape[0], int(count.reshape(()))], np.int32)

    @property
    def places(self) -> ClassesAt:
        """What makes classes of uniform numbers."""
        return ClassesAt(self.into or DType.INT64)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for seed, into in enumerate((DType.INT32, DType.INT64)):
            yield Example(cls(seed, 7, into), (random(3, 5), np.array(4, np.int32)), differentiable=False)


@register("CLASSES_AT", internal=True)
@record
class ClassesAt(Op):
    """The class at each number, where 0 to 1 is shared out by the softmax of logits; what is not finite has no share."""

    into: DType = DType.INT64
    stops_gradient = True
    axes = Mixes("rows have numbers of their own")

    def infer(self, logits: TensorType, numbers: TensorType) -> TensorType:
        return TensorType(self.into, numbers.shape)

    def forward(self, logits: Array, numbers: Array) -> Array:
        finite = np.isfinite(logits)
        most = np.max(logits, 1, keepdims=True, initial=np.finfo(logits.dtype).min, where=finite)
        shares = np.exp(np.where(finite, logits - most, -np.inf).astype(np.float64)).cumsum(1)
        rows = zip(shares, numbers, strict=True)
        found = [np.searchsorted(row, places * row[-1], side="right") for row, places in rows]
        return np.array(found, self.into.numpy).reshape(numbers.shape)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield Example(cls(), (random(3, 5), random(3, 4, low=0.0)), differentiable=False)


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
