"""Normalisations, decomposed so that what was trained in ONNX is what is trained here."""

from __future__ import annotations

import numpy as np

from circle_train.convert.building.builder import Builder
from circle_train.convert.building.refusal import Refusal
from circle_train.convert.building.registry import Call, handles
from circle_train.ir import Role, Tensor
from circle_train.ops.internal.norms.batch_norm import BatchNorm


@handles("BatchNormalization")
def batch_normalization(c: Call) -> Tensor | list[Tensor]:
    """By running statistics, which are no parameters."""
    if c.opset < 9 and not c.attr("spatial", 1):
        raise Refusal("spatial=0, statistics per position, is not expressed")
    if c.opset < 7 and not c.attr("is_test", 0):
        raise Refusal("is_test is 0, so it is in training mode; export the model in eval mode")
    for index in (3, 4):
        c[index].role |= Role.FIXED | Role.STATISTIC
    if c.attr("training_mode", 0) and (c.uses(1) or c.uses(2)):
        return _over_the_batch(c)
    b, x = c.b, c[0]
    op = BatchNorm(c.attr("epsilon", 1e-5), c.attr("momentum", 0.9))
    (y,) = b.emit(op, [b.channels_last(x) if x.type.rank > 2 else x, *(c[i] for i in range(1, 5))])
    return b.channels_first(y) if x.type.rank > 2 else y


def _over_the_batch(c: Call) -> list[Tensor]:
    """training_mode=1: normalised by the batch's own statistics; the running ones move towards them."""
    b, wide = c.b, c.rank() > 2
    x = b.channels_last(c[0]) if wide else c[0]
    axes = b.integers(range(x.type.rank - 1))
    mean = b("MEAN", x, axes)
    centred = b("SUB", x, mean)
    variance = b("MEAN", b("SQUARE", centred), axes)
    inverse = b("RSQRT", b("ADD", variance, b.like(x, c.attr("epsilon", 1e-5))))
    y = b("ADD", b("MUL", b("MUL", centred, inverse), c[1]), c[2])
    results = [b.channels_first(y) if wide else y]
    kept = c.attr("momentum", 0.9)
    for old, new in ((c[3], mean), (c[4], variance)):
        results.append(b("ADD", b("MUL", old, b.like(x, kept)), b("MUL", new, b.like(x, 1 - kept))))
    return results[: c.output_count]


@handles("InstanceNormalization")
def instance_normalization(c: Call) -> Tensor:
    b = c.b
    x = b.channels_last(c[0])
    axes = tuple(range(1, x.type.rank - 1))
    y = b("ADD", b("MUL", normalized(b, x, axes, c.attr("epsilon", 1e-5))[0], c[1]), c[2])
    return b.channels_first(y)


