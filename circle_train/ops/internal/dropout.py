"""The random masks of dropout: which elements a step keeps."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from circle_train.ir import DType, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Mixes
from circle_train.ops.base import Example, Op, register
from circle_train.ops.elementwise import Unary
from circle_train.ops.numeric.lehmer import uniform
from circle_train.record import record


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
