"""Normalisation over the last axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from circle_train.backends.native.binders.update import update_of
from circle_train.backends.native.engine import abi
from circle_train.backends.native.engine.abi import Kernel
from circle_train.backends.native.engine.binding import (
    Calls,
    Values,
    binds,
    binds_fused,
    call,
    floats,
    pointer,
)
from circle_train.ir.tensor_type import Array
from circle_train.ops.base import Op
from circle_train.ops.internal.fused import Fused
from circle_train.ops.internal.norms.layer_norm import LayerNorm
from circle_train.ops.layers.norm import RmsNorm

KERNELS: dict[type[Op], tuple[Kernel, Kernel]] = {
    LayerNorm: (Kernel.LAYER_NORM, Kernel.LAYER_NORM_GRAD),
    RmsNorm: (Kernel.RMS_NORM, Kernel.RMS_NORM_GRAD),
}


@binds(LayerNorm, RmsNorm)
def norm(op: LayerNorm | RmsNorm, inputs: Values, outputs: Sequence[Array]) -> Calls:
    return forward(op, dict(zip(("x", "gamma", "beta"), inputs, strict=False)), {"y": outputs[0]})


@binds_fused("rms_norm")
@binds_fused("layer_norm")
def fused_forward(op: Fused, given: dict[str, Any], outputs: Sequence[Array]) -> Calls:
    """With the sum of two operands before, and what the gradient needs behind."""
    return forward(op.settings.op, given, dict(zip(op.settings.made, outputs, strict=True)))


def forward(op: LayerNorm | RmsNorm, given: dict[str, Any], made: dict[str, Array]) -> Calls:
    arrays = {**given, **made}
    x = given["x"]
    if not floats(*arrays.values()) or not x.size or given["gamma"].size != x.shape[-1]:
        return None
    names = ("x", "add", "gamma", "beta", "y", "sum", "mean", "rstd")
    cols = x.shape[-1]
    args = abi.NormArgs(*(pointer(arrays.get(name)) for name in names), x.size // cols, cols, op.epsilon)
    return [call(KERNELS[type(op)][0], args, *arrays.values())]


@binds_fused("rms_norm_gradient")
@binds_fused("layer_norm_gradient")
def fused_gradient(op: Fused, given: dict[str, Any], outputs: Sequence[Array]) -> Calls:
    """The gradients of input, gamma and beta, and the updates of the latter."""
    options = op.settings
    made = dict(zip(options.made, outputs, strict=True))
    dy, x = given["dy"], given["x"]
    if not floats(dy, x, *outputs):
        return None
    gamma, beta = update_of(options.w, "w", given, made), update_of(options.b, "b", given, made)
    cols = x.shape[-1]
    args = abi.NormGradArgs(
        dy=pointer(dy), x=pointer(x), gamma_values=pointer(given["gamma"]), mean=pointer(given.get("mean")),
        rstd=pointer(given["rstd"]), dx=pointer(made.get("dx")), rows=x.size // cols, cols=cols,
        gamma=gamma or abi.Update(), beta=beta or abi.Update(), has_gamma=gamma is not None, has_beta=beta is not None,
    )  # fmt: skip
    return [call(KERNELS[type(options.op)][1], args, *given.values(), *outputs)]
