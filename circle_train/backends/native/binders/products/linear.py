"""Matrix products: FULLY_CONNECTED, BATCH_MATMUL, their gradients and what is fused with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

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
    floats,
    pointer,
    storable,
    supported,
    weights_at,
)
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import Activation
from circle_train.ops.base import Op
from circle_train.ops.internal.bfloat16 import RoundedBatchMatMul, RoundedFullyConnected
from circle_train.ops.internal.fused import Fused
from circle_train.ops.internal.gradient import Gradient
from circle_train.ops.layers.linear import BatchMatMul, FullyConnected
from circle_train.ops.shapes.shape import Transpose

Arrays = Mapping[str, Any]
Updates = Mapping[str, abi.Update | None]


@binds(FullyConnected, RoundedFullyConnected)
def fully_connected(op: FullyConnected, inputs: Values, outputs: Sequence[Array]) -> Calls:
    return forward(op, dict(zip("xwb", inputs, strict=True)), op.activation, outputs[0])


def forward(op: Op, given: Arrays, act: Activation, y: Array) -> Calls:
    """y = act(x wᵀ + b + add)"""
    x, w, b, add = given["x"], given["w"], given.get("b"), given.get("add")
    flags, lie = bf16_flags(op, x=x, y=y, add=add), weights_at(w, 0)
    if not (lie and floats(b) and storable(x, add, y)) or not supported(act) or flags is None:
        return None
    rows, (outs, ins) = y.size // max(w.shape[0], 1), w.shape
    args = abi.MatmulArgs(
        a=pointer(x), b=lie[0], c=pointer(y), bias=pointer(b), add=pointer(add), batch0=1, batch1=1, m=rows, n=outs,
        k=ins, a_row=ins, a_col=1, b_row=1, b_col=ins, c_row=outs, alpha=1.0, act=int(act),
        bf16=flags, stored=lie[1],
    )  # fmt: skip
    return [call(Kernel.MATMUL, args, x, w, b, add, y)]


@binds_fused("fully_connected")
def fused_forward(op: Fused, given: dict[str, Any], outputs: Sequence[Array]) -> Calls:
    """With an operand to add and an activation that stood alone."""
    return forward(op.settings.op, given, op.settings.act, outputs[0])


@binds_gradient("x", FullyConnected, RoundedFullyConnected)
def fully_connected_x(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    return input_gradient(op.of, given, Activation.NONE, out)


def input_gradient(op: Op, given: Arrays, act: Activation, dx: Array, scale: float = 0) -> Calls:
    """dx = act'(mask) · (dy w + add); what `dy` is where there are labels, `labels_of` says."""
    dy, w, add, mask = given["dy"], given["w"], given.get("add"), given.get("mask")
    flags, lie = bf16_flags(op, mask=mask), weights_at(w, 0)
    if not (lie and floats(dy, add, dx) and storable(mask)) or not supported(act) or flags is None:
        return None
    rows, (outs, ins) = dx.size // max(w.shape[1], 1), w.shape
    args = abi.MatmulArgs(
        a=pointer(dy), b=lie[0], c=pointer(dx), add=pointer(add), out_mask_y=pointer(mask), batch0=1, batch1=1,
        m=rows, n=ins, k=outs, a_row=outs, a_col=1, b_row=ins, b_col=1, c_row=ins, alpha=1.0, out_mask_act=int(act),
        bf16=flags, stored=lie[1], labels=labels_of(given, scale),
    )  # fmt: skip
    return [call(Kernel.MATMUL, args, given, dx)]


@binds_fused("fully_connected_x")
def fused_input_gradient(op: Fused, given: dict[str, Any], outputs: Sequence[Array]) -> Calls:
    """With a gradient from elsewhere to add and the producer's activation to undo."""
    return input_gradient(op.settings.op, given, op.settings.act, outputs[0])


@binds_fused("fully_connected_x_of_loss")
def input_gradient_of_loss(op: Fused, given: dict[str, Any], outputs: Sequence[Array]) -> Calls:
    """Where the loss's gradient by the logits is not in memory."""
    of = op.settings.product
    return input_gradient(of.op, given, of.act, outputs[0], op.settings.scale)


