"""Convolutions and transposed convolutions in one, two and three dimensions."""

from __future__ import annotations

import numpy as np

from circle_train.convert.building.builder import Builder
from circle_train.convert.building.refusal import Refusal
from circle_train.convert.building.registry import Call, Result, handles
from circle_train.convert.handlers.window import Geometry, Sizes, circle_padding, cropped, geometry, padded
from circle_train.ir import Tensor
from circle_train.ir.size import Size
from circle_train.ops.attributes import Padding
from circle_train.ops.open.derive import require_equal


@handles("Conv", "FusedConv")
def conv(c: Call) -> Tensor:
    b, w, bias = c.b, c[1], c.optional(2)
    kernel = b.shape(w)[2:]
    rank = len(kernel)
    if rank not in (1, 2, 3):
        raise Refusal(f"it has {rank} spatial axes, Circle convolves over 1, 2 or 3")
    g = geometry(c, b.partial_shape(c[0])[2:], kernel)
    group = int(c.attr("group", 1))
    x = b.channels_last(c[0])
    if rank == 1:
        return b.channels_first(
            squeezed(b, convolve_2d(b, lifted(b, x), lift_kernel(b, w), bias, lift(g), group))
        )
    if rank == 2:
        return b.channels_first(convolve_2d(b, x, w, bias, g, group))
    return b.channels_first(convolve_3d(b, x, w, bias, g, group))


@handles("Conv", domain="com.microsoft")
def microsoft_conv(c: Call) -> Result:
    return conv(c)


def lifted(b: Builder, x: Tensor) -> Tensor:
    """Batch × length × channels as an image of height 1."""
    if not x.type.is_static:
        return b("EXPAND_DIMS", x, b.constant(1, np.int32))
    n, length, channels = b.shape(x)
    return b.reshape(x, (n, 1, length, channels))


def squeezed(b: Builder, y: Tensor) -> Tensor:
    if not y.type.is_static:
        return b("SQUEEZE", y, squeeze_dims=(1,))
    n, _, length, channels = b.shape(y)
    return b.reshape(y, (n, length, channels))


def lift_kernel(b: Builder, w: Tensor) -> Tensor:
    first, second, size = b.shape(w)
    return b.reshape(w, (first, second, 1, size))


def lift(g: Geometry) -> Geometry:
    return Geometry((1, *g.kernel), (1, *g.strides), (1, *g.dilations), ((0, 0), *g.pads))


