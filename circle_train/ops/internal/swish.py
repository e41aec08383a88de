"""x · logistic(x) as one op: its gradient wants x alone, where files spell out two operators that keep three tensors."""

from __future__ import annotations

from circle_train.ir.tensor_type import Array
from circle_train.ops.base import register
from circle_train.ops.numeric.activation import Activating, Logistic


@register("SWISH", internal=True)
class Swish(Activating):
    """x / (1 + exp(-x))"""

    formula = "mul(x, logistic(x))"
    gradient_formulas = {"x": "mul(dy, add(logistic(x), mul(x, logistic_grad(logistic(x), 1.0))))"}

    def forward(self, x: Array) -> Array:
        y: Array = x * Logistic().forward(x)
        return y

    def grad_x(self, dy: Array, x: Array) -> Array:
        s = Logistic().forward(x)
        return dy * (s * (1 + x * (1 - s)))
