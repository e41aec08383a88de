"""Matrix products: FULLY_CONNECTED, BATCH_MATMUL, their gradients and what is fused with them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from circle_train.backends.native import abi
from circle_train.backends.native.binding import (
    Calls,
    Values,
    binds,
    binds_fused,
    binds_gradient,
    call,
    floats,
    pointer,
    supported,
)
from circle_train.backends.native.codes import Kernel
from circle_train.backends.native.update import gradient_only, update_of
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import Activation
from circle_train.ops.fused import Fused
from circle_train.ops.gradient import Gradient
from circle_train.ops.linear import BatchMatMul, FullyConnected


@binds(FullyConnected)
def fully_connected(op: FullyConnected, inputs: Values, outputs: Sequence[Array]) -> Calls:
    return forward(op, *inputs, None, op.activation, outputs[0])


def forward(op: FullyConnected, x: Array, w: Array, b: Array | None, add: Array | None, act: Activation, y: Array) -> Calls:
    """y = act(x wᵀ + b + add)"""
    if not floats(x, w, b, add, y) or not supported(act):
        return None
    rows, (outs, ins) = y.size // max(w.shape[0], 1), w.shape
    args = abi.MatmulArgs(
        a=pointer(x), b=pointer(w), c=pointer(y), bias=pointer(b), add=pointer(add), batch0=1, batch1=1, m=rows, n=outs,
        k=ins, a_row=ins, a_col=1, b_row=1, b_col=ins, c_row=outs, alpha=1.0, act=int(act),
    )  # fmt: skip
    return [call(Kernel.MATMUL, args, x, w, b, add, y)]


@binds_fused("fully_connected")
def fused_forward(op: Fused, given: dict[str, Any], outputs: Sequence[Array]) -> Calls:
    """With an operand to add and an activation that stood alone."""
    return forward(op.settings.op, given["x"], given["w"], given.get("b"), given.get("add"), op.settings.act, outputs[0])


@binds_gradient("x", FullyConnected)
def fully_connected_x(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    return input_gradient(given["dy"], given["w"], None, None, Activation.NONE, out)


def input_gradient(dy: Array, w: Array, add: Array | None, mask: Array | None, act: Activation, dx: Array) -> Calls:
    """dx = act'(mask) · (dy w + add)"""
    if not floats(dy, w, add, mask, dx) or not supported(act):
        return None
    rows, (outs, ins) = dx.size // max(w.shape[1], 1), w.shape
    args = abi.MatmulArgs(
        a=pointer(dy), b=pointer(w), c=pointer(dx), add=pointer(add), out_mask_y=pointer(mask), batch0=1, batch1=1,
        m=rows, n=ins, k=outs, a_row=outs, a_col=1, b_row=ins, b_col=1, c_row=ins, alpha=1.0, out_mask_act=int(act),
    )  # fmt: skip
    return [call(Kernel.MATMUL, args, dy, w, add, mask, dx)]


@binds_fused("fully_connected_x")
def fused_input_gradient(op: Fused, given: dict[str, Any], outputs: Sequence[Array]) -> Calls:
    """With a gradient from elsewhere to add and the producer's activation to undo."""
    return input_gradient(given["dy"], given["w"], given.get("add"), given.get("mask"), op.settings.act, outputs[0])


@binds_gradient("w", FullyConnected)
def fully_connected_w(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    if not floats(given["dy"], given["x"], out):
        return None
    return _weights(given["dy"], given["x"], out.shape[0], out.shape[1], gradient_only(out), None, (out,))


@binds_gradient("b", FullyConnected)
def fully_connected_b(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    dy = given["dy"]
    if not floats(dy, out):
        return None
    return _weights(dy, None, out.size, 1, None, gradient_only(out), (out,))


@binds_fused("fully_connected_w")
def fused_weights(op: Fused, given: dict[str, Any], outputs: Sequence[Array]) -> Calls:
    """The gradients of weights and bias with the updates of both."""
    dy, x = given["dy"], given.get("x")
    made = dict(zip(op.settings.made, outputs, strict=True))
    if not floats(dy, x, *outputs):
        return None
    w, b = update_of(op.settings.w, "w", given, made), update_of(op.settings.b, "b", given, made)
    if (w is None and op.settings.w) or (b is None and op.settings.b):
        return None
    outs, ins = op.settings.shape
    return _weights(dy, x, outs, ins, w, b, (*given.values(), *outputs))


def _weights(
    dy: Array, x: Array | None, outs: int, ins: int, w: abi.Update | None, b: abi.Update | None, keep: tuple[Any, ...]
) -> Calls:
    args = abi.MatmulGradWArgs(
        dy=pointer(dy), x=pointer(x), rows=dy.size // max(outs, 1), out_features=outs, in_features=ins,
        w=w or abi.Update(), b=b or abi.Update(), has_w=w is not None, has_b=b is not None,
    )  # fmt: skip
    return [call(Kernel.MATMUL_GRAD_W, args, dy, x, keep)]


# Batched products: every operand is a matrix at a place of its own in a tensor, whatever lies between its rows.


@binds(BatchMatMul)
def batch_matmul(op: BatchMatMul, inputs: Values, outputs: Sequence[Array]) -> Calls:
    x, w = inputs
    return product(x, w, outputs[0], op.adjoint_lhs, op.adjoint_rhs)


@binds_gradient("x", BatchMatMul)
def batch_matmul_x(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    dy, w, of = given["dy"], given["w"], op.of
    assert isinstance(of, BatchMatMul)
    if of.adjoint_lhs:
        return product(w, dy, out, of.adjoint_rhs, True)
    return product(dy, w, out, False, not of.adjoint_rhs)


@binds_gradient("w", BatchMatMul)
def batch_matmul_w(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    dy, x, of = given["dy"], given["x"], op.of
    assert isinstance(of, BatchMatMul)
    if out.ndim == 2 and not of.adjoint_lhs and x.ndim >= 2:
        x, dy = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
    if of.adjoint_rhs:
        return product(dy, x, out, True, of.adjoint_lhs)
    return product(x, dy, out, not of.adjoint_lhs, False)


def product(a: Array, b: Array, c: Array, turn_a: bool, turn_b: bool) -> Calls:
    """c = a b, either turned round; leading axes equal or missing altogether."""
    if not floats(a, b, c):
        return None
    if b.ndim == 2 and not turn_a and a.ndim > 2:
        a, c = a.reshape(-1, a.shape[-1]), c.reshape(-1, c.shape[-1])
    batch = c.shape[:-2]
    if any(m.shape[:-2] != batch and prod(m.shape[:-2]) != 1 for m in (a, b)):
        return None
    count = prod(batch)
    args = abi.MatmulArgs(
        a=pointer(a), b=pointer(b), c=pointer(c), batch0=count, batch1=1, m=c.shape[-2], n=c.shape[-1],
        k=a.shape[-2 if turn_a else -1], c_row=c.shape[-1], alpha=1.0,
    )  # fmt: skip
    args.a_row, args.a_col = (1, a.shape[-1]) if turn_a else (a.shape[-1], 1)
    args.b_row, args.b_col = (1, b.shape[-1]) if turn_b else (b.shape[-1], 1)
    args.a_batch0, args.b_batch0, args.c_batch0 = (_step(m) for m in (a, b, c))
    return [call(Kernel.MATMUL, args, a, b, c)]


def _step(matrix: Array) -> int:
    return int(np.prod(matrix.shape[-2:])) if prod(matrix.shape[:-2]) > 1 else 0
