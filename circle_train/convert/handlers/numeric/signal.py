"""Discrete Fourier transforms, as products with matrices of cosines and sines."""

from __future__ import annotations

from typing import Any

import numpy as np

from circle_train.convert.building.builder import Builder
from circle_train.convert.building.refusal import Refusal
from circle_train.convert.building.registry import Call, front, handles
from circle_train.ir import Tensor
from circle_train.ir.size import Size
from circle_train.ir.tensor_type import Array


@handles("DFT", since=17)
def dft_attribute(c: Call) -> Tensor:
    return transformed(c, c.axis(1))


@handles("DFT", since=20)
def dft(c: Call) -> Tensor:
    axis = -2 if c.optional(2) is None else int(c.value(2, "axis").reshape(()))
    return transformed(c, front(axis, c.rank()))


def transformed(c: Call, axis: int) -> Tensor:
    """Along an axis of a tensor whose last axis holds real parts and, mostly, imaginary ones."""
    b, dims = c.b, c.shape()
    if axis == len(dims) - 1:
        raise Refusal(f"its axis {axis} is the one of real and imaginary parts, expected another")
    backwards, one_sided = bool(c.attr("inverse", 0)), bool(c.attr("onesided", 0))
    length = 2 * (dims[axis] - 1) if backwards and one_sided else dims[axis]
    count = length if c.optional(1) is None else int(c.value(1, "dft_length").reshape(()))
    if isinstance(count, Size) or isinstance(dims[axis], Size):
        raise Refusal("it transforms a symbolic length")
    if count < 1:
        raise Refusal(f"it transforms {count} elements, expected 1 or more")
    order = [i for i in range(len(dims) - 1) if i != axis] + [axis]
    parts = [b.transpose(part, order) for part in components(b, c[0])]
    if backwards and one_sided:
        y = real_signal(b, parts, count)
    else:
        rows = count // 2 + 1 if one_sided else count
        y = spectrum(b, parts, *waves(rows, dims[axis], count, backwards))
    back = [order.index(i) for i in range(len(order))]
    return b.transpose(y, [*back, len(order)])


def components(b: Builder, x: Tensor) -> list[Tensor]:
    """Real and imaginary parts, or the real ones alone."""
    count = x.shape[-1]
    if count not in (1, 2):
        raise Refusal(f"its last axis has size {count}, expected 1 (real) or 2 (complex)")
    return b.all("UNPACK", x, num=count, axis=x.type.rank - 1)


def waves(rows: int, length: int, count: int, backwards: bool) -> tuple[Array, Array]:
    """Cosines and sines, rows × length, of a transform over `count` elements; what lies beyond them counts nothing."""
    places = np.arange(length)
    angle = (2 if backwards else -2) * np.pi * np.outer(np.arange(rows), places) / count
    kept = (places < count) / (count if backwards else 1)
    return np.cos(angle) * kept, np.sin(angle) * kept


def product(b: Builder, x: Tensor, matrix: Array) -> Tensor:
    return b("FULLY_CONNECTED", x, b.like(x, matrix), keep_num_dims=True)


def real_product(b: Builder, parts: list[Tensor], cosines: Array, sines: Array) -> Tensor:
    """The real part of (real + i imaginary) (cos + i sin) along the last axis."""
    real = product(b, parts[0], cosines)
    return real if len(parts) == 1 else b("SUB", real, product(b, parts[1], sines))


def spectrum(b: Builder, parts: list[Tensor], cosines: Array, sines: Array) -> Tensor:
    """(real + i imaginary) (cos + i sin) along the last axis, stacked behind it."""
    real, imaginary = real_product(b, parts, cosines, sines), product(b, parts[0], sines)
    if len(parts) == 2:
        imaginary = b("ADD", imaginary, product(b, parts[1], cosines))
    return b("PACK", real, imaginary, values_count=2, axis=real.type.rank)


def real_signal(b: Builder, parts: list[Tensor], count: int) -> Tensor:
    """Of the first half of its spectrum, whose other half is the mirrored conjugate; with an axis of one part."""
    length = parts[0].shape[-1]
    places = np.arange(length)
    mirrored = (places > 0) & (2 * places < count)
    times = (2 * places <= count) * (1 + mirrored)
    real = real_product(b, parts, *(wave * times for wave in waves(count, length, count, True)))
    return b("PACK", real, values_count=1, axis=real.type.rank)


@handles("STFT", since=17)
def short_time(c: Call) -> Tensor:
    """The transforms of frames, cut out every `frame_step` elements and weighted by the window."""
    b, length, step = c.b, c.shape()[1], int(c.value(1, "frame_step").reshape(()))
    window = c.optional(2)
    given = c.optional(3)
    frame = (
        int(c.value(3, "frame_length").reshape(()))
        if given is not None
        else window.shape[0]
        if window is not None
        else length
    )
    if isinstance(frame, Size):
        raise Refusal("it transforms a symbolic length")
    count = (length - frame) // step + 1
    starts = b("MUL", b.reshape(b.numbers(count), (count, 1)), b.constant(step, np.int32))
    places = b("ADD", starts, b.constant(np.arange(frame)[None, :], np.int32))
    signals = [c[0]] if c.rank() == 2 else components(b, c[0])
    parts = [b("GATHER", part, places, axis=1, batch_dims=0) for part in signals]
    if window is not None:
        parts = [b("MUL", part, window) for part in parts]
    rows = frame // 2 + 1 if c.attr("onesided", 1) else frame
    return spectrum(b, parts, *waves(rows, frame, frame, False))


MOST_BINS = 1 << 15
"""Of frequencies and of a mel spectrum, which the evaluator fills one by one."""
MEL = ("num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz")


@handles("MelWeightMatrix", since=17)
def mel_weights(c: Call) -> Tensor:
    """Triangles over a spectrum, as ONNX's own evaluator makes them of constants."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    values = {name: c.value(index, name) for index, name in enumerate(MEL)}
    if (most := max(values[name].max(initial=0) for name in MEL[:2])) > MOST_BINS:
        raise Refusal(f"it has {most} bins, expected up to {MOST_BINS}")
    kind = int(c.attr("output_datatype", onnx.TensorProto.FLOAT))
    infos = [
        onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for n, v in values.items()
    ]
    node = onnx.helper.make_node("MelWeightMatrix", list(MEL), ["w"], output_datatype=kind)
    out = onnx.helper.make_tensor_value_info("w", kind, None)
    model = onnx.helper.make_model(
        onnx.helper.make_graph([node], "mel", infos, [out]), opset_imports=[onnx.helper.make_opsetid("", 17)]
    )
    made: Any = ReferenceEvaluator(model).run(None, values)
    return c.b.constant(np.asarray(made[0]))
