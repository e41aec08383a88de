"""Functions of one number: roots, exponentials, rounding."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from circle_train.ir.tensor_type import Array
from circle_train.ops.base import Example, register
from circle_train.ops.elementwise import Unary


@dataclass(frozen=True)
class Rounding(Unary):
    """A piecewise constant function."""

    stops_gradient = True

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield from super().examples()
        yield Example(cls(), (np.array([-2.5, -1.5, -0.5, -0.0, 0.5, 1.5, 2.5, 3.0, -3.0]),))


@register("NEG", "NegOptions")
@dataclass(frozen=True)
class Neg(Unary):
    def forward(self, x: Array) -> Array:
        return -x

    def grad_x(self, dy: Array) -> Array:
        return -dy

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield from super().examples()
        yield Example(cls(), (np.array([3, -4, 0], np.int32),))


@register("ABS", "AbsOptions")
@dataclass(frozen=True)
class Abs(Unary):
    def forward(self, x: Array) -> Array:
        return np.abs(x)

    def grad_x(self, dy: Array, x: Array) -> Array:
        return dy * np.sign(x)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield from super().examples()
        yield Example(cls(), (np.array([3, -4, 0], np.int32),))


@register("SIGN", "SignOptions")
@dataclass(frozen=True)
class Sign(Rounding):
    def forward(self, x: Array) -> Array:
        return np.sign(x)


@register("SQRT")
@dataclass(frozen=True)
class Sqrt(Unary):
    positive_only = True

    def forward(self, x: Array) -> Array:
        return np.sqrt(x)

    def grad_x(self, dy: Array, y: Array) -> Array:
        return dy / (2 * y)


@register("RSQRT")
@dataclass(frozen=True)
class Rsqrt(Unary):
    positive_only = True

    def forward(self, x: Array) -> Array:
        return 1 / np.sqrt(x)

    def grad_x(self, dy: Array, y: Array) -> Array:
        return dy * (y * y * y) / -2


@register("EXP", "ExpOptions")
@dataclass(frozen=True)
class Exp(Unary):
    def forward(self, x: Array) -> Array:
        return np.exp(x)

    def grad_x(self, dy: Array, y: Array) -> Array:
        return dy * y


@register("LOG")
@dataclass(frozen=True)
class Log(Unary):
    positive_only = True

    def forward(self, x: Array) -> Array:
        return np.log(x)

    def grad_x(self, dy: Array, x: Array) -> Array:
        return dy / x


@register("SIN")
@dataclass(frozen=True)
class Sin(Unary):
    def forward(self, x: Array) -> Array:
        return np.sin(x)

    def grad_x(self, dy: Array, x: Array) -> Array:
        return dy * np.cos(x)


@register("COS", "CosOptions")
@dataclass(frozen=True)
class Cos(Unary):
    def forward(self, x: Array) -> Array:
        return np.cos(x)

    def grad_x(self, dy: Array, x: Array) -> Array:
        return -dy * np.sin(x)


@register("SQUARE", "SquareOptions")
@dataclass(frozen=True)
class Square(Unary):
    def forward(self, x: Array) -> Array:
        return x * x

    def grad_x(self, dy: Array, x: Array) -> Array:
        return 2 * dy * x


@register("CEIL")
@dataclass(frozen=True)
class Ceil(Rounding):
    def forward(self, x: Array) -> Array:
        return np.ceil(x)


@register("FLOOR")
@dataclass(frozen=True)
class Floor(Rounding):
    def forward(self, x: Array) -> Array:
        return np.floor(x)


@register("ROUND")
@dataclass(frozen=True)
class Round(Rounding):
    """To the nearest integer, halves to the even one."""

    def forward(self, x: Array) -> Array:
        return np.rint(x)
