"""Images that become larger or smaller: resizing and transposed convolutions, by the kernels that undo the opposite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from circle_train.backends.native.binders.chain import chain
from circle_train.backends.native.binders.conv import is_mostly_void
from circle_train.backends.native.binders.elementwise import activate
from circle_train.backends.native.binders.places.movement import strided_copy
from circle_train.backends.native.binders.reduce import summed
from circle_train.backends.native.binders.update import gradient_only
from circle_train.backends.native.engine import abi
from circle_train.backends.native.engine.abi import Act, ChainOp, Kernel
from circle_train.backends.native.engine.binding import (
    Calls,
    Values,
    binds,
    binds_gradient,
    call,
    floats,
    pointer,
    supported,
)
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import Activation
from circle_train.ops.internal.gradient import Gradient
from circle_train.ops.layers.conv_transpose import (
    TO_KERNEL,
    Convolution2DTransposeBias,
    TransposeConv,
    TransposedConvolution,
)
from circle_train.ops.layers.resize import Resize, ResizeBilinear, ResizeNearestNeighbor

Table = tuple[Array, Array, Array]
"""Where each output's terms begin, the inputs that they are of, and their weights."""


@binds(ResizeBilinear, ResizeNearestNeighbor)
def resize(op: Resize, inputs: Values, outputs: Sequence[Array]) -> Calls:
    x, y = inputs[0], outputs[0]
    tables = [_terms(*op.sources(x.shape[axis], y.shape[axis])) for axis in (1, 2)]
    return _resized(x, y, tables)


@binds_gradient("x", ResizeBilinear, ResizeNearestNeighbor)
def resize_x(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    dy, of = given["dy"], op.of
    assert isinstance(of, Resize)
    tables = [
        _turned(_terms(*of.sources(out.shape[axis], dy.shape[axis])), out.shape[axis]) for axis in (1, 2)
    ]
    return _resized(dy, out, tables)


def _resized(x: Array, y: Array, tables: Sequence[Table]) -> Calls:
    if not floats(x, y):
        return None
    axes = [abi.ResizeAxis(*map(pointer, table)) for table in tables]
    args = abi.ResizeArgs(pointer(x), pointer(y), *x.shape[:3], *y.shape[1:], *axes)
    return [call(Kernel.RESIZE, args, x, y, tables)]


def _terms(low: Array, high: Array, fraction: Array) -> Table:
    """Of each output the two inputs it lies between, or the one that it is."""
    both = np.stack([fraction != 1, fraction != 0], axis=1)
    index = np.stack([low, high], axis=1)[both].astype(np.int32)
    weight = np.stack([1 - fraction, fraction], axis=1)[both].astype(np.float32)
    return _starts(both.sum(1)), index, weight


def _turned(table: Table, inputs: int) -> Table:
    """Of each input the outputs that it goes into."""
    starts, index, weight = table
    output = np.repeat(np.arange(len(starts) - 1, dtype=np.int32), np.diff(starts))
    order = np.argsort(index, kind="stable")
    return _starts(np.bincount(index, minlength=inputs)), output[order], weight[order]


def _starts(counts: Array) -> Array:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)


def _undone(op: TransposedConvolution, x: Array, w_shape: Sequence[int], y: Array) -> abi.ConvShape:
    """The convolution, from y to x, that is run backwards."""
    window = op.window(x.shape, tuple(w_shape), y.shape[1:3])
    return abi.ConvShape(
        *y.shape, *x.shape[1:], *w_shape[1:3], *window.strides, *window.dilations, *window.before, 1
    )


@binds(TransposeConv)
def transposed(op: TransposeConv, inputs: Values, outputs: Sequence[Array]) -> Calls:
    _, w, x, b = inputs
    return _forward(op, w, x, b, outputs[0])


@binds(Convolution2DTransposeBias)
def transposed_with_bias(op: Convolution2DTransposeBias, inputs: Values, outputs: Sequence[Array]) -> Calls:
    x, w, b = inputs
    return _forward(op, w, x, b, outputs[0])


def _forward(op: TransposedConvolution, w: Array, x: Array, b: Array | None, y: Array) -> Calls:
    if not floats(w, x, b, y) or not supported(op.activation):
        return None
    if is_mostly_void(w.shape[1:3], y.shape[1:3], x.shape[1:3]):
        return None
    kernel = np.empty([w.shape[axis] for axis in TO_KERNEL], np.float32)
    args = abi.ConvGradXArgs(
        dy=pointer(x), w=pointer(kernel), dx=pointer(y), shape=_undone(op, x, w.shape, y)
    )
    turn = strided_copy(w.transpose(TO_KERNEL), kernel) or []
    return [*turn, call(Kernel.CONV_GRAD_X, args, x, kernel, y), *_finished(op.activation, b, y)]


def _finished(act: Activation, b: Array | None, y: Array) -> Sequence[Any]:
    """Bias and activation, where y lies."""
    if b is None:
        return (chain(lambda c, v: activate(c, act, v), [y], y) or []) if act else []
    return (
        chain(lambda c, v, bias: activate(c, act, c.emit(ChainOp.ADD, v, bias)), [y, b.reshape(-1)], y) or []
    )


@binds_gradient("x", TransposeConv, Convolution2DTransposeBias)
def transposed_x(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    dy, w, of = given["dy"], given["w"], op.of
    assert isinstance(of, TransposedConvolution)
    if not floats(dy, w, out):
        return None
    kernel = np.empty([w.shape[axis] for axis in TO_KERNEL], np.float32)
    shape = _undone(of, out, w.shape, dy)
    args = abi.ConvArgs(pointer(dy), pointer(kernel), None, None, pointer(out), shape, int(Act.NONE), 0)
    turn = strided_copy(w.transpose(TO_KERNEL), kernel) or []
    return [*turn, call(Kernel.CONV, args, dy, kernel, out)]


@binds_gradient("w", TransposeConv, Convolution2DTransposeBias)
def transposed_w(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    dy, x, of = given["dy"], given["x"], op.of
    assert isinstance(of, TransposedConvolution)
    if not floats(dy, x, out):
        return None
    kernel = np.empty([out.shape[axis] for axis in TO_KERNEL], np.float32)
    args = abi.ConvGradWArgs(
        dy=pointer(x), x=pointer(dy), shape=_undone(of, x, out.shape, dy), w=gradient_only(kernel),
        b=abi.Update(), has_w=1, has_b=0,
    )  # fmt: skip
    turn = strided_copy(kernel.transpose(TO_KERNEL), out) or []
    return [call(Kernel.CONV_GRAD_W, args, x, dy, kernel), *turn]


@binds_gradient("b", TransposeConv, Convolution2DTransposeBias)
def transposed_b(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    return summed(given["dy"], out.reshape(-1))
