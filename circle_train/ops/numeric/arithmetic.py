"""Sums, products and their kin of two broadcasting operands."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from circle_train.errors import DataError
from circle_train.ir import DType
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import Activation
from circle_train.ops.base import Example, random, register
from circle_train.ops.elementwise import Binary, felt, where_felt
from circle_train.ops.integers import BOTH, BOTH_8, SUMS, InIntegers, Scales
from circle_train.ops.versions import BOTH_2, INT8, SHORT, SHORT_OR_LONG, Versions, broadcast_above_4
from circle_train.record import record


@record
class FusedBinary(Binary):
    """A binary op that may carry an activation; its constants are scales and shifts, which train."""

    fused_activation_function: Activation = Activation.NONE

    parameters = ("x1", "x2")

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield from super().examples()
        for activation in (Activation.RELU, Activation.RELU6, Activation.RELU_N1_TO_1, Activation.TANH):
            yield Example(cls(activation), (random(3, 4, low=-8, high=8), random(4, seed=1, low=0.5, high=2)))


@register("ADD", "AddOptions")
@record
class Add(FusedBinary):
    pot_scale_int16: bool = True

    identity_gradient = ("x1", "x2")
    in_integers = SUMS
    versions = Versions({DType.INT8: 2, DType.INT16: 5, DType.INT64: 4})
    formula = "add(x1, x2)"
    gradient_formulas = {"x1": "copy(dy)", "x2": "copy(dy)"}
    litert_lacks = SHORT

    def forward(self, x1: Array, x2: Array) -> Array:
        return x1 + x2

    def grad_x1(self, dy: Array) -> Array:
        return dy

    def grad_x2(self, dy: Array) -> Array:
        return dy


@register("SUB", "SubOptions")
@record
class Sub(FusedBinary):
    pot_scale_int16: bool = True

    identity_gradient = ("x1",)
    in_integers = SUMS
    versions = Versions({DType.INT8: 2, DType.INT64: 4, DType.INT16: 5}, (broadcast_above_4(3),))
    formula = "sub(x1, x2)"
    gradient_formulas = {"x1": "copy(dy)", "x2": "neg(dy)"}
    litert_lacks = SHORT

    def forward(self, x1: Array, x2: Array) -> Array:
        return x1 - x2

    def grad_x1(self, dy: Array) -> Array:
        return dy

    def grad_x2(self, dy: Array) -> Array:
        return -dy


@register("MUL", "MulOptions")
class Mul(FusedBinary):
    in_integers = BOTH
    versions = Versions({DType.INT8: 2, DType.INT64: 5, DType.COMPLEX64: 6, DType.INT16: 7, DType.UINT32: 7})
    formula = "mul(x1, x2)"
    gradient_formulas = {"x1": "mul(dy, x2)", "x2": "mul(dy, x1)"}
    litert_lacks = SHORT

    def forward(self, x1: Array, x2: Array) -> Array:
        return x1 * x2

    def grad_x1(self, dy: Array, x2: Array) -> Array:
        return dy * x2

    def grad_x2(self, dy: Array, x1: Array) -> Array:
        return dy * x1


@register("DIV", "DivOptions")
class Div(FusedBinary):
    """Integers are divided towards zero."""

    steep = ("x2",)
    versions = Versions(features=(broadcast_above_4(2),))
    formula = "div(x1, x2)"
    gradient_formulas = {
        "x1": where_felt("div(dy, x2)"),
        "x2": where_felt("neg(div(mul(dy, x1), square(x2)))"),
    }
    litert_lacks = SHORT_OR_LONG - {DType.BOOL}

    def forward(self, x1: Array, x2: Array) -> Array:
        if x1.dtype.kind == "f":
            return x1 / x2
        _refuse_zero(self.name, x2)
        quotient = x1 // x2
        return quotient + ((quotient < 0) & (quotient * x2 != x1)).astype(x1.dtype)

    def grad_x1(self, dy: Array, x2: Array) -> Array:
        return felt(dy, dy / x2)

    def grad_x2(self, dy: Array, x1: Array, x2: Array) -> Array:
        return felt(dy, -dy * x1 / (x2 * x2))


def _refuse_zero(op: str, divisor: Array) -> None:
    if divisor.dtype.kind != "f" and not divisor.all():
        raise DataError(
            f"{op}: an integer is divided by 0; expected divisors other than 0 (CAST to float gives infinity)"
        )


@register("FLOOR_DIV", "FloorDivOptions")
class FloorDiv(Binary):
    stops_gradient = True
    formula = "floor(div(x1, x2))"
    versions = Versions({DType.FLOAT32: 2, DType.INT8: 3, DType.INT16: 3})
    litert_lacks = frozenset({DType.UINT8, DType.INT64})

    def forward(self, x1: Array, x2: Array) -> Array:
        _refuse_zero(self.name, x2)
        return np.floor(x1 / x2) if x1.dtype.kind == "f" else x1 // x2


@register("FLOOR_MOD", "FloorModOptions")
class FloorMod(Binary):
    """x1 - floor(x1 / x2) * x2: the result has the divisor's sign."""

    steep = ("x2",)
    formula = "floor_mod(x1, x2)"
    gradient_formulas = {"x1": "copy(dy)", "x2": "mul(neg(dy), floor(div(x1, x2)))"}
    versions = Versions(BOTH_2)
    litert_lacks = frozenset({DType.UINT8})

    def forward(self, x1: Array, x2: Array) -> Array:
        _refuse_zero(self.name, x2)
        return np.mod(x1, x2)

    def grad_x1(self, dy: Array) -> Array:
        return dy

    def grad_x2(self, dy: Array, x1: Array, x2: Array) -> Array:
        return -dy * np.floor(x1 / x2)


