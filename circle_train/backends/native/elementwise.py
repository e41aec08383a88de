"""Operators of one element at a time, alone and in chains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from circle_train.backends.native.binding import GRADIENTS, OPS, Calls, Values, binds_fused, floats
from circle_train.backends.native.chain import Builder, assemble, is_bits
from circle_train.backends.native.codes import ChainOp
from circle_train.ir.tensor_type import Array
from circle_train.ops import activation, arithmetic, select, unary
from circle_train.ops.active_bits import ActiveBits, PassActive
from circle_train.ops.attributes import Activation
from circle_train.ops.base import Op
from circle_train.ops.fused import Fused
from circle_train.ops.gradient import ActivationGradient, Gradient

Emit = Callable[..., int]
"""(builder, op, one value an input) -> the value of the result"""
FORMULAS: dict[type[Op], Emit] = {}
BITWISE = (ActiveBits, PassActive)
"""What writes or reads bits; to all others uint8 are numbers."""
GRADIENT_FORMULAS: dict[tuple[type[Op], str], Emit] = {}
"""(builder, op, values by the gradient's parameter names) -> the value of the result, in dy's shape"""


def _plain(*codes: ChainOp) -> Emit:
    """Opcodes one after the other: the first takes the inputs, each other what came before."""

    def emit(b: Builder, op: Op, *values: int) -> int:
        result = b.emit(codes[0], *values)
        for code in codes[1:]:
            result = b.emit(code, result)
        return result

    return emit


def _with(code: ChainOp, imm: Callable[[Any], float]) -> Emit:
    """One opcode with a number of the operator's."""
    return lambda b, op, *values: b.emit(code, *values, imm=imm(op))


def clip(b: Builder, x: int, low: float, high: float | None) -> int:
    lower = b.emit(ChainOp.MAX_IMM, x, imm=low)
    return lower if high is None else b.emit(ChainOp.MIN_IMM, lower, imm=high)


def clipped(b: Builder, op: Any, x: int) -> int:
    return clip(b, x, op.low, op.high)


def activate(b: Builder, kind: Activation, x: int) -> int:
    """A fused activation."""
    if kind is Activation.TANH:
        return b.emit(ChainOp.TANH, x)
    low, high = kind.bounds
    return x if low is None else clip(b, x, low, high)


MASKS = {
    Activation.RELU: ChainOp.RELU_MASK,
    Activation.RELU6: ChainOp.RELU6_MASK,
    Activation.RELU_N1_TO_1: ChainOp.RELU_N1_TO_1_MASK,
    Activation.TANH: ChainOp.TANH_GRAD,
}


def deactivate(b: Builder, op: ActivationGradient, dy: int, y: int) -> int:
    return dy if op.kind is Activation.NONE else b.emit(MASKS[op.kind], y, dy)


def gelu(b: Builder, op: activation.Gelu, x: int) -> int:
    return b.emit(ChainOp.GELU_TANH if op.approximate else ChainOp.GELU, x)


def gelu_gradient(b: Builder, op: activation.Gelu, dy: int, x: int) -> int:
    return b.emit(ChainOp.GELU_TANH_GRAD if op.approximate else ChainOp.GELU_GRAD, x, dy)


def inside(b: Builder, op: ActiveBits, y: int) -> int:
    """1 where y lies strictly between the bounds."""
    above = b.emit(ChainOp.GREATER, y, b.constant(op.low))
    if op.high is None:
        return above
    return b.emit(ChainOp.LOGICAL_AND, above, b.emit(ChainOp.LESS, y, b.constant(op.high)))


def add_n(b: Builder, op: Op, *xs: int) -> int:
    total = xs[0] if len(xs) > 1 else b.emit(ChainOp.COPY, xs[0])
    for x in xs[1:]:
        total = b.emit(ChainOp.ADD, total, x)
    return total


def squared_difference(b: Builder, op: Op, x1: int, x2: int) -> int:
    return b.emit(ChainOp.SQUARE, b.emit(ChainOp.SUB, x1, x2))


def power(b: Builder, op: Op, x1: int, x2: int) -> int:
    return b.emit(ChainOp.POW, x1, x2)


C = ChainOp
FORMULAS.update(
    {
        arithmetic.Add: _plain(C.ADD),
        arithmetic.Sub: _plain(C.SUB),
        arithmetic.Mul: _plain(C.MUL),
        arithmetic.Div: _plain(C.DIV),
        arithmetic.Maximum: _plain(C.MAX),
        arithmetic.Minimum: _plain(C.MIN),
        arithmetic.SquaredDifference: squared_difference,
        arithmetic.Pow: power,
        arithmetic.AddN: add_n,
        unary.Neg: _plain(C.NEG),
        unary.Abs: _plain(C.ABS),
        unary.Sign: _plain(C.SIGN),
        unary.Sqrt: _plain(C.SQRT),
        unary.Rsqrt: _plain(C.RSQRT),
        unary.Exp: _plain(C.EXP),
        unary.Log: _plain(C.LOG),
        unary.Sin: _plain(C.SIN),
        unary.Cos: _plain(C.COS),
        unary.Square: _plain(C.SQUARE),
        unary.Floor: _plain(C.FLOOR),
        unary.Ceil: _plain(C.CEIL),
        unary.Round: _plain(C.ROUND),
        activation.Relu: _with(C.MAX_IMM, lambda op: 0.0),
        activation.Relu6: clipped,
        activation.ReluN1To1: clipped,
        activation.Relu0To1: clipped,
        activation.LeakyRelu: _with(C.LEAKY_RELU, lambda op: op.alpha),
        activation.Elu: _plain(C.ELU),
        activation.Gelu: gelu,
        activation.Logistic: _plain(C.LOGISTIC),
        activation.Tanh: _plain(C.TANH),
        activation.HardSwish: _plain(C.HARD_SWISH),
        select.SelectV2: _plain(C.SELECT),
        ActivationGradient: deactivate,
        ActiveBits: inside,
        PassActive: lambda b, op, dy, bits: b.emit(C.RELU_MASK, bits, dy),
    }
)


def _gradient(op: type[Op], wrt: str, emit: Emit) -> None:
    GRADIENT_FORMULAS[op, wrt] = emit


def _interval(low: float, high: float) -> Emit:
    """dy where low < y < high."""

    def emit(b: Builder, op: Op, dy: int, y: int) -> int:
        inside = b.emit(
            C.LOGICAL_AND, b.emit(C.GREATER, y, b.constant(low)), b.emit(C.LESS, y, b.constant(high))
        )
        return b.emit(C.MUL, dy, inside)

    return emit


def _scaled_difference(sign: float) -> Emit:
    return lambda b, op, dy, x1, x2: b.emit(C.MUL_IMM, b.emit(C.MUL, dy, b.emit(C.SUB, x1, x2)), imm=2 * sign)


def _quotient(b: Builder, op: Op, dy: int, x1: int, x2: int) -> int:
    return b.emit(C.NEG, b.emit(C.DIV, b.emit(C.MUL, dy, x1), b.emit(C.SQUARE, x2)))


def _cube(b: Builder, op: Op, dy: int, y: int) -> int:
    return b.emit(C.MUL_IMM, b.emit(C.MUL, dy, b.emit(C.MUL, b.emit(C.SQUARE, y), y)), imm=-0.5)


def _where(code: ChainOp) -> Emit:
    return lambda b, op, dy, x1, x2: b.emit(C.MUL, dy, b.emit(code, x1, x2))


_gradient(arithmetic.Add, "x1", _plain(C.COPY))
_gradient(arithmetic.Add, "x2", _plain(C.COPY))
_gradient(arithmetic.Sub, "x1", _plain(C.COPY))
_gradient(arithmetic.Sub, "x2", _plain(C.NEG))
_gradient(arithmetic.AddN, "xs", _plain(C.COPY))
_gradient(arithmetic.Mul, "x1", _plain(C.MUL))
_gradient(arithmetic.Mul, "x2", _plain(C.MUL))
_gradient(arithmetic.Div, "x1", _plain(C.DIV))
_gradient(arithmetic.Div, "x2", _quotient)
_gradient(arithmetic.Maximum, "x1", _where(C.GREATER_EQUAL))
_gradient(arithmetic.Maximum, "x2", _where(C.LESS))
_gradient(arithmetic.Minimum, "x1", _where(C.LESS_EQUAL))
_gradient(arithmetic.Minimum, "x2", _where(C.GREATER))
_gradient(arithmetic.SquaredDifference, "x1", _scaled_difference(1.0))
_gradient(arithmetic.SquaredDifference, "x2", _scaled_difference(-1.0))
_gradient(unary.Neg, "x", _plain(C.NEG))
_gradient(unary.Abs, "x", lambda b, op, dy, x: b.emit(C.MUL, dy, b.emit(C.SIGN, x)))
_gradient(unary.Sqrt, "x", lambda b, op, dy, y: b.emit(C.MUL_IMM, b.emit(C.DIV, dy, y), imm=0.5))
_gradient(unary.Rsqrt, "x", _cube)
_gradient(unary.Exp, "x", _plain(C.MUL))
_gradient(unary.Log, "x", _plain(C.DIV))
_gradient(unary.Sin, "x", lambda b, op, dy, x: b.emit(C.MUL, dy, b.emit(C.COS, x)))
_gradient(unary.Cos, "x", lambda b, op, dy, x: b.emit(C.NEG, b.emit(C.MUL, dy, b.emit(C.SIN, x))))
_gradient(unary.Square, "x", lambda b, op, dy, x: b.emit(C.MUL_IMM, b.emit(C.MUL, dy, x), imm=2.0))
_gradient(activation.Relu, "x", lambda b, op, dy, y: b.emit(C.RELU_MASK, y, dy))
_gradient(activation.Relu6, "x", lambda b, op, dy, y: b.emit(C.RELU6_MASK, y, dy))
_gradient(activation.ReluN1To1, "x", lambda b, op, dy, y: b.emit(C.RELU_N1_TO_1_MASK, y, dy))
_gradient(activation.Relu0To1, "x", _interval(0.0, 1.0))
_gradient(activation.LeakyRelu, "x", lambda b, op, dy, x: b.emit(C.LEAKY_RELU_GRAD, x, dy, imm=op.alpha))
_gradient(activation.Elu, "x", lambda b, op, dy, y: b.emit(C.ELU_GRAD, y, dy))
_gradient(activation.Gelu, "x", gelu_gradient)
_gradient(activation.Logistic, "x", lambda b, op, dy, y: b.emit(C.LOGISTIC_GRAD, y, dy))
_gradient(activation.Tanh, "x", lambda b, op, dy, y: b.emit(C.TANH_GRAD, y, dy))
_gradient(activation.HardSwish, "x", lambda b, op, dy, x: b.emit(C.HARD_SWISH_GRAD, x, dy))


def emit_op(b: Builder, op: Op, values: Sequence[int]) -> int | None:
    """The value of an elementwise op or gradient, its fused activation included; None where there is no formula."""
    if isinstance(op, Gradient):
        formula = GRADIENT_FORMULAS.get((type(op.of), op.of.input_name(op.wrt)))
        return None if formula is None else formula(b, op.of, *values)
    found = FORMULAS.get(type(op))
    if found is None or op.activation is Activation.SIGN_BIT:
        return None
    return activate(b, op.activation, found(b, op, *values))


def is_elementwise(op: Op) -> bool:
    """Whether the chain kernel knows the op."""
    if isinstance(op, Gradient):
        return (type(op.of), op.of.input_name(op.wrt)) in GRADIENT_FORMULAS
    return type(op) in FORMULAS and op.activation is not Activation.SIGN_BIT


def elementwise(op: Op, inputs: Values, outputs: Sequence[Array]) -> Calls:
    """One op as a chain of its own."""
    arrays = [a for a in inputs if a is not None]
    if not _computable(op, arrays, outputs):
        return None
    builder = Builder(len(arrays))
    result = emit_op(builder, op, range(len(arrays)))
    return None if result is None else assemble(builder, [result], arrays, outputs)


def _gradient_alone(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    values = [given[name] for name, _ in op.counts]
    if np.broadcast_shapes(*(np.shape(v) for v in values)) != out.shape:
        return None
    return elementwise(op, values, [out])


def _computable(op: Op, inputs: Sequence[Array], outputs: Sequence[Array]) -> bool:
    """Registers hold floats: integers and truth values may only choose."""
    if isinstance(op, BITWISE):
        return floats(*(a for a in (*inputs, *outputs) if not is_bits(a)))
    first = inputs[1:] if inputs and inputs[0].dtype == np.bool_ else inputs
    return floats(*(a for a in (*first, *outputs) if a.dtype != np.uint16))


@binds_fused("chain")
def fused_chain(op: Fused, given: dict[str, Any], outputs: Sequence[Array]) -> Calls:
    """A connected group of elementwise nodes in one pass over memory."""
    arrays = list(given.values())
    builder = Builder(len(arrays))
    values: dict[int, int] = {i: i for i in range(len(arrays))}
    for part in op.parts:
        result = emit_op(builder, part.op, [values[i] for i in part.inputs if i is not None])
        if result is None:
            return None
        values[part.outputs[0]] = result
    return assemble(builder, [values[i] for i in op.results], arrays, outputs)


OPS.update(dict.fromkeys(FORMULAS, elementwise))
GRADIENTS.update(dict.fromkeys(GRADIENT_FORMULAS, _gradient_alone))
