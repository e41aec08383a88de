"""Functions of single elements: sums, powers, comparisons, logic, trigonometry."""

from __future__ import annotations

import numpy as np

from circle_train.convert.building.builder import Builder
from circle_train.convert.building.erf import Erf
from circle_train.convert.building.refusal import Refusal
from circle_train.convert.building.registry import Call, handles
from circle_train.convert.onnx_file.elements import element_type
from circle_train.ir import DType, Tensor
from circle_train.ops.internal.dropout import Dropout as DropoutOp

UNARY = {
    "Exp": "EXP", "Log": "LOG", "Sqrt": "SQRT", "Abs": "ABS", "Neg": "NEG", "Floor": "FLOOR", "Ceil": "CEIL",
    "Sin": "SIN", "Cos": "COS", "Round": "ROUND", "Sign": "SIGN", "Not": "LOGICAL_NOT",
}  # fmt: skip
BINARY = {
    "Add": "ADD", "Sub": "SUB", "Mul": "MUL", "Div": "DIV", "And": "LOGICAL_AND", "Or": "LOGICAL_OR",
    "Xor": "NOT_EQUAL", "Equal": "EQUAL", "Less": "LESS", "LessOrEqual": "LESS_EQUAL", "Greater": "GREATER",
    "GreaterOrEqual": "GREATER_EQUAL", "BitwiseXor": "BITWISE_XOR",
}  # fmt: skip


@handles(*UNARY)
def unary(c: Call) -> Tensor:
    if c.op in ("Abs", "Sign") and c.dtype.numpy is not None and c.dtype.numpy.kind == "u" and c.op == "Abs":
        return c[0]
    return c.b(UNARY[c.op], c[0])


@handles(*BINARY)
def binary(c: Call) -> Tensor:
    x, y = aligned(c)
    return c.b(BINARY[c.op], x, y)


def aligned(c: Call) -> tuple[Tensor, Tensor]:
    """Both operands; up to opset 6 the second is placed at an axis of the first."""
    if c.opset >= 7 or not c.attr("broadcast") or c.attr("axis") is None:
        return c[0], c[1]
    axis, shape = c.axis(), c.shape(1)
    return c[0], c.b.reshape(c[1], (*shape, *(1,) * (c.rank() - axis - len(shape))))


@handles("Identity", "Dropout")
def identity(c: Call) -> Tensor | list[Tensor]:
    if c.op == "Dropout":
        return dropout(c)
    return c[0]


def dropout(c: Call) -> list[Tensor]:
    """Passes everything; where it is told to train, it stays an operator of its own until the end."""
    results = [c[0]]
    if c.opset < 7 and not c.attr("is_test", 0):
        raise Refusal("is_test is 0, so it is in training mode; export the model in eval mode")
    if c.opset >= 12 and c.optional(2) is not None:
        mode, ratio = c.b.value(c[2]), np.float32(0.5) if c.optional(1) is None else c.b.value(c[1])
        if mode is None or ratio is None:
            raise Refusal("its training_mode or ratio is computed while running")
        if mode.reshape(()) and float(np.reshape(ratio, ())) > 0:
            if c.uses(1):
                raise Refusal("it is in training mode and its random mask is used")
            c.shape()  # refused where it is known only while running
            results = c.b.emit(DropoutOp(float(np.reshape(ratio, ())), c.attr("seed")), [c[0]])
    if c.uses(1):
        results.append(c.b("BROADCAST_TO", c.b.constant(True), c.b.integers(c.shape())))
    return results


@handles("Max", "Min", "Sum", "Mean")
def variadic(c: Call) -> Tensor:
    name = {"Max": "MAXIMUM", "Min": "MINIMUM"}.get(c.op, "ADD")
    result = c[0]
    for index in range(1, len(c.inputs)):
        result = c.b(name, result, c[index])
    if c.op == "Mean" and len(c.inputs) > 1:
        result = c.b("DIV", result, c.b.like(result, len(c.inputs)))
    return result


@handles("Pow")
def power(c: Call) -> Tensor:
    b, x, y = c.b, c[0], c[1]
    exponent = b.value(y)
    if exponent is not None and exponent.size == 1 and x.dtype.is_float and exponent.ndim <= x.type.rank:
        if exponent.item() == 2:
            return b("SQUARE", x)
        if exponent.item() == 0.5:
            return b("SQRT", x)
    if x.dtype == y.dtype:
        return b("POW", x, y)
    if x.dtype.is_float:
        return b("POW", x, b.cast(y, x.dtype))
    wide = DType.FLOAT64 if DType.FLOAT64 in (x.dtype, y.dtype) else DType.FLOAT32
    return b.cast(b("POW", b.cast(x, wide), b.cast(y, wide)), x.dtype)


@handles("Mod")
def modulo(c: Call) -> Tensor:
    b, x, y = c.b, c[0], c[1]
    if not c.attr("fmod", 0):
        return b("FLOOR_MOD", x, y)
    size = b("FLOOR_MOD", b("ABS", x), b("ABS", y)) if _signed(x) else b("FLOOR_MOD", x, y)
    return b("MUL", b("SIGN", x), size) if _signed(x) else size


def _signed(x: Tensor) -> bool:
    return x.dtype.numpy is not None and x.dtype.numpy.kind != "u"