def normalized(b: Builder, x: Tensor, axes: tuple[int, ...], epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """(x - mean) / √(variance + ε), the mean, and the inverse deviation."""
    over = b.integers(axes)
    mean = b("MEAN", x, over, keep_dims=True)
    centred = b("SUB", x, mean)
    variance = b("MEAN", b("SQUARE", centred), over, keep_dims=True)
    inverse = b("RSQRT", b("ADD", variance, b.like(x, epsilon)))
    return b("MUL", centred, inverse), mean, inverse


@handles("LayerNormalization")
@handles("LayerNormalization", domain="com.microsoft")
def layer_normalization(c: Call) -> list[Tensor]:
    b = c.b
    axes = tuple(range(c.axis(-1), c.rank()))
    y, mean, inverse = normalized(b, c[0], axes, c.attr("epsilon", 1e-5))
    y = b("MUL", y, c[1])
    bias = c.optional(2)
    return [y if bias is None else b("ADD", y, bias), mean, inverse][: c.output_count]


@handles("SkipLayerNormalization", domain="com.microsoft")
def skip_layer_normalization(c: Call) -> list[Tensor]:
    """The norm of a sum, and the sum."""
    b = c.b
    if any(c.uses(i) for i in (1, 2)):
        raise Refusal("its outputs mean and deviation are used")
    x = b("ADD", c[0], c[1])
    if (bias := c.optional(4)) is not None:
        x = b("ADD", x, bias)
    y = b("MUL", normalized(b, x, (x.type.rank - 1,), c.attr("epsilon", 1e-12))[0], c[2])
    y = y if c.optional(3) is None else b("ADD", y, c[3])
    return [y, x, x, x][: c.output_count]


@handles("GroupNormalization", since=18)
def group_normalization(c: Call) -> Tensor:
    """Scale and bias per group up to opset 20, per channel from 21 on."""
    b, shape, groups = c.b, c.shape(), int(c.required("num_groups"))
    n, channels, *spatial = shape
    grouped = b.reshape(c[0], (n, groups, channels // groups, *spatial))
    y, _, _ = normalized(b, grouped, tuple(range(2, grouped.type.rank)), c.attr("epsilon", 1e-5))
    ones = (1,) * len(spatial)
    if c.opset < 21:
        scale, bias = (b.reshape(c[i], (groups, 1, *ones)) for i in (1, 2))
        return b.reshape(b("ADD", b("MUL", y, scale), bias), shape)
    y = b.channels_last(b.reshape(y, shape))
    return b.channels_first(b("ADD", b("MUL", y, c[1]), c[2]))


@handles("RMSNormalization", since=23)
@handles("SimplifiedLayerNormalization")
@handles("SimplifiedLayerNormalization", domain="com.microsoft")
def rms_normalization(c: Call) -> Tensor:
    b, x = c.b, c[0]
    axis, epsilon = c.axis(-1), c.attr("epsilon", 1e-5)
    if axis == c.rank() - 1 and c.rank(1) == 1 and c.dtype.name == "FLOAT32":
        return b("RMS_NORM", x, c[1], epsilon=epsilon)
    over = b.integers(range(axis, c.rank()))
    square = b("MEAN", b("SQUARE", x), over, keep_dims=True)
    return b("MUL", b("MUL", x, b("RSQRT", b("ADD", square, b.like(x, epsilon)))), c[1])


@handles("LRN")
def local_response(c: Call) -> Tensor:
    b, size = c.b, int(c.required("size"))
    alpha, beta, bias = c.attr("alpha", 1e-4), c.attr("beta", 0.75), c.attr("bias", 1.0)
    x = b.channels_last(c[0])
    if size % 2 and x.type.rank == 4:
        options = {"radius": size // 2, "bias": bias, "alpha": alpha / size, "beta": beta}
        return b.channels_first(b("LOCAL_RESPONSE_NORMALIZATION", x, **options))
    channels = b.shape(x)[-1]
    distance = np.arange(channels)[:, None] - np.arange(channels)[None, :]
    near = (distance >= -((size - 1) // 2)) & (distance <= size // 2)
    summed = b("FULLY_CONNECTED", b("SQUARE", x), b.like(x, near.T), keep_num_dims=True)
    scale = b("ADD", b("MUL", summed, b.like(x, alpha / size)), b.like(x, bias))
    return b.channels_first(b("DIV", x, b("POW", scale, b.like(x, beta))))


@handles("LpNormalization")
def lp_normalization(c: Call) -> Tensor:
    b, x = c.b, c[0]
    axis, p = b.integers([c.axis(-1)]), int(c.attr("p", 2))
    total = b("SUM", b("ABS", x) if p == 1 else b("SQUARE", x), axis, keep_dims=True)
    norm = total if p == 1 else b("SQRT", total)
    safe = b("SELECT_V2", b("EQUAL", norm, b.like(x, 0)), b.like(x, 1), norm)
    return b("DIV", x, safe)


@handles("MeanVarianceNormalization")
def mean_variance(c: Call) -> Tensor:
    b, x = c.b, c[0]
    over = b.integers([axis % c.rank() for axis in c.attr("axes", [0, 2, 3])])
    centred = b("SUB", x, b("MEAN", x, over, keep_dims=True))
    deviation = b("SQRT", b("MEAN", b("SQUARE", centred), over, keep_dims=True))
    return b("DIV", centred, b("ADD", deviation, b.like(x, 1e-9)))
