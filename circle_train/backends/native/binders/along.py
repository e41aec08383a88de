"""Along an axis: running sums, where the extreme is, the largest few; what shares its gradient among equals."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from circle_train.backends.native.binders.chain import chain
from circle_train.backends.native.binders.places.movement import joined
from circle_train.backends.native.binders.reduce import reduced
from circle_train.backends.native.engine import abi
from circle_train.backends.native.engine.abi import ChainOp, Kernel, Reduce
from circle_train.backends.native.engine.binding import (
    Calls,
    Values,
    binds,
    binds_gradient,
    call,
    floats,
    pointer,
)
from circle_train.ir.tensor_type import Array
from circle_train.ops.internal.gradient import Gradient
from circle_train.ops.numeric import reduce as reducers
from circle_train.ops.numeric.scan import ArgMax, ArgMin, Cumsum, TopK


def _around(shape: Sequence[int], axis: int) -> tuple[int, int, int]:
    """Elements before an axis, along it, behind it."""
    axis %= len(shape)
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])


@binds(Cumsum)
def cumsum(op: Cumsum, inputs: Values, outputs: Sequence[Array]) -> Calls:
    return _running(inputs[0], outputs[0], inputs[1], op, op.reverse)


@binds_gradient("x", Cumsum)
def cumsum_gradient(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    assert isinstance(op.of, Cumsum)
    return _running(given["dy"], out, given["axis"], op.of, not op.of.reverse)


def _running(x: Array, y: Array, axis: Array, op: Cumsum, reverse: bool) -> Calls:
    if not floats(x, y):
        return None
    around = _around(x.shape, int(axis.reshape(())))
    args = abi.ScanArgs(pointer(x), pointer(y), *around, int(Reduce.SUM), op.exclusive, reverse)
    return [call(Kernel.SCAN, args, x, y)]


@binds(ArgMax, ArgMin)
def extreme(op: ArgMax | ArgMin, inputs: Values, outputs: Sequence[Array]) -> Calls:
    x, places = inputs[0], outputs[0]
    if not floats(x) or not x.size:
        return None
    code = Reduce.MAX if isinstance(op, ArgMax) else Reduce.MIN
    around = _around(x.shape, int(inputs[1].reshape(())))
    args = abi.ExtremeArgs(pointer(x), pointer(places), *around, int(code), places.itemsize)
    return [call(Kernel.EXTREME, args, x, places)]


@binds(TopK)
def top(op: TopK, inputs: Values, outputs: Sequence[Array]) -> Calls:
    x, (values, places) = inputs[0], outputs
    if not floats(x, values) or not values.size:
        return None
    return _top(x, values.shape[-1], (x, values, places), values=pointer(values), places=pointer(places))


@binds_gradient("x", TopK)
def top_gradient(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    x, dy = given["x"], given["dys"][0]
    if not floats(x, dy, out) or not dy.size:
        return None
    return _top(x, dy.shape[-1], (x, dy, out), dy=pointer(dy), dx=pointer(out))


def _top(x: Array, k: int, keep: tuple[Array, ...], **pointers: int | None) -> Calls:
    args = abi.TopArgs(x=pointer(x), rows=x.size // x.shape[-1], cols=x.shape[-1], k=k, **pointers)
    return [call(Kernel.TOP, args, *keep)]


@binds_gradient("x", reducers.ReduceMax, reducers.ReduceMin)
def extremum_gradient(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    """1 where the extreme is, then the gradient in equal shares."""
    x, reducer = given["x"], op.of
    assert isinstance(reducer, reducers.Extremum)
    if not floats(x, given["y"], given["dy"], out) or not x.size:
        return None
    axes = reducer.along(given["axis"], x.ndim)
    kept = [1 if i in axes else n for i, n in enumerate(x.shape)]
    y, dy, ties = given["y"].reshape(kept), given["dy"].reshape(kept), np.empty(kept, np.float32)
    return joined(
        _list(chain(lambda b, x, y: b.emit(ChainOp.EQUAL, x, y), [x, y], out)),
        _list(reduced(out, ties, axes)),
        _list(
            chain(
                lambda b, chosen, dy, n: b.emit(ChainOp.MUL, chosen, b.emit(ChainOp.DIV, dy, n)),
                [out, dy, ties],
                out,
            )
        ),
    )


def _list(calls: Calls) -> Any:
    return None if calls is None else list(calls)
