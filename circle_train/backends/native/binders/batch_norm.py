"""Normalisation by the batch's statistics, and the running ones that move towards them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from circle_train.backends.native.binders.chain import Builder, chain
from circle_train.backends.native.engine import abi
from circle_train.backends.native.engine.abi import Act, ChainOp, Kernel
from circle_train.backends.native.engine.binding import (
    Calls,
    Values,
    binds,
    binds_fused,
    call,
    floats,
    pointer,
    supported,
)
from circle_train.ir.tensor_type import Array
from circle_train.ops.internal.fused import Fused
from circle_train.ops.internal.norms.batch_statistics import BatchStatistics, NormaliseByBatch
from circle_train.ops.internal.norms.running import MoveTowards

NAMES = ("x", "gamma", "beta", "add", "y", "mean", "variance")


@binds(NormaliseByBatch)
def batch_norm(op: NormaliseByBatch, inputs: Values, outputs: Sequence[Array]) -> Calls:
    columns = inputs[0].shape[-1:]
    made = {"y": outputs[0], "mean": np.empty(columns, np.float32), "variance": np.empty(columns, np.float32)}
    act = Act(op.activation) if supported(op.activation) else None
    return _forward(op.epsilon, act, {**dict(zip(NAMES, inputs, strict=False)), **made})


@binds(BatchStatistics)
def statistics(op: BatchStatistics, inputs: Values, outputs: Sequence[Array]) -> Calls:
    return _forward(0.0, Act.NONE, {"x": inputs[0], **dict(zip(("mean", "variance"), outputs, strict=True))})


@binds_fused("batch_norm")
def fused_forward(op: Fused, given: dict[str, Any], outputs: Sequence[Array]) -> Calls:
    """With the statistics, a sum and an activation."""
    options = op.settings
    return _forward(
        options.op.epsilon, options.act, {**given, **dict(zip(options.made, outputs, strict=True))}
    )


def _forward(epsilon: float, act: Act | None, arrays: dict[str, Any]) -> Calls:
    x = arrays["x"]
    if act is None or not floats(*arrays.values()) or not x.size:
        return None
    cols = x.shape[-1]
    args = abi.BatchNormArgs(
        **{name: pointer(arrays.get(name)) for name in NAMES}, rows=x.size // cols, cols=cols, eps=epsilon, act=act
    )  # fmt: skip
    return [call(Kernel.BATCH_NORM, args, *arrays.values())]


@binds_fused("batch_norm_gradient")
def fused_gradient(op: Fused, given: dict[str, Any], outputs: Sequence[Array]) -> Calls:
    """What comes back through the activation, and the gradients of all three inputs."""
    options = op.settings
    made = dict(zip(options.made, outputs, strict=True))
    arrays = {name: given[name] for name in ("dy", "x", "gamma", "beta", "mean", "variance")}
    x = arrays["x"]
    if not floats(*arrays.values(), *outputs) or not x.size:
        return None
    cols = x.shape[-1]
    args = abi.BatchNormGradArgs(
        **{name: pointer(array) for name, array in arrays.items()}, dx=pointer(made.get("x")),
        dgamma=pointer(made.get("gamma")), dbeta=pointer(made.get("beta")), rows=x.size // cols, cols=cols,
        eps=options.op.epsilon, act=options.act,
    )  # fmt: skip
    return [call(Kernel.BATCH_NORM_GRAD, args, *arrays.values(), *outputs)]


@binds(MoveTowards)
def move_towards(op: MoveTowards, inputs: Values, outputs: Sequence[Array]) -> Calls:
    running, batch = inputs
    if not floats(running, batch) or batch.size != running.size:
        return None

    def moved(b: Builder, old: int, new: int) -> int:
        kept = b.emit(ChainOp.MUL_IMM, old, imm=op.momentum)
        return b.emit(ChainOp.ADD, kept, b.emit(ChainOp.MUL_IMM, new, imm=1 - op.momentum))

    return chain(moved, [running, batch.reshape(running.shape)], running)
