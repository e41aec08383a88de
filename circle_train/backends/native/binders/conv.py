"""CONV_2D and DEPTHWISE_CONV_2D, their gradients and what is fused with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from circle_train.backends.native.binders.pool import geometry as pool_geometry
from circle_train.backends.native.binders.update import gradient_only, in_part, update_of
from circle_train.backends.native.engine import abi
from circle_train.backends.native.engine.abi import Kernel
from circle_train.backends.native.engine.binding import (
    Calls,
    Values,
    bf16_flags,
    binds,
    binds_fused,
    binds_gradient,
    call,
    copied,
    floats,
    pointer,
    storable,
    supported,
    weights_at,
)
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import Activation
from circle_train.ops.base import Op
from circle_train.ops.internal.bfloat16 import RoundedConv2D
from circle_train.ops.internal.fused import Fused
from circle_train.ops.internal.gradient import Gradient
from circle_train.ops.internal.padded import PADDED
from circle_train.ops.layers.conv import Conv2D, Convolution, DepthwiseConv2D

CONVOLUTIONS: tuple[type[Op], ...] = (Conv2D, DepthwiseConv2D, RoundedConv2D, *PADDED.values())
MUCH = 1 << 30
"""Weights times places: some seconds for each pair of channels."""
Shape = tuple[int, ...]
Arrays = Mapping[str, Any]
Updates = Mapping[str, abi.Update | None]


def geometry(op: Convolution, x: Shape, w: Shape, y: Shape) -> abi.ConvShape:
    """The sizes that kernels read."""
    window = op.window(x, w)
    groups = x[3] // w[3] if isinstance(op, Conv2D) else 1
    return abi.ConvShape(
        x[0], x[1], x[2], x[3], y[1], y[2], y[3], w[1], w[2], *window.strides,
        *window.dilations, window.before[0], window.before[1], groups,
    )  # fmt: skip


def _pick(op: Convolution, conv: Kernel, depthwise: Kernel) -> Kernel:
    return conv if isinstance(op, Conv2D) else depthwise


@binds(*CONVOLUTIONS)
def convolution(op: Convolution, inputs: Values, outputs: Sequence[Array]) -> Calls:
    return forward(op, dict(zip("xwb", inputs, strict=True)), op.activation, outputs[0])


def forward(op: Convolution, given: Arrays, act: Activation, y: Array) -> Calls:
    """y = act(conv(x, w) + b + add)"""
    x, w, b, add = given["x"], given["w"], given.get("b"), given.get("add")
    flags = bf16_flags(op, x=x, y=y, add=add)
    lie = weights_at(w, 0 if isinstance(op, Conv2D) else 3)
    if not (lie and floats(b) and storable(x, add, y)) or not supported(act) or flags is None:
        return None
    shape = geometry(op, x.shape, w.shape, y.shape)
    args = abi.ConvArgs(
        pointer(x), lie[0], pointer(b), pointer(add), pointer(y), shape, int(act), flags, lie[1]
    )
    return [call(_pick(op, Kernel.CONV, Kernel.DEPTHWISE), args, x, w, b, add, y)]


@binds_fused("convolution")
def fused_forward(op: Fused, given: dict[str, Any], outputs: Sequence[Array]) -> Calls:
    """With an operand to add and an activation that stood alone."""
    return forward(op.settings.op, given, op.settings.act, outputs[0])


@binds_gradient("x", *CONVOLUTIONS)
def convolution_x(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    assert isinstance(op.of, Convolution)
    return input_gradient(op.of, given, Activation.NONE, out)


def is_mostly_void(kernel: Sequence[int], wide: Sequence[int], narrow: Sequence[int]) -> bool:
    """Whether gathering for each place of the wide image looks nearly everywhere beside the narrow one, for minutes: a
    kernel as large as the image, which the specification strews instead."""
    return prod(kernel) * prod(wide) > MUCH and prod(wide) > 256 * prod(narrow)


def input_gradient(op: Convolution, given: Arrays, act: Activation, dx: Array) -> Calls:
    """dx = act'(mask) · (the transposed convolution of dy + add); what is added must lie where dx does."""
    dy, w, add, mask = given["dy"], given["w"], given.get("add"), given.get("mask")
    flags = bf16_flags(op, mask=mask)
    lie = weights_at(w, 0 if isinstance(op, Conv2D) else 3)
    if not (lie and floats(dy, add, dx) and storable(mask)) or not supported(act) or flags is None:
        return None
    if is_mostly_void(w.shape[1:3], dx.shape[1:3], dy.shape[1:3]):
        return None
    before = [] if add is None else copied(add, dx)
    args = abi.ConvGradXArgs(
        dy=pointer(dy), w=lie[0], stored=lie[1], out_mask_y=pointer(mask), dx=pointer(dx),
        shape=geometry(op, dx.shape, w.shape, dy.shape), out_mask_act=int(act), accumulate=add is not None,
        bf16=flags,
    )  # fmt: skip
    return [*before, call(_pick(op, Kernel.CONV_GRAD_X, Kernel.DEPTHWISE_GRAD_X), args, dy, w, mask, dx)]