def convolve_2d(b: Builder, x: Tensor, w: Tensor, bias: Tensor | None, g: Geometry, group: int) -> Tensor:
    """Channels-last image, ONNX kernel (outputs × inputs / groups × height × width)."""
    outputs, taken = b.shape(w)[:2]
    channels = b.partial_shape(x)[3]
    if channels not in (-1, taken * group):
        require_equal(channels, taken * group)
        raise Refusal(
            f"its input has {channels} channels, the kernel takes {taken} in each of {group} groups"
        )
    if outputs % group:
        raise Refusal(f"its {group} groups do not divide {outputs} output channels")
    padding = circle_padding(b.partial_shape(x)[1:3], g)
    if padding is None:
        x, padding = padded(b, x, g.pads), Padding.VALID
    options = {
        "padding": padding, "stride_h": g.strides[0], "stride_w": g.strides[1],
        "dilation_h_factor": g.dilations[0], "dilation_w_factor": g.dilations[1],
    }  # fmt: skip
    if group > 1 and taken == 1:
        kernel = b.transpose(w, (1, 2, 3, 0))
        return b("DEPTHWISE_CONV_2D", x, kernel, bias, depth_multiplier=outputs // group, **options)
    return b("CONV_2D", x, b.transpose(w, (0, 2, 3, 1)), bias, **options)


def convolve_3d(b: Builder, x: Tensor, w: Tensor, bias: Tensor | None, g: Geometry, group: int) -> Tensor:
    """Channels-last volume; groups by splitting, which Circle's CONV_3D does not know."""
    padding = circle_padding(b.shape(x)[1:4], g)
    if padding is None:
        x, padding = padded(b, x, g.pads), Padding.VALID
    names = ("d", "h", "w")
    options = {f"stride_{n}": s for n, s in zip(names, g.strides, strict=True)}
    options |= {f"dilation_{n}_factor": d for n, d in zip(names, g.dilations, strict=True)}
    kernel = b.transpose(w, (2, 3, 4, 1, 0))
    if group == 1:
        return b("CONV_3D", x, kernel, bias, padding=padding, **options)
    inputs = b.all("SPLIT", b.constant(4, np.int32), x, num_splits=group)
    kernels = b.all("SPLIT", b.constant(4, np.int32), kernel, num_splits=group)
    parts = [b("CONV_3D", i, k, padding=padding, **options) for i, k in zip(inputs, kernels, strict=True)]
    joined = b("CONCATENATION", *parts, axis=4)
    return joined if bias is None else b("ADD", joined, bias)


@handles("ConvTranspose")
def conv_transpose(c: Call) -> Tensor:
    b, w, bias = c.b, c[1], c.optional(2)
    kernel = b.shape(w)[2:]
    rank = len(kernel)
    if rank not in (1, 2, 3):
        raise Refusal(f"it has {rank} spatial axes, Circle convolves over 1, 2 or 3")
    group = int(c.attr("group", 1))
    extra = tuple(c.attr("output_padding") or (0,) * rank)
    g = transposed_geometry(c, c.shape()[2:], kernel, extra)
    x = b.channels_last(c[0])
    if rank == 1:
        y = transpose_2d(b, lifted(b, x), lift_kernel(b, w), lift(g), (0, *extra), group)
        y = squeezed(b, y)
    elif rank == 2:
        y = transpose_2d(b, x, w, g, extra, group)
    else:
        y = stuffed(b, x, w, g, extra, group)
    if bias is not None:
        y = with_bias(b, y, bias)
    return b.channels_first(y)


def with_bias(b: Builder, y: Tensor, bias: Tensor) -> Tensor:
    """The bias as the operator's own where it has room for one and nothing stands between."""
    node = y.producer
    if node is not None and node.op.name == "TRANSPOSE_CONV" and len(node.inputs) == 3:
        node.inputs.append(bias)
        return y
    return b("ADD", y, bias)


def transposed_geometry(c: Call, spatial: Sizes, kernel: Sizes, extra: Sizes) -> Geometry:
    """Pads from `pads`, or so that the wanted output size results."""
    rank = len(kernel)
    strides = tuple(c.attr("strides") or (1,) * rank)
    dilations = tuple(c.attr("dilations") or (1,) * rank)
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    auto, wanted = c.attr("auto_pad", "NOTSET"), c.attr("output_shape")
    if wanted is None and auto in ("NOTSET", "VALID"):
        flat = list(c.attr("pads") or (0,) * 2 * rank) if auto == "NOTSET" else [0] * 2 * rank
        return Geometry(kernel, strides, dilations, tuple((flat[i], flat[i + rank]) for i in range(rank)))
    wanted = list(wanted or [n * s for n, s in zip(spatial, strides, strict=True)])[-rank:]
    pads = []
    for n, s, e, x, target in zip(spatial, strides, extents, extra, wanted, strict=True):
        total = s * (n - 1) + x + e - target
        if isinstance(total, Size):
            raise Refusal("its output_shape is fixed while its input's size is open")
        half = total // 2
        first, last = (half, total - half) if auto == "SAME_UPPER" else (total - half, half)
        pads.append((0, total) if auto == "NOTSET" and total < 0 else (first, last))
    return Geometry(kernel, strides, dilations, tuple(pads))


def transpose_2d(b: Builder, x: Tensor, w: Tensor, g: Geometry, extra: Sizes, group: int) -> Tensor:
    """TRANSPOSE_CONV over everything the kernel reaches, then cut; the kernel is inputs × outputs × …."""
    plain = (
        group == 1 and set(g.dilations) == {1} and all(e < s for e, s in zip(extra, g.strides, strict=True))
    )
    if not plain or any(min(pair) < 0 for pair in g.pads):
        return stuffed(b, x, w, g, extra, group)
    outputs = b.shape(w)[1]
    n, *spatial, _ = b.shape(x)
    kernel = b.transpose(w, (1, 2, 3, 0))
    options = {"stride_h": g.strides[0], "stride_w": g.strides[1]}
    target = [
        (i - 1) * s + k + e - sum(p)
        for i, s, k, e, p in zip(spatial, g.strides, g.kernel, extra, g.pads, strict=True)
    ]
    scaled = all(t == i * s for t, i, s in zip(target, spatial, g.strides, strict=True))
    if scaled and all(
        Padding.SAME.amounts(t, k, s) == (p[0], p[1] - e)
        for t, k, s, p, e in zip(target, g.kernel, g.strides, g.pads, extra, strict=True)
    ):
        shape = b.integers([n, *target, outputs])
        return b("TRANSPOSE_CONV", shape, kernel, x, padding=Padding.SAME, **options)
    whole = [t + sum(p) for t, p in zip(target, g.pads, strict=True)]
    y = b("TRANSPOSE_CONV", b.integers([n, *whole, outputs]), kernel, x, padding=Padding.VALID, **options)
    return cropped(b, y, [(0, 0), *g.pads, (0, 0)])


def stuffed(b: Builder, x: Tensor, w: Tensor, g: Geometry, extra: Sizes, group: int) -> Tensor:
    """Any transposed convolution: zeros between the elements, then a convolution, its kernel mirrored."""
    rank = len(g.kernel)
    x = spread(b, x, g.strides)
    pads = tuple((e - 1 - p[0], e - 1 - p[1] + x) for e, p, x in zip(g.extents, g.pads, extra, strict=True))
    inputs, outputs = b.shape(w)[:2]
    w = b("REVERSE_V2", w, b.integers(range(2, 2 + rank))) if rank < 3 else mirrored(b, w)
    if group > 1:
        w = b.reshape(w, (group, inputs // group, outputs, *g.kernel))
        w = b.transpose(w, (0, 2, 1, *range(3, 3 + rank)))
        w = b.reshape(w, (group * outputs, inputs // group, *g.kernel))
    else:
        w = b.transpose(w, (1, 0, *range(2, 2 + rank)))
    window = Geometry(g.kernel, (1,) * rank, g.dilations, ((0, 0),) * rank)
    x = padded(b, x, pads)
    return (convolve_2d if rank == 2 else convolve_3d)(b, x, w, None, window, group)


def mirrored(b: Builder, w: Tensor) -> Tensor:
    """Every spatial axis reversed, one after the other."""
    for axis in range(2, w.type.rank):
        w = b("REVERSE_V2", w, b.integers([axis]))
    return w


def spread(b: Builder, x: Tensor, strides: Sizes) -> Tensor:
    """stride - 1 zeros between the elements of each spatial axis."""
    for axis, stride in enumerate(strides, 1):
        if stride > 1:
            shape = b.shape(x)
            inner = b.reshape(x, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
            inner = padded(b, inner, [(0, stride - 1)], first=axis + 1)
            x = b.reshape(inner, (*shape[:axis], shape[axis] * stride, *shape[axis + 1 :]))
            x = cropped(b, x, [(0, stride - 1) if i == axis else (0, 0) for i in range(len(shape))])
    return x
