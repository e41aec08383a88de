"""Functions of one number: roots, exponentials, rounding."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from circle_train.ir import DType
from circle_train.ir.tensor_type import Array
from circle_train.ops.base import Example, register
from circle_train.ops.elementwise import OfFloats, Unary, felt, where_felt
from circle_train.ops.integers import OWN, OWN_8
from circle_train.ops.versions import BOTH_2, INT8_INT16, SMALL, Versions


class Rounding(Unary):
    """A piecewise constant function."""

    stops_gradient = True

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield from super().examples()
        yield Example(cls(), (np.array([-2.5, -1.5, -0.5, -0.0, 0.5, 1.5, 2.5, 3.0, -3.0]),))


@register("NEG", "NegOptions")
class Neg(Unary):
    formula = "neg(x)"
    gradient_formulas = {"x": "neg(dy)"}
    litert_lacks = SMALL | {DType.INT64}

    def forward(self, x: Array) -> Array:
        return -x

    def grad_x(self, dy: Array) -> Array:
        return -dy

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield from super().examples()
        yield Example(cls(), (np.array([3, -4, 0], np.int32),))


@register("ABS", "AbsOptions")
class Abs(Unary):
    in_integers = OWN
    versions = Versions({DType.UINT8: 2, DType.INT8: 2, DType.INT16: 4, DType.INT32: 5})
    formula = "abs(x)"
    gradient_formulas = {"x": "mul(dy, sign(x))"}
    litert_lacks = SMALL | {DType.INT64}

    def forward(self, x: Array) -> Array:
        return np.abs(x)

    def grad_x(self, dy: Array, x: Array) -> Array:
        return dy * np.sign(x)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield from super().examples()
        yield Example(cls(), (np.array([3, -4, 0], np.int32),))


@register("SIGN", "SignOptions")
class Sign(Rounding):
    versions = Versions({DType.INT32: 2})
    formula = "sign(x)"
    litert_lacks = SMALL | {DType.INT64}

    def forward(self, x: Array) -> Array:
        return np.sign(x)


@register("SQRT")
class Sqrt(OfFloats):
    steep = ("x",)
    in_integers = OWN_8
    positive_only = True
    formula = "sqrt(x)"
    gradient_formulas = {"x": where_felt("mul_imm(div(dy, y), imm=0.5)")}

    def forward(self, x: Array) -> Array:
        return np.sqrt(x)

    def grad_x(self, dy: Array, y: Array) -> Array:
        return felt(dy, dy / (2 * y))


@register("RSQRT")
class Rsqrt(OfFloats):
    steep = ("x",)
    positive_only = True
    in_integers = OWN_8
    versions = Versions(INT8_INT16)
    formula = "rsqrt(x)"
    gradient_formulas = {"x": where_felt("mul_imm(mul(dy, mul(square(y), y)), imm=-0.5)")}

    def forward(self, x: Array) -> Array:
        return 1 / np.sqrt(x)

    def grad_x(self, dy: Array, y: Array) -> Array:
        return felt(dy, dy * (y * y * y) / -2)


@register("EXP", "ExpOptions")
class Exp(OfFloats):
    in_integers = OWN
    versions = Versions(BOTH_2)
    formula = "exp(x)"
    gradient_formulas = {"x": "mul(dy, y)"}

    def forward(self, x: Array) -> Array:
        return np.exp(x)

    def grad_x(self, dy: Array, y: Array) -> Array:
        return dy * y


@register("LOG")
class Log(OfFloats):
    steep = ("x",)
    positive_only = True
    in_integers = OWN_8
    versions = Versions(BOTH_2)
    formula = "log(x)"
    gradient_formulas = {"x": where_felt("div(dy, x)")}

    def forward(self, x: Array) -> Array:
        return np.log(x)

    def grad_x(self, dy: Array, x: Array) -> Array:
        return felt(dy, dy / x)


@register("SIN")
class Sin(OfFloats):
    formula = "sin(x)"
    gradient_formulas = {"x": "mul(dy, cos(x))"}

    def forward(self, x: Array) -> Array:
        return np.sin(x)

    def grad_x(self, dy: Array, x: Array) -> Array:
        return dy * np.cos(x)


@register("COS", "CosOptions")
class Cos(OfFloats):
    formula = "cos(x)"
    gradient_formulas = {"x": "neg(mul(dy, sin(x)))"}

    def forward(self, x: Array) -> Array:
        return np.cos(x)

    def grad_x(self, dy: Array, x: Array) -> Array:
        return -dy * np.sin(x)


@register("SQUARE", "SquareOptions")
class Square(Unary):
    formula = "square(x)"
    gradient_formulas = {"x": "mul_imm(mul(dy, x), imm=2)"}

    def forward(self, x: Array) -> Array:
        return x * x

    def grad_x(self, dy: Array, x: Array) -> Array:
        return 2 * dy * x


@register("CEIL")
class Ceil(Rounding, OfFloats):
    formula = "ceil(x)"

    def forward(self, x: Array) -> Array:
        return np.ceil(x)


@register("FLOOR")
class Floor(Rounding, OfFloats):
    formula = "floor(x)"

    def forward(self, x: Array) -> Array:
        return np.floor(x)


@register("ROUND")
class Round(Rounding, OfFloats):
    """To the nearest integer, halves to the even one."""

    formula = "round(x)"

    def forward(self, x: Array) -> Array:
        return np.rint(x)