@register("MAXIMUM", "MaximumMinimumOptions")
class Maximum(Binary):
    """The gradient of a tie goes to x1."""

    parameters = ("x1", "x2")
    in_integers = InIntegers(Scales.ONE, data=("x1", "x2"))
    versions = Versions({DType.INT8: 2, DType.INT16: 4}, (broadcast_above_4(3),))
    formula = "max(x1, x2)"
    gradient_formulas = {"x1": "mul(dy, greater_equal(x1, x2))", "x2": "mul(dy, less(x1, x2))"}
    litert_lacks = frozenset({DType.BOOL})

    def forward(self, x1: Array, x2: Array) -> Array:
        return np.maximum(x1, x2)

    def grad_x1(self, dy: Array, x1: Array, x2: Array) -> Array:
        return dy * (x1 >= x2)

    def grad_x2(self, dy: Array, x1: Array, x2: Array) -> Array:
        return dy * (x1 < x2)


@register("MINIMUM", "MaximumMinimumOptions")
class Minimum(Binary):
    """The gradient of a tie goes to x1."""

    parameters = ("x1", "x2")
    in_integers = InIntegers(Scales.ONE, data=("x1", "x2"))
    versions = Versions({DType.INT8: 2, DType.INT16: 4}, (broadcast_above_4(3),))
    formula = "min(x1, x2)"
    gradient_formulas = {"x1": "mul(dy, less_equal(x1, x2))", "x2": "mul(dy, greater(x1, x2))"}
    litert_lacks = frozenset({DType.BOOL})

    def forward(self, x1: Array, x2: Array) -> Array:
        return np.minimum(x1, x2)

    def grad_x1(self, dy: Array, x1: Array, x2: Array) -> Array:
        return dy * (x1 <= x2)

    def grad_x2(self, dy: Array, x1: Array, x2: Array) -> Array:
        return dy * (x1 > x2)


@register("POW", "PowOptions")
class Pow(Binary):
    """x1 ** x2; the derivative by the exponent is taken as 0 where the base is not positive."""

    parameters = ("x1", "x2")
    steep = ("x1",)
    positive_only = True
    integers_too = False
    formula = "pow(x1, x2)"
    gradient_formulas = {
        "x1": where_felt("mul(mul(dy, x2), pow(x1, select(equal(x2, 0), 1, add_imm(x2, imm=-1))))"),
        "x2": "mul(mul(dy, y), select(greater(x1, 0), log(select(greater(x1, 0), x1, 1)), 0))",
    }
    litert_lacks = SHORT_OR_LONG - {DType.BOOL}

    def forward(self, x1: Array, x2: Array) -> Array:
        if x1.dtype.kind != "f" and (x2 < 0).any():
            raise DataError(
                f"{self.name}: an integer is raised to {int(x2.min())}; expected exponents of at least 0"
            )
        return np.power(x1, x2)

    def grad_x1(self, dy: Array, x1: Array, x2: Array) -> Array:
        exponent = np.where(x2 == 0, x2.dtype.type(1), x2 - 1)
        return felt(dy, dy * x2 * np.power(x1, exponent))

    def grad_x2(self, dy: Array, x1: Array, y: Array) -> Array:
        positive = x1 > 0
        return dy * y * np.where(positive, np.log(np.where(positive, x1, x1.dtype.type(1))), x1.dtype.type(0))

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield from super().examples()
        yield Example(cls(), (random(2, 3), np.array([[2], [3]]).astype(float)), differentiable=False)
        yield Example(cls(), (np.array([[2, -3], [5, 0]], np.int32), np.array([3, 2], np.int32)))


@register("SQUARED_DIFFERENCE", "SquaredDifferenceOptions")
class SquaredDifference(Binary):
    in_integers = BOTH_8
    versions = Versions(INT8)
    formula = "square(sub(x1, x2))"
    gradient_formulas = {
        "x1": "mul_imm(mul(dy, sub(x1, x2)), imm=2)",
        "x2": "mul_imm(mul(dy, sub(x1, x2)), imm=-2)",
    }
    litert_lacks = SHORT

    def forward(self, x1: Array, x2: Array) -> Array:
        difference = x1 - x2
        return difference * difference

    def grad_x1(self, dy: Array, x1: Array, x2: Array) -> Array:
        return 2 * dy * (x1 - x2)

    def grad_x2(self, dy: Array, x1: Array, x2: Array) -> Array:
        return 2 * dy * (x2 - x1)


@register("ATAN2", "ATan2Options")
class Atan2(Binary):
    """The angle of the point (x2, x1)."""

    steep = ("x1", "x2")
    integers_too = False
    formula = "atan2(x1, x2)"
    gradient_formulas = {
        "x1": where_felt("div(mul(dy, x2), add(square(x1), square(x2)))"),
        "x2": where_felt("neg(div(mul(dy, x1), add(square(x1), square(x2))))"),
    }

    def forward(self, x1: Array, x2: Array) -> Array:
        return np.arctan2(x1, x2)

    def grad_x1(self, dy: Array, x1: Array, x2: Array) -> Array:
        return felt(dy, dy * x2 / (x1 * x1 + x2 * x2))

    def grad_x2(self, dy: Array, x1: Array, x2: Array) -> Array:
        return felt(dy, -dy * x1 / (x1 * x1 + x2 * x2))
