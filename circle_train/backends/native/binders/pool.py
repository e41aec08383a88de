"""Pools and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from circle_train.backends.native.engine import abi
from circle_train.backends.native.engine.abi import Kernel
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
from circle_train.ops.internal.gradient import Gradient
from circle_train.ops.internal.pool_places import LARGEST_WINDOW, MaxPoolAndPlaces, MaxPoolScatter
from circle_train.ops.layers.pool import AveragePool2D, MaxPool2D, Pool

KERNELS = {
    MaxPool2D: (Kernel.MAX_POOL, Kernel.MAX_POOL_GRAD),
    AveragePool2D: (Kernel.AVERAGE_POOL, Kernel.AVERAGE_POOL_GRAD),
}


def geometry(op: Pool, x: tuple[int, ...], y: tuple[int, ...]) -> abi.ConvShape:
    """The sizes that kernels read."""
    window = op.window(x)
    return abi.ConvShape(
        x[0], x[1], x[2], x[3], y[1], y[2], y[3], op.filter_height, op.filter_width, *window.strides,
        1, 1, window.before[0], window.before[1], 1,
    )  # fmt: skip


@binds(*KERNELS)
def pool(op: Pool, inputs: Values, outputs: Sequence[Array]) -> Calls:
    x, y = inputs[0], outputs[0]
    if not floats(x, y) or not supported(op.activation):
        return None
    args = abi.PoolArgs(
        x=pointer(x), y=pointer(y), shape=geometry(op, x.shape, y.shape), act=int(op.activation)
    )
    return [call(KERNELS[type(op)][0], args, x, y)]


@binds_gradient("x", *KERNELS)
def pool_x(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    dy, x, of = given["dy"], given.get("x"), op.of
    assert isinstance(of, Pool)
    if not floats(dy, x, out) or of.filter_height * of.filter_width > LARGEST_WINDOW:
        return None
    args = abi.PoolArgs(
        x=pointer(x), dy=pointer(dy), dx=pointer(out), shape=geometry(of, out.shape, dy.shape)
    )
    return [call(KERNELS[type(of)][1], args, dy, x, out)]


@binds(MaxPoolAndPlaces)
def pool_and_places(op: MaxPoolAndPlaces, inputs: Values, outputs: Sequence[Array]) -> Calls:
    x, (y, index) = inputs[0], outputs
    if not floats(x, y) or not supported(op.of.activation):
        return None
    args = abi.PoolArgs(
        x=pointer(x),
        y=pointer(y),
        index=pointer(index),
        shape=geometry(op.of, x.shape, y.shape),
        act=int(op.of.activation),
    )
    return [call(Kernel.MAX_POOL, args, x, y, index)]


@binds(MaxPoolScatter)
def scatter(op: MaxPoolScatter, inputs: Values, outputs: Sequence[Array]) -> Calls:
    (dy, index, y), dx = op.pad(inputs), outputs[0]
    if not floats(dy, y, dx) or not supported(op.kind):
        return None
    args = abi.PoolArgs(
        y=pointer(y), index=pointer(index), dy=pointer(dy), dx=pointer(dx),
        shape=geometry(op.of, dx.shape, dy.shape), act=int(op.kind),
    )  # fmt: skip
    return [call(Kernel.MAX_POOL_GRAD, args, dy, index, y, dx)]
