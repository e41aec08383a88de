"""Random numbers; those of a seed are not ONNX's, which leaves open how they are made."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circle_train.convert.building.refusal import Refusal
from circle_train.convert.building.registry import Call, handles
from circle_train.convert.onnx_file.elements import element_type
from circle_train.ir import DType, Tensor


def drawn(c: Call, name: str, sizes: Tensor) -> Tensor:
    """Float32 numbers of that shape."""
    if c.b.outer is not None:
        raise Refusal("it draws within a loop or a branch, where each pass would draw the same")
    seed = int(np.float32(c.attr("seed", 0.0)).view(np.uint32))
    return c.b.emit_unfolded(name, sizes, seed=seed)


def like(c: Call) -> tuple[Tensor, DType]:
    """The shape that is asked for and the element type: the attributes', or the input's."""
    stated = element_type(int(c.attr("dtype"))) if c.attr("dtype") else None
    if c.op.endswith("Like"):
        dtype = c.dtype if c.dtype.is_float else DType.FLOAT32
        return c.b("SHAPE", c[0], out_type=DType.INT32), stated or dtype
    return c.b.integers([int(n) for n in c.required("shape")]), stated or DType.FLOAT32


def stretched(c: Call, numbers: Tensor, scale: float, shift: float) -> Tensor:
    b = c.b
    return b("ADD", b("MUL", numbers, b.like(numbers, scale)), b.like(numbers, shift))


@handles("RandomNormal", "RandomNormalLike")
def random_normal(c: Call) -> Tensor:
    sizes, dtype = like(c)
    numbers = drawn(c, "RANDOM_STANDARD_NORMAL", sizes)
    return c.b.cast(stretched(c, numbers, c.attr("scale", 1.0), c.attr("mean", 0.0)), dtype)


@handles("RandomUniform", "RandomUniformLike")
def random_uniform(c: Call) -> Tensor:
    sizes, dtype = like(c)
    low, high = c.attr("low", 0.0), c.attr("high", 1.0)
    return c.b.cast(stretched(c, drawn(c, "RANDOM_UNIFORM", sizes), high - low, low), dtype)


@handles("Bernoulli")
def bernoulli(c: Call) -> Tensor:
    """True as often as the input says."""
    stated = element_type(int(c.attr("dtype"))) if c.attr("dtype") else c.dtype
    if stated is None:
        raise Refusal("its element type is one that Circle does not compute")
    numbers = drawn(c, "RANDOM_UNIFORM", c.b("SHAPE", c[0], out_type=DType.INT32))
    return c.b.cast(c.b("LESS", numbers, c.b.cast(c[0], DType.FLOAT32)), stated)


@handles("Multinomial")
def multinomial(c: Call) -> Tensor:
    """The place of the largest logarithm of a chance, each with Gumbel's noise of its own."""
    b = c.b
    shape: Sequence[int] = c.shape()
    if len(shape) != 2:
        raise Refusal(f"its input has rank {len(shape)}, expected 2")
    count = int(c.attr("sample_size", 1))
    noise = drawn(c, "RANDOM_UNIFORM", b.integers([shape[0], count, shape[1]]))
    gumbel = b("NEG", b("LOG", b("NEG", b("LOG", noise))))
    scores = b("ADD", gumbel, b.reshape(b.cast(c[0], DType.FLOAT32), (shape[0], 1, shape[1])))
    wide = element_type(int(c.attr("dtype", 6))) is DType.INT64
    return b("ARG_MAX", scores, b.constant(2, np.int32), output_type=DType.INT64 if wide else DType.INT32)
