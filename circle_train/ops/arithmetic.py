"""Sums, products and their kin of two broadcasting operands."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import Activation
from circle_train.ops.base import Example, random, register
from circle_train.ops.elementwise import Binary


@dataclass(frozen=True)
class FusedBinary(Binary):
    """A binary op that may carry an activation."""

    fused_activation_function: Activation = Activation.NONE

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield from super().examples()
        for activation in (Activation.RELU, Activation.RELU6, Activation.RELU_N1_TO_1, Activation.TANH):
            yield Example(cls(activation), (random(3, 4, low=-8, high=8), random(4, seed=1, low=0.5, high=2)))


@register("ADD", "AddOptions")
@dataclass(frozen=True)
class Add(FusedBinary):
    pot_scale_int16: bool = True

    def forward(self, x1: Array, x2: Array) -> Array:
        return x1 + x2

    def grad_x1(self, dy: Array) -> Array:
        return dy

    def grad_x2(self, dy: Array) -> Array:
        return dy


@register("SUB", "SubOptions")
@dataclass(frozen=True)
class Sub(FusedBinary):
    pot_scale_int16: bool = True

    def forward(self, x1: Array, x2: Array) -> Array:
        return x1 - x2

    def grad_x1(self, dy: Array) -> Array:
        return dy

    def grad_x2(self, dy: Array) -> Array:
        return -dy


@register("MUL", "MulOptions")
@dataclass(frozen=True)
class Mul(FusedBinary):
    def forward(self, x1: Array, x2: Array) -> Array:
        return x1 * x2

    def grad_x1(self, dy: Array, x2: Array) -> Array:
        return dy * x2

    def grad_x2(self, dy: Array, x1: Array) -> Array:
        return dy * x1


@register("DIV", "DivOptions")
@dataclass(frozen=True)
class Div(FusedBinary):
    def forward(self, x1: Array, x2: Array) -> Array:
        return x1 / x2 if x1.dtype.kind == "f" else (np.sign(x1) * np.sign(x2) * (np.abs(x1) // np.abs(x2))).astype(x1.dtype)

    def grad_x1(self, dy: Array, x2: Array) -> Array:
        return dy / x2

    def grad_x2(self, dy: Array, x1: Array, x2: Array) -> Array:
        return -dy * x1 / (x2 * x2)
