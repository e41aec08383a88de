"""Sums, products and their kin of two broadcasting operands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from circle_train.errors import DataError, ModelError
from circle_train.ir import DType, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import Activation
from circle_train.ops.axes import Elementwise
from circle_train.ops.base import Example, Op, random, register
from circle_train.ops.elementwise import Binary, same_dtype
from circle_train.ops.integers import BOTH, BOTH_8, SUMS, InIntegers, Scales
from circle_train.ops.versions import BOTH_2, INT8, Versions, broadcast_above_4
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
    gradient_formulas = {"x1": "div(dy, x2)", "x2": "neg(div(mul(dy, x1), square(x2)))"}

    def forward(self, x1: Array, x2: Array) -> Array:
        if x1.dtype.kind == "f":
            return x1 / x2
        _refuse_zero(self.name, x2)
        quotient = x1 // x2
        return quotient + ((quotient < 0) & (quotient * x2 != x1)).astype(x1.dtype)

    def grad_x1(self, dy: Array, x2: Array) -> Array:
        return dy / x2

    def grad_x2(self, dy: Array, x1: Array, x2: Array) -> Array:
        return -dy * x1 / (x2 * x2)


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
        "x1": "mul(mul(dy, x2), pow(x1, select(equal(x2, 0), 1, add_imm(x2, imm=-1))))",
        "x2": "mul(mul(dy, y), select(greater(x1, 0), log(select(greater(x1, 0), x1, 1)), 0))",
    }

    def forward(self, x1: Array, x2: Array) -> Array:
        if x1.dtype.kind != "f" and (x2 < 0).any():
            raise DataError(
                f"{self.name}: an integer is raised to {int(x2.min())}; expected exponents of at least 0"
            )
        return np.power(x1, x2)

    def grad_x1(self, dy: Array, x1: Array, x2: Array) -> Array:
        exponent = np.where(x2 == 0, x2.dtype.type(1), x2 - 1)
        return dy * x2 * np.power(x1, exponent)

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
        "x1": "div(mul(dy, x2), add(square(x1), square(x2)))",
        "x2": "neg(div(mul(dy, x1), add(square(x1), square(x2))))",
    }

    def forward(self, x1: Array, x2: Array) -> Array:
        return np.arctan2(x1, x2)

    def grad_x1(self, dy: Array, x1: Array, x2: Array) -> Array:
        return dy * x2 / (x1 * x1 + x2 * x2)

    def grad_x2(self, dy: Array, x1: Array, x2: Array) -> Array:
        return -dy * x1 / (x1 * x1 + x2 * x2)


class IntegerBinary(Binary):
    """Bits of two integer operands."""

    stops_gradient = True

    def infer(self, x1: TensorType, x2: TensorType) -> TensorType:
        if x1.dtype.is_float:
            raise ModelError(
                f"{self.name}: operand has element type {x1.dtype.name}, expected integers; insert a CAST"
            )
        return super().infer(x1, x2)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield Example(
            cls(), (np.array([[5, -6, 127], [-128, 0, 3]], np.int8), np.array([1, 3, 100], np.int8))
        )
        yield Example(cls(), (np.array([70000, -70000], np.int32), np.array([[2], [-1], [40]], np.int32)))
        yield Example(cls(), (np.array([7, 255], np.uint8), np.array(2, np.uint8)))


@register("BITWISE_XOR", "BitwiseXorOptions")
class BitwiseXor(IntegerBinary):
    def forward(self, x1: Array, x2: Array) -> Array:
        return np.bitwise_xor(x1, x2)


@register("RIGHT_SHIFT", "RightShiftOptions")
class RightShift(IntegerBinary):
    """Arithmetic shift; amounts beyond the width count as the widest, negative ones as 0."""

    def forward(self, x1: Array, x2: Array) -> Array:
        return np.right_shift(x1, np.clip(x2, 0, 8 * x1.dtype.itemsize - 1))


@register("ADD_N", "AddNOptions")
class AddN(Op):
    """The sum of operands of one shape."""

    identity_gradient = ("xs",)
    axes = Elementwise()
    formula = "add(*xs)"
    gradient_formulas = {"xs": "copy(dy)"}

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
