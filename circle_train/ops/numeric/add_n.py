"""Sums of any number of operands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Elementwise
from circle_train.ops.base import Example, Op, random, register
from circle_train.ops.elementwise import same_dtype
from circle_train.ops.versions import SHORT_OR_LONG


@register("ADD_N", "AddNOptions")
class AddN(Op):
    """The sum of operands of one shape."""

    identity_gradient = ("xs",)
    axes = Elementwise()
    formula = "add(*xs)"
    gradient_formulas = {"xs": "copy(dy)"}
    litert_lacks = SHORT_OR_LONG

    def infer(self, *xs: TensorType) -> TensorType:
        if not xs:
            raise ModelError(f"{self.name} has no inputs, expected at least 1: the file is damaged")
        same_dtype(self.name, *xs)
        if any(x.rank != xs[0].rank for x in xs):
            raise ModelError(f"{self.name}: operands are {', '.join(map(str, xs))}; expected one shape")
        sizes = [{x.shape[axis] for x in xs} - {-1} for axis in range(xs[0].rank)]
        if any(len(size) > 1 for size in sizes):
            raise ModelError(f"{self.name}: operands are {', '.join(map(str, xs))}; expected one shape")
        return TensorType(xs[0].dtype, tuple(max(size, default=-1) for size in sizes))

    def forward(self, *xs: Array) -> Array:
        total = xs[0].copy()
        for x in xs[1:]:
            total += x
        return total

    def grad_xs(self, dy: Array) -> Array:
        return dy

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield Example(cls(), tuple(random(2, 3, seed=i) for i in range(3)))
        yield Example(cls(), (random(4),))
        yield Example(cls(), (np.array([1, 2], np.int32), np.array([30, 40], np.int32)))

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        return (len(inputs) - 1) * outputs[0].size
