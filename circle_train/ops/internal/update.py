"""The nodes that an optimizer adds: clipping of gradients, and the update of one weight in its memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import sqrt
from typing import Any, Protocol

import numpy as np

from circle_train.ir import Parts, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Elementwise, Mixes
from circle_train.ops.base import Example, Op, random, register
from circle_train.record import record


class Rule(Protocol):
    """What an update needs of an optimizer (see train.optimizers.Optimizer)."""

    def update(self, w: Array, g: Array, scalars: Any, *slots: Array) -> None: ...


@register("UPDATE", internal=True)
@record
class Update(Op):
    """One optimizer step on one weight, in its memory and its slots'.

    A smaller gradient moves as much of the weight, from the first number of each axis on, which is also returned.
    """

    rule: Rule
    parts: Parts | None = None
    """Of the length of a step, by channel."""

    mutates = True
    axes = Mixes("it writes into an operand")

    def infer(
        self, w: TensorType, g: TensorType, scalars: TensorType, *slots: TensorType
    ) -> tuple[TensorType, ...]:
        return () if g.shape == w.shape else (w.with_shape(g.shape),)

    def forward(self, w: Array, g: Array, scalars: Array, *slots: Array) -> tuple[Array, ...]:
        numbers = scalars if self.parts is None else [scalars[0] * self.parts.along(w.ndim), *scalars[1:]]
        if g.shape == w.shape:
            self.rule.update(w, g, numbers, *slots)
            return ()
        part = w[corner(g)].copy()
        self.rule.update(part, g, numbers, *slots)
        w[corner(g)] = part
        return (part,)

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        """Two operations for each element of the gradient and of each slot's moving mean."""
        size = inputs[1].size if inputs[1] else 0
        return 2 * size * (1 + 2 * (len(inputs) - 3))


def corner(part: Array) -> tuple[slice, ...]:
    """Where a part of a weight lies in it."""
    return tuple(slice(size) for size in part.shape)


@register("CLIP_BY_VALUE", internal=True)
@record
class ClipByValue(Op):
    """Elements beyond ±limit become ±limit."""

    limit: float = 1.0
    inplace = ("g",)
    axes = Elementwise(data="g")
    formula = "neg(min_imm(neg(min_imm(g, imm=limit)), imm=limit))"

    def forward(self, g: Array) -> Array:
        return np.clip(g, -self.limit, self.limit)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield Example(cls(0.5), (random(3, 4),))


@register("CLIP_FACTOR", internal=True)
@record
class ClipFactor(Op):
    """min(max_norm / (N + 1e-6), 1), N the Euclidean norm of all elements of all inputs together."""

    max_norm: float = 1.0

    axes = Mixes("the norm is that of all elements")

    def infer(self, *gs: TensorType) -> TensorType:
        return TensorType(gs[0].dtype, ())

    def forward(self, *gs: Array) -> Array:
        norm = sqrt(sum(float(np.einsum("i,i->", g.ravel(), g.ravel(), dtype=np.float64)) for g in gs))
        return np.asarray(min(self.max_norm / (norm + 1e-6), 1.0), gs[0].dtype)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield Example(cls(0.5), (random(3, 4), random(5)))
        yield Example(cls(50.0), (random(2, 1, 3),))

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        return sum(2 * g.size for g in inputs if g is not None)


@register("SCALE_BY", internal=True)
@record
class ScaleBy(Op):
    """g times a factor that is known only at run time."""

    inplace = ("g",)
    axes = Elementwise(data="g")
    formula = "mul(g, factor)"

    def forward(self, g: Array, factor: Array) -> Array:
        return g * factor

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield Example(cls(), (random(3, 4), np.array(0.25)))