@binds_gradient("w", FullyConnected, RoundedFullyConnected)
def fully_connected_w(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    if not floats(given["dy"], given["x"], out):
        return None
    return weight_gradients(op.of, out.shape, {"w": gradient_only(out)}, {**given, "out": out})


@binds_gradient("b", FullyConnected, RoundedFullyConnected)
def fully_connected_b(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    if not floats(given["dy"], out):
        return None
    return weight_gradients(op.of, (out.size, 1), {"b": gradient_only(out)}, {**given, "out": out})


@binds_fused("fully_connected_w")
def fused_weight_gradients(op: Fused, given: dict[str, Any], outputs: Sequence[Array]) -> Calls:
    """The gradients of weights and bias with the updates of both."""
    return updated(op.settings, given, outputs)


@binds_fused("fully_connected_w_of_loss")
def weight_gradients_of_loss(op: Fused, given: dict[str, Any], outputs: Sequence[Array]) -> Calls:
    """Where the loss's gradient by the logits is not in memory."""
    return updated(op.settings.product, given, outputs, op.settings.scale)


def updated(settings: Any, given: dict[str, Any], outputs: Sequence[Array], scale: float = 0) -> Calls:
    """What becomes of the gradients of weights and bias."""
    made = dict(zip(settings.made, outputs, strict=True))
    if not (floats(given["dy"], *outputs) and storable(given.get("x"))):
        return None
    updates = {name: update_of(getattr(settings, name), name, given, made) for name in "wb"}
    moved = weight_gradients(settings.op, settings.shape, updates, {**given, **made}, scale)
    return in_part(settings.w, given, made, moved)


def weight_gradients(
    op: Op, shape: Sequence[int], updates: Updates, arrays: Arrays, scale: float = 0
) -> Calls:
    """The gradients that have an update; the others are not wanted."""
    (outs, ins), dy = shape, arrays["dy"]
    w, b = updates.get("w"), updates.get("b")
    flags = bf16_flags(op, x=arrays.get("x"))
    if flags is None:
        return None
    args = abi.MatmulGradWArgs(
        dy=pointer(dy), x=pointer(arrays.get("x")), rows=dy.size // max(outs, 1), out_features=outs, in_features=ins,
        w=w or abi.Update(), b=b or abi.Update(), has_w=w is not None, has_b=b is not None,
        bf16=flags, labels=labels_of(arrays, scale),
    )  # fmt: skip
    return [call(Kernel.MATMUL_GRAD_W, args, arrays)]


def labels_of(given: Arrays, scale: float) -> abi.Labels:
    """With labels, `dy` holds logits, and stands for the gradient of their cross-entropy (fusion/wide_losses.py)."""
    label, top, rate = (pointer(given.get(role)) for role in ("label", "top", "rate"))
    return abi.Labels(label, top, rate, scale)


# Batched products: every operand is a matrix at a place of its own in a tensor, whatever lies between its rows.


@binds(BatchMatMul, RoundedBatchMatMul)
def batch_matmul(op: BatchMatMul, inputs: Values, outputs: Sequence[Array]) -> Calls:
    x, w = inputs
    return product(op, x, w, outputs[0], op.adjoint_lhs, op.adjoint_rhs)


@binds_gradient("x", BatchMatMul, RoundedBatchMatMul)
def batch_matmul_x(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    dy, w, of = given["dy"], given["w"], op.of
    assert isinstance(of, BatchMatMul)
    if of.adjoint_lhs:
        return product(of, w, dy, out, of.adjoint_rhs, True)
    return product(of, dy, w, out, False, not of.adjoint_rhs)


@binds_gradient("w", BatchMatMul, RoundedBatchMatMul)
def batch_matmul_w(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    dy, x, of = given["dy"], given["x"], op.of
    assert isinstance(of, BatchMatMul)
    if out.ndim == 2 and not of.adjoint_lhs and x.ndim >= 2:
        x, dy = _flat(x), _flat(dy)
    if of.adjoint_rhs:
        return product(of, dy, x, out, True, of.adjoint_lhs)
    return product(of, x, dy, out, not of.adjoint_lhs, False)


def product(op: Op, a: Array, b: Array, c: Array, turn_a: bool, turn_b: bool) -> Calls:
    """c = a b, either turned round."""
    if b.ndim == 2 and not turn_a and a.ndim > 2 and a.flags.c_contiguous and c.flags.c_contiguous:
        a, c = _flat(a), _flat(c)
    return strided(op, _turned(a, turn_a), _turned(b, turn_b), c)


def _flat(matrices: Array) -> Array:
    """One matrix of all rows."""
    return matrices.reshape(prod(matrices.shape[:-1]), matrices.shape[-1])


def _turned(matrix: Array, turn: bool) -> Array:
    return np.swapaxes(matrix, -1, -2) if turn else matrix


def strided(op: Op, a: Array, b: Array, c: Array) -> Calls:
    """c = a b for views of any layout in which the columns (or the rows) of c are neighbours."""
    if any(m.dtype != np.float32 for m in (a, b, c)) or not c.size:
        return None
    if c.strides[-1] != c.itemsize and c.shape[-1] > 1:
        a, b, c = _turned(b, True), _turned(a, True), _turned(c, True)
        if c.strides[-1] != c.itemsize:
            return None
    batch = c.shape[:-2]
    if any(m.shape[:-2] != batch and prod(m.shape[:-2]) != 1 for m in (a, b)):
        return None
    extents, layouts = batches(batch, [a, b, c])
    if len(extents) > 2:
        return None
    extents = [1] * (2 - len(extents)) + extents
    (a0, a1), (b0, b1), (c0, c1) = ([0] * (2 - len(steps)) + steps for steps in layouts)
    args = abi.MatmulArgs(
        a=pointer(a), b=pointer(b), c=pointer(c), batch0=extents[0], batch1=extents[1], m=c.shape[-2], n=c.shape[-1],
        k=a.shape[-1], a_row=a.strides[-2] // 4, a_col=a.strides[-1] // 4, b_row=b.strides[-2] // 4,
        b_col=b.strides[-1] // 4, c_row=c.strides[-2] // 4, a_batch0=a0, a_batch1=a1, b_batch0=b0, b_batch1=b1,
        c_batch0=c0, c_batch1=c1, alpha=1.0, bf16=bf16_flags(op),
    )  # fmt: skip
    return [call(Kernel.MATMUL, args, a, b, c)]


def batches(batch: tuple[int, ...], views: Sequence[Array]) -> tuple[list[int], list[list[int]]]:
    """Extents of the leading axes and each view's strides along them, merged where all views allow it."""
    strides = [[s // 4 for s in m.strides[:-2]] if m.shape[:-2] == batch else [0] * len(batch) for m in views]
    extents: list[int] = []
    merged: list[list[int]] = [[] for _ in views]
    for axis, size in enumerate(batch):
        if size == 1:
            continue
        if extents and all(m[-1] == s[axis] * size for m, s in zip(merged, strides, strict=True)):
            extents[-1] *= size
            for m, s in zip(merged, strides, strict=True):
                m[-1] = s[axis]
        else:
            extents.append(size)
            for m, s in zip(merged, strides, strict=True):
                m.append(s[axis])
    return extents, merged


@binds_fused("batch_matmul")
def transposed_product(op: Fused, given: dict[str, Any], outputs: Sequence[Array]) -> Calls:
    """A batched product, or one of its gradients, between transposed views of what lies in memory."""
    views: dict[int, Any] = dict(enumerate(given.values()))
    behind = [part for part in op.parts[1:] if part.inputs[0] not in views and _transposition(part.op)]
    target = outputs[0]
    for part in reversed(behind):
        order = _permutation(part.op, [None if i is None else views.get(i) for i in part.inputs])
        target = target.transpose(np.argsort(order))
    for part in op.parts:
        if part in behind:
            continue
        values: list[Any] = [None if i is None else views[i] for i in part.inputs]
        if _transposition(part.op):
            views[part.outputs[0]] = values[0].transpose(_permutation(part.op, values))
        elif isinstance(part.op, Gradient):
            return _gradient_product(part.op, part.op.arguments(values), target)
        elif isinstance(part.op, BatchMatMul):
            return strided(
                part.op,
                _turned(values[0], part.op.adjoint_lhs),
                _turned(values[1], part.op.adjoint_rhs),
                target,
            )
    return None


def _transposition(op: Op) -> bool:
    return type(op.of if isinstance(op, Gradient) else op) is Transpose


def _permutation(op: Op, values: Sequence[Any]) -> Array:
    """The axes of the view that a TRANSPOSE, or the gradient of one, makes of its first input."""
    if isinstance(op, Gradient):
        perm = op.arguments(values)["perm"]
        return np.argsort(perm % max(perm.size, 1))
    return np.asarray(values[1])


def _gradient_product(op: Gradient, given: dict[str, Any], target: Array) -> Calls:
    of, dy = op.of, given["dy"]
    assert isinstance(of, BatchMatMul)
    if of.input_name(op.wrt) == "x":
        a, b, turned = dy, _turned(given["w"], not of.adjoint_rhs), of.adjoint_lhs
    else:
        a, b, turned = _turned(given["x"], not of.adjoint_lhs), dy, of.adjoint_rhs
    return strided(of, a, b, _turned(target, turned))