@binds_fused("convolution_x")
def fused_input_gradient(op: Fused, given: dict[str, Any], outputs: Sequence[Array]) -> Calls:
    """With a gradient from elsewhere to add and the producer's activation to undo."""
    return input_gradient(op.settings.op, given, op.settings.act, outputs[0])


@binds_gradient("w", *CONVOLUTIONS)
def convolution_w(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    assert isinstance(op.of, Convolution)
    if not floats(given["dy"], given["x"], out):
        return None
    shape = geometry(op.of, given["x"].shape, out.shape, given["dy"].shape)
    return _weights(op.of, shape, {"w": gradient_only(out)}, {**given, "out": out})


@binds_fused("convolution_w")
def fused_weights(op: Fused, given: dict[str, Any], outputs: Sequence[Array]) -> Calls:
    """The gradients of weights and bias with the updates of both."""
    dy, x, options = given["dy"], given["x"], op.settings
    made = dict(zip(options.made, outputs, strict=True))
    if not (floats(dy, *outputs) and storable(x)):
        return None
    updates = {name: update_of(getattr(options, name), name, given, made) for name in "wb"}
    shape = geometry(options.op, x.shape, options.shape, dy.shape)
    return in_part(options.w, given, made, _weights(options.op, shape, updates, {**given, **made}))


@binds_fused("convolution_pool")
def pooled_forward(op: Fused, given: dict[str, Any], outputs: Sequence[Array]) -> Calls:
    """A convolution of few channels and the max pool over it: what lies between has no memory."""
    x, w, b, options, (y, places) = given["x"], given["w"], given.get("b"), op.settings, outputs
    if not floats(x, w, b, y):
        return None
    conv, pool = options.product.op, options.pool
    shape = geometry(conv, x.shape, w.shape, options.shape)
    args = abi.ConvPoolArgs(
        abi.ConvArgs(pointer(x), pointer(w), pointer(b), shape=shape, act=int(options.product.act)),
        abi.PoolArgs(y=pointer(y), index=pointer(places), shape=pool_geometry(pool, options.shape, y.shape)),
    )
    return [call(Kernel.CONV_POOL, args, x, w, b, y, places)]


@binds_fused("convolution_pool_w")
def pooled_weights(op: Fused, given: dict[str, Any], outputs: Sequence[Array]) -> Calls:
    """The gradients of weights and bias from the pool's: what it sends back has no memory."""
    options, scatter = op.settings.weights, op.settings.scatter
    dy, places, y, x = given["dy"], given["places"], given.get("y"), given["x"]
    if not floats(dy, y, x, *outputs):
        return None
    made = dict(zip(options.made, outputs, strict=True))
    w, b = (update_of(getattr(options, name), name, given, made) for name in "wb")
    pool = abi.PoolArgs(
        y=pointer(y), index=pointer(places), dy=pointer(dy),
        shape=pool_geometry(scatter.of, scatter.shape, dy.shape), act=int(scatter.kind),
    )  # fmt: skip
    conv = abi.ConvGradWArgs(
        x=pointer(x), shape=geometry(options.op, x.shape, options.shape, scatter.shape),
        w=w or abi.Update(), b=b or abi.Update(), has_w=w is not None, has_b=b is not None,
    )  # fmt: skip
    moved = [call(Kernel.POOL_CONV_GRAD_W, abi.PoolConvGradWArgs(pool, conv), given, made)]
    return in_part(options.w, given, made, moved)


def _weights(op: Convolution, shape: abi.ConvShape, updates: Updates, arrays: Arrays) -> Calls:
    """The gradients that have an update; the others are not wanted."""
    w, b, flags = updates.get("w"), updates.get("b"), bf16_flags(op, x=arrays["x"])
    if flags is None:
        return None
    args = abi.ConvGradWArgs(
        dy=pointer(arrays["dy"]), x=pointer(arrays["x"]), shape=shape, w=w or abi.Update(), b=b or abi.Update(),
        has_w=w is not None, has_b=b is not None, bf16=flags,
    )  # fmt: skip
    return [call(_pick(op, Kernel.CONV_GRAD_W, Kernel.DEPTHWISE_GRAD_W), args, arrays)]
