"""Running means that a training pass moves towards what its batch shows."""

from __future__ import annotations

from collections.abc import Iterable

from circle_train.ir import TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Mixes
from circle_train.ops.base import Example, Op, random, register
from circle_train.record import record


@register("MOVE_TOWARDS", internal=True)
@record
class MoveTowards(Op):
    """running = momentum·running + (1-momentum)·batch, in the memory of `running`."""

    momentum: float = 0.9
    mutates = True
    axes = Mixes("it writes into an operand")

    def infer(self, running: TensorType, batch: TensorType) -> tuple[TensorType, ...]:
        return ()

    def forward(self, running: Array, batch: Array) -> tuple[Array, ...]:
        running *= self.momentum
        running += (1 - self.momentum) * batch.reshape(running.shape)
        return ()

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield Example(cls(0.75), (random(5), random(5, seed=1)), differentiable=False)
