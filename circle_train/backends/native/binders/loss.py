"""Softmax and the losses: alone, and with reduction and gradient at one go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from circle_train.backends.native.binders.chain import chain
from circle_train.backends.native.engine import abi
from circle_train.backends.native.engine.abi import ChainOp, Kernel
from circle_train.backends.native.engine.binding import (
    Calls,
    Values,
    binds,
    binds_fused,
    binds_gradient,
    call,
    floats,
    pointer,
)
from circle_train.ir.tensor_type import Array
from circle_train.ops.base import Op
from circle_train.ops.internal.fused import Fused
from circle_train.ops.internal.gradient import Gradient
from circle_train.ops.internal.loss import (
    CrossEntropy,
    SoftmaxCrossEntropy,
    SparseCrossEntropy,
    SparseSoftmaxCrossEntropy,
)
from circle_train.ops.numeric.activation import LogSoftmax, Softmax
from circle_train.record import record


@binds(Softmax, LogSoftmax)
def softmax(op: Any, inputs: Values, outputs: Sequence[Array]) -> Calls:
    x, y = inputs[0], outputs[0]
    if not floats(x, y) or not x.size:
        return None
    args = abi.SoftmaxArgs(
        pointer(x), pointer(y), None, None, x.size // x.shape[-1], x.shape[-1], getattr(op, "beta", 1.0), 0
    )
    return [call(Kernel.SOFTMAX if isinstance(op, Softmax) else Kernel.LOG_SOFTMAX, args, x, y)]


@binds_gradient("x", Softmax, LogSoftmax)
def softmax_x(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    dy, y = given["dy"], given["y"]
    if not floats(dy, y, out) or not y.size:
        return None
    beta = getattr(op.of, "beta", 1.0)
    args = abi.SoftmaxArgs(
        None, pointer(y), pointer(dy), pointer(out), y.size // y.shape[-1], y.shape[-1], beta, 0
    )
    kernel = Kernel.SOFTMAX_GRAD if isinstance(op.of, Softmax) else Kernel.LOG_SOFTMAX_GRAD
    return [call(kernel, args, dy, y, out)]


IGNORED = -(1 << 31)
"""A label that no data holds."""


@binds(SoftmaxCrossEntropy, CrossEntropy, SparseSoftmaxCrossEntropy, SparseCrossEntropy)
def cross_entropy(op: Op, inputs: Values, outputs: Sequence[Array]) -> Calls:
    """One loss a row."""
    return of_rows(op, *inputs, row_loss=outputs[0])


@binds_gradient("x", SoftmaxCrossEntropy, CrossEntropy, SparseSoftmaxCrossEntropy, SparseCrossEntropy)
def cross_entropy_gradient(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    """The gradient of each row's loss, times what comes from behind."""
    made, dy = of_rows(op.of, given["x"], given["target"], dz=out), given["dy"]
    scaled = chain(lambda b, g, dy: b.emit(ChainOp.MUL, g, dy), [out, dy.reshape(*dy.shape, 1)], out)
    return None if made is None or scaled is None else [*made, *scaled]


def of_rows(op: Op, x: Array, target: Array, **made: Array) -> Calls:
    """Loss or gradient of each row by itself; a label outside the classes counts nothing."""
    sparse = isinstance(op, (SparseSoftmaxCrossEntropy, SparseCrossEntropy))
    fits = target.dtype == np.int32 if sparse else floats(target)
    if not fits or not floats(x, *made.values()) or not x.size:
        return None
    pointers = {name: pointer(array) for name, array in made.items()}
    args = abi.CrossEntropyArgs(
        logits=pointer(x), target=None if sparse else pointer(target), labels=pointer(target) if sparse else None,
        rows=x.size // x.shape[-1], cols=x.shape[-1], loss_scale=1.0, grad_scale=1.0, ignore_label=IGNORED,
        skip_outside=1, probabilities=isinstance(op, (CrossEntropy, SparseCrossEntropy)), **pointers,
    )  # fmt: skip
    return [call(Kernel.SOFTMAX_CROSS_ENTROPY, args, x, target, *made.values())]


@record
class LossOptions:
    """What the loss and its gradient are multiplied by."""

    scale: float
    gradient_scale: float
    made: tuple[str, ...] = ()
    probabilities: bool = False


@binds_fused("cross_entropy")
def fused_cross_entropy(op: Fused, given: dict[str, Any], outputs: Sequence[Array]) -> Calls:
    """Loss and gradient of the logits, or what products need to make it, in one pass."""
    x, target = given["x"], given["target"]
    made = dict(zip(op.settings.made, outputs, strict=True))
    if not floats(x, *outputs) or target.dtype not in (np.float32, np.int32):
        return None
    sparse = target.dtype == np.int32
    args = abi.CrossEntropyArgs(
        logits=pointer(x), target=None if sparse else pointer(target), labels=pointer(target) if sparse else None,
        loss=pointer(made.get("loss")), dz=pointer(made.get("dx")), top=pointer(made.get("top")),
        rate=pointer(made.get("rate")), rows=x.size // x.shape[-1], cols=x.shape[-1],
        loss_scale=op.settings.scale, grad_scale=op.settings.gradient_scale, ignore_label=IGNORED,
        probabilities=op.settings.probabilities,
    )  # fmt: skip
    return [call(Kernel.SOFTMAX_CROSS_ENTROPY, args, x, target, *outputs)]


@binds_fused("mean_squared_error")
@binds_fused("mean_absolute_error")
def fused_regression(op: Fused, given: dict[str, Any], outputs: Sequence[Array]) -> Calls:
    """Loss and gradient of the prediction in one pass."""
    x, target = given["x"], given["target"]
    made = dict(zip(op.settings.made, outputs, strict=True))
    if not floats(x, target, *outputs) or x.shape != target.shape:
        return None
    args = abi.RegressionLossArgs(
        pointer(x),
        pointer(target),
        pointer(made.get("loss")),
        pointer(made.get("dx")),
        x.size,
        op.settings.scale,
        op.settings.gradient_scale,
    )
    squared = op.kernel == "mean_squared_error"
    return [
        call(Kernel.MEAN_SQUARED_ERROR if squared else Kernel.MEAN_ABSOLUTE_ERROR, args, x, target, *outputs)
    ]