@handles("BitShift")
def bit_shift(c: Call) -> Tensor:
    """Shifts below zero or by all bits leave nothing but the sign; left is a product that wraps around."""
    b, x, by = c.b, c[0], c[1]
    kind = np.dtype(c.dtype.numpy)
    bits = kind.itemsize * 8
    inside = b("LESS", by, b.like(by, bits))
    if kind.kind == "i":
        inside = b("LOGICAL_AND", inside, b("GREATER_EQUAL", by, b.like(by, 0)))
    by = b("SELECT_V2", inside, by, b.like(by, bits - 1))
    left = c.required("direction") == "LEFT"
    y = b("MUL", x, b("POW", b.like(x, 2), by)) if left else b("RIGHT_SHIFT", x, by)
    return b("SELECT_V2", inside, y, b.like(y, 0)) if left or kind.kind == "u" else y


@handles("BitwiseNot")
def bitwise_not(c: Call) -> Tensor:
    return c.b("BITWISE_XOR", c[0], c.b.constant(np.array(-1).astype(c.dtype.numpy)))


@handles("Where")
def where(c: Call) -> Tensor:
    return c.b("SELECT_V2", c[0], c[1], c[2])


@handles("Reciprocal")
def reciprocal(c: Call) -> Tensor:
    return c.b("DIV", c.b.like(c[0], 1), c[0])


@handles("Erf")
def erf(c: Call) -> Tensor:
    return c.b.emit(Erf(), [c[0]])[0]


@handles("Cast")
def cast(c: Call) -> Tensor:
    target = element_type(int(c.required("to")))
    if target is None:
        raise Refusal("its target element type is one that Circle does not compute")
    return converted(c.b, c[0], target)


@handles("CastLike")
def cast_like(c: Call) -> Tensor:
    return converted(c.b, c[0], c[1].dtype)


def converted(b: Builder, x: Tensor, target: DType) -> Tensor:
    """CAST; to BOOL by comparison with zero."""
    if target is DType.BOOL and x.dtype is not DType.BOOL:
        return b("NOT_EQUAL", x, b.like(x, 0))
    return b.cast(x, target)


@handles("IsNaN")
def is_nan(c: Call) -> Tensor:
    return c.b("NOT_EQUAL", c[0], c[0])


@handles("IsInf")
def is_inf(c: Call) -> Tensor:
    b, x = c.b, c[0]
    above = b("EQUAL", x, b.like(x, np.inf))
    below = b("EQUAL", x, b.like(x, -np.inf))
    wanted = [
        t for t, on in ((above, c.attr("detect_positive", 1)), (below, c.attr("detect_negative", 1))) if on
    ]
    if not wanted:
        return b("LESS", b("ABS", x), b.like(x, 0))
    return wanted[0] if len(wanted) == 1 else b("LOGICAL_OR", above, below)


@handles("Tan")
def tangent(c: Call) -> Tensor:
    return c.b("DIV", c.b("SIN", c[0]), c.b("COS", c[0]))


@handles("Sinh", "Cosh")
def hyperbolic(c: Call) -> Tensor:
    """cosh(x) = e^h e^h / 2 + e^-|x| / 2 with h = |x| / 2, so that nothing overflows but the result; sinh = tanh cosh."""
    b, x = c.b, c[0]
    size, half = b("ABS", x), b.like(x, 0.5)
    root = b("EXP", b("MUL", size, half))
    up, down = b("MUL", b("MUL", root, half), root), b("MUL", b("EXP", b("NEG", size)), half)
    cosh = b("ADD", up, down)
    return b("MUL", b("TANH", x), cosh) if c.op == "Sinh" else cosh


@handles("Asin", "Acos", "Atan")
def arc(c: Call) -> Tensor:
    b, x = c.b, c[0]
    if c.op == "Atan":
        return b("ATAN2", x, b.like(x, 1))
    other = b("SQRT", b("MUL", b("SUB", b.like(x, 1), x), b("ADD", b.like(x, 1), x)))
    return b("ATAN2", x, other) if c.op == "Asin" else b("ATAN2", other, x)


@handles("Asinh", "Acosh", "Atanh")
def area(c: Call) -> Tensor:
    b, x = c.b, c[0]
    one = b.like(x, 1)
    if c.op == "Atanh":
        return b("MUL", b("LOG", b("DIV", b("ADD", one, x), b("SUB", one, x))), b.like(x, 0.5))
    size = x if c.op == "Acosh" else b("ABS", x)
    bound = 2.0**7 if x.dtype.name == "FLOAT16" else 2.0**30  # beyond, only the logarithm grows
    far = b.like(x, bound)
    near = b("MINIMUM", size, far)
    if c.op == "Acosh":
        root = b("MUL", b("SQRT", b("SUB", near, one)), b("SQRT", b("ADD", near, one)))
    else:
        root = b("SQRT", b("ADD", b("SQUARE", near), one))
    beyond = b("LOG", b("MUL", b("MAXIMUM", size, far), b.like(x, 1 / bound)))
    area = b("ADD", b("LOG", b("ADD", near, root)), beyond)
    return area if c.op == "Acosh" else b("MUL", b("SIGN", x), area)
