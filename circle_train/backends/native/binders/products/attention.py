"""Attention forward and backward, on operands and results that lie in any order whose rows' elements are neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from circle_train.backends.native.binders.products.linear import batches
from circle_train.backends.native.engine import abi
from circle_train.backends.native.engine.abi import Kernel
from circle_train.backends.native.engine.binding import Calls, binds_fused, call, pointer
from circle_train.ir.tensor_type import Array
from circle_train.ops.internal.fused import Fused


@binds_fused("attention")
def attention(op: Fused, given: dict[str, Any], outputs: Sequence[Array]) -> Calls:
    return _call(Kernel.ATTENTION, op, given, outputs)


@binds_fused("attention_gradient")
def attention_gradient(op: Fused, given: dict[str, Any], outputs: Sequence[Array]) -> Calls:
    return _call(Kernel.ATTENTION_GRAD, op, given, outputs)


def _call(kernel: Kernel, op: Fused, given: dict[str, Any], outputs: Sequence[Array]) -> Calls:
    options = op.settings
    arrays = {**given, **dict(zip(options.made, outputs, strict=True))}
    views = {role: arrays[role].transpose(order) for role, order in options.orders}
    if any(view.dtype != np.float32 for view in views.values()):
        return None
    q, k, v = views["q"], views["k"], views["v"]
    if "mask" in views:
        views["mask"] = np.broadcast_to(views["mask"], (*q.shape[:-1], k.shape[-2]))
    extents, steps = batches(q.shape[:-2], list(views.values()))
    extents = [1] * (2 - len(extents)) + extents
    places = {
        role: abi.Matrices(pointer(view), *([0] * (2 - len(own)) + own), view.strides[-2] // 4)
        for (role, view), own in zip(views.items(), steps, strict=True)
    }
    args = abi.AttentionArgs(
        **places, batch0=extents[0], batch1=extents[1], rows=q.shape[-2], cols=k.shape[-2], depth=q.shape[-1],
        width=v.shape[-1], scale=options.scale, mask_scale=options.mask_scale,
    )  # fmt: skip
    return [call(kernel, args, *arrays.values())]
