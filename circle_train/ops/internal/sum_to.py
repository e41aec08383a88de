"""The sum that undoes a broadcast, as a node of its own."""

from __future__ import annotations

from collections.abc import Iterable

from circle_train.ir import TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Mixes
from circle_train.ops.base import Example, Op, random, register
from circle_train.ops.internal.gradient import unbroadcast
from circle_train.record import record


@register("SUM_TO", internal=True)
@record
class SumTo(Op):
    """Sums over the axes along which `shape` was broadcast."""

    shape: tuple[int, ...] = ()

    axes = Mixes("it adds up what was broadcast")

    def infer(self, x: TensorType) -> TensorType:
        return TensorType(x.dtype, self.shape)

    def forward(self, x: Array) -> Array:
        return unbroadcast(x, self.shape)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for shape in ((4,), (3, 1), (1, 4), (2, 3, 4), (1,), (2, 1, 1)):
            yield Example(cls(shape), (random(2, 3, 4),), differentiable=False)
