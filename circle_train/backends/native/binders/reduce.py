"""Reductions, their gradients, and the sums that undo a broadcast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from circle_train.backends.native.binders.chain import chain
from circle_train.backends.native.engine import abi
from circle_train.backends.native.engine.abi import MAX_RANK, ChainOp, Kernel, Reduce
from circle_train.backends.native.engine.binding import (
    GRADIENTS,
    Calls,
    GradientBinder,
    Values,
    binds,
    binds_gradient,
    call,
    copied,
    floats,
    pointer,
    sizes,
)
from circle_train.ir.tensor_type import Array
from circle_train.ops.internal.gradient import Gradient
from circle_train.ops.internal.padded import PADDED
from circle_train.ops.internal.sum_to import SumTo
from circle_train.ops.layers import conv
from circle_train.ops.numeric import arithmetic, reduce as reducers

CODES = {
    reducers.Sum: Reduce.SUM,
    reducers.Mean: Reduce.SUM,
    reducers.ReduceMax: Reduce.MAX,
    reducers.ReduceMin: Reduce.MIN,
    reducers.ReduceProd: Reduce.PROD,
}


@binds(*CODES)
def reducer(op: reducers.Reducer, inputs: Values, outputs: Sequence[Array]) -> Calls:
    x, axis = inputs
    axes = op.along(axis, x.ndim)
    scale = 1 / max(reducers.Mean.count(axes, x.shape), 1) if isinstance(op, reducers.Mean) else 1.0
    return reduced(x, outputs[0], axes, CODES[type(op)], scale)


def reduced(x: Array, y: Array, axes: Sequence[int], code: Reduce = Reduce.SUM, scale: float = 1.0) -> Calls:
    """y = scale · reduce(x) over the axes."""
    if not floats(x, y) or not x.size:
        return None
    extents: list[int] = []
    flags: list[int] = []
    for i, n in enumerate(x.shape):
        if n == 1:
            continue
        if flags and flags[-1] == (i in axes):
            extents[-1] *= n
        else:
            extents.append(n)
            flags.append(int(i in axes))
    if not any(flags):
        return (
            chain(lambda b, x: b.emit(ChainOp.MUL_IMM, x, imm=scale), [x.reshape(-1)], y.reshape(-1))
            if scale != 1
            else copied(x, y)
        )
    if len(extents) > MAX_RANK:
        return None
    args = abi.ReduceArgs(
        pointer(x), pointer(y), sizes(extents), tuple(flags), len(extents), int(code), scale, 0
    )
    return [call(Kernel.REDUCE, args, x, y)]


@binds(SumTo)
def sum_to(op: SumTo, inputs: Values, outputs: Sequence[Array]) -> Calls:
    return summed(inputs[0], outputs[0])


def summed(x: Array, y: Array, scale: float = 1.0) -> Calls:
    """Sum over the axes along which y's shape was broadcast to x's, times a number."""
    extra = x.ndim - y.ndim
    axes = [*range(extra), *(i + extra for i, n in enumerate(y.shape) if n == 1)]
    if x.ndim == extra or any(n not in (1, x.shape[i + extra]) for i, n in enumerate(y.shape)):
        axes = list(range(x.ndim)) if y.size == 1 else []
        if not axes:
            return None
    return reduced(x, y, axes, Reduce.SUM, scale)


@binds_gradient("b", conv.Conv2D, conv.DepthwiseConv2D, *PADDED.values())
def bias(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    return summed(given["dy"], out.reshape(-1))


@binds_gradient("x", reducers.Sum, reducers.Mean)
def spread(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    """Every element gets the gradient of what it went into."""
    dy, reducer_ = given["dy"], op.of
    assert isinstance(reducer_, reducers.Reducer)
    if not floats(dy, out):
        return None
    axes = reducer_.along(given["axis"], out.ndim)
    scale = 1 / max(reducers.Mean.count(axes, out.shape), 1) if isinstance(reducer_, reducers.Mean) else 1.0
    kept = dy.reshape([1 if i in axes else n for i, n in enumerate(out.shape)])
    return chain(lambda b, x: b.emit(ChainOp.MUL_IMM, x, imm=scale), [kept], out)


def _or_summed(alone: GradientBinder, sign: float) -> GradientBinder:
    """The gradient of a sum's operand is dy itself, or its opposite, summed where the operand was broadcast."""

    def binder(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
        found = alone(op, given, out)
        return summed(given["dy"], out, sign) if found is None else found

    return binder


for _op, _wrt, _sign in (
    (arithmetic.Add, "x1", 1.0),
    (arithmetic.Add, "x2", 1.0),
    (arithmetic.Sub, "x1", 1.0),
    (arithmetic.Sub, "x2", -1.0),
    (arithmetic.FloorMod, "x1", 1.0),
):
    GRADIENTS[_op, _wrt] = _or_summed(GRADIENTS[_op, _wrt], _sign)
