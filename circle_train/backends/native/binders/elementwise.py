"""Operators of one element at a time, alone and in chains."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np

from circle_train.backends.native.binders.chain import Builder, assemble, chain, is_bits
from circle_train.backends.native.binders.formula import Formula
from circle_train.backends.native.engine.abi import ChainOp
from circle_train.backends.native.engine.binding import (
    GRADIENTS,
    OPS,
    Calls,
    Values,
    binds,
    binds_fused,
    binds_gradient,
    floats,
)
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import Activation
from circle_train.ops.base import Op
from circle_train.ops.internal.active_bits import ActiveBits, PassActive
from circle_train.ops.internal.fused import Fused
from circle_train.ops.internal.gradient import Gradient
from circle_train.ops.numeric import logic
from circle_train.ops.numeric.fill import Cast
from circle_train.ops.numeric.select import Select
from circle_train.ops.registry import INTERNAL, REGISTRY

BITWISE = (ActiveBits, PassActive)
"""What writes or reads bits; to all others uint8 are numbers."""
TRUTHS = (logic.Comparison, logic.Connective, logic.LogicalNot)
"""What makes truth values."""
CASTS = {
    ("float32", "bool"), ("float32", "int32"), ("bool", "float32"), ("bool", "int32"), ("int32", "float32"),
    ("int64", "float32"), ("float32", "float32"),
}  # fmt: skip
"""Conversions that a chain makes as numpy does: what a float holds on its way is what is meant."""


def clip(b: Builder, x: int, low: float, high: float | None) -> int:
    lower = b.emit(ChainOp.MAX_IMM, x, imm=low)
    return lower if high is None else b.emit(ChainOp.MIN_IMM, lower, imm=high)


def activate(b: Builder, kind: Activation, x: int) -> int:
    """A fused activation."""
    if kind is Activation.TANH:
        return b.emit(ChainOp.TANH, x)
    low, high = kind.bounds
    return x if low is None else clip(b, x, low, high)


def formula_of(op: Op) -> str:
    """What the chain kernel computes for the op or gradient, but for a fused activation; nothing where it knows none."""
    if isinstance(op, Gradient):
        return op.of.gradient_formulas.get(op.of.input_name(op.wrt), "")
    return "" if op.activation is Activation.SIGN_BIT else op.formula


def is_elementwise(op: Op) -> bool:
    """Whether the chain kernel knows the op."""
    return bool(formula_of(op))


def emit_op(b: Builder, op: Op, values: Sequence[int | None]) -> int | None:
    """The value of an elementwise op or gradient, its fused activation included; None where there is no formula."""
    text = formula_of(op)
    if not text:
        return None
    inputs: dict[str, int | Sequence[int] | None]
    if isinstance(op, Gradient):
        inputs = dict(zip((name for name, _ in op.counts), values, strict=True))
        return Formula(b, op.of, inputs).emit(text)
    names = [spec.name for spec in op.inputs]
    given = [value for value in values if value is not None]
    inputs = {names[0]: given} if op.is_variadic else dict(zip(names, op.pad(values), strict=True))
    return activate(b, op.activation, Formula(b, op, inputs).emit(text))


def elementwise(op: Op, inputs: Values, outputs: Sequence[Array]) -> Calls:
    """One op as a chain of its own."""
    arrays = [a for a in inputs if a is not None]
    if not _computable(op, arrays, outputs):
        return None
    builder, numbers = Builder(len(arrays)), count()
    result = emit_op(builder, op, [None if a is None else next(numbers) for a in inputs])
    return None if result is None else assemble(builder, [result], arrays, outputs)


def _gradient_alone(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    values = [given[name] for name, _ in op.counts]
    shapes = {np.shape(v) for v in values if v is not None}
    if shapes != {out.shape} and np.broadcast_shapes(*shapes) != out.shape:
        return None
    return elementwise(op, values, [out])


def _computable(op: Op, inputs: Sequence[Array], outputs: Sequence[Array]) -> bool:
    """Registers hold floats: truth values are 0 and 1, integers may only be cast."""
    if isinstance(op, BITWISE):
        return floats(*(a for a in (*inputs, *outputs) if not is_bits(a)))
    if isinstance(op.of if isinstance(op, Gradient) else op, Cast):
        return (inputs[0].dtype.name, outputs[0].dtype.name) in CASTS
    plain = (*inputs, *(a for a in outputs if a.dtype != np.bool_ or isinstance(op, TRUTHS)))
    return floats(*(a for a in plain if a.dtype not in (np.uint16, np.bool_)))


@binds_fused("chain")
def fused_chain(op: Fused, given: dict[str, Any], outputs: Sequence[Array]) -> Calls:
    """A connected group of elementwise nodes in one pass over memory."""
    arrays = list(given.values())
    builder = Builder(len(arrays))
    values: dict[int, int] = {i: i for i in range(len(arrays))}
    for part in op.parts:
        result = emit_op(builder, part.op, [None if i is None else values[i] for i in part.inputs])
        if result is None:
            return None
        values[part.outputs[0]] = result
    return assemble(builder, [values[i] for i in op.results], arrays, outputs)


@binds(Select)
def select(op: Select, inputs: Values, outputs: Sequence[Array]) -> Calls:
    """A vector of conditions chooses rows."""
    condition, x1, x2 = inputs
    if not floats(x1, x2, outputs[0]):
        return None
    spread = op.spread(condition, x1.ndim)
    return chain(lambda b, *values: b.emit(ChainOp.SELECT, *values), [spread, x1, x2], outputs[0])


@binds_gradient("x1", Select)
@binds_gradient("x2", Select)
def select_gradient(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    assert isinstance(op.of, Select)
    dy, first = given["dy"], op.of.input_name(op.wrt) == "x1"
    if not floats(dy, out):
        return None
    spread = op.of.spread(given["condition"], dy.ndim)

    def chosen(b: Builder, dy: int, condition: int) -> int:
        return b.emit(ChainOp.MUL, dy, condition if first else b.emit(ChainOp.LOGICAL_NOT, condition))

    return chain(chosen, [dy, spread], out)


for _op in (*REGISTRY.values(), *INTERNAL.values()):
    if _op.formula:
        OPS[_op] = elementwise
    for _wrt in _op.gradient_formulas:
        GRADIENTS[_op, _wrt] = _gradient_alone
