"""What onnxruntime's quantizer writes, computed in floats between integers; weights of a few bits as what they mean."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from circle_train.convert.building.builder import Builder
from circle_train.convert.building.refusal import Refusal
from circle_train.convert.building.registry import Call, Result, handles
from circle_train.convert.handlers.layers.quantize import along, requantized
from circle_train.convert.handlers.layers.recurrent import recurrent
from circle_train.convert.handlers.microsoft.fused import MICROSOFT, standard
from circle_train.convert.handlers.numeric.linear import product, scaled
from circle_train.ir import DType, Role, Tensor
from circle_train.ir.tensor_type import Array


def real(b: Builder, x: Tensor, scale: Tensor, zero: Tensor | None, axis: int = 0) -> Tensor:
    """What the integers stand for."""
    y, rank = b.cast(x, DType.FLOAT32), x.type.rank
    if zero is not None:
        y = b("SUB", y, along(b, b.cast(zero, DType.FLOAT32), axis, rank, 0, 0))
    return b("MUL", y, along(b, scale, axis, rank, 0, 0))


def stored(b: Builder, y: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    """The integers that stand for it."""
    y = b("DIV", y, b.reshape(scale, ()))
    shift = None if zero is None else b.reshape(b.cast(zero, DType.FLOAT32), ())
    return requantized(b, y, shift, DType.UINT8 if zero is None else zero.dtype)


@handles("QLinearAdd", "QLinearMul", domain=MICROSOFT)
def qlinear_arithmetic(c: Call) -> Tensor:
    x, y = (real(c.b, c[i], c[i + 1], c.optional(i + 2)) for i in (0, 3))
    return stored(c.b, c.b(c.op.removeprefix("QLinear").upper(), x, y), c[6], c.optional(7))


@handles(
    "QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax", "QLinearAveragePool", "QLinearGlobalAveragePool",
    "QLinearReduceMean", domain=MICROSOFT,
)  # fmt: skip
def qlinear_unary(c: Call) -> Tensor:
    """The standard's operator on what the integers stand for."""
    if c.attr("channels_last", 0):
        raise Refusal("it lies channels last; export the model without that optimization")
    x = real(c.b, c[0], c[1], c.optional(2))
    made = standard(replace(c, inputs=[x]), c.op.removeprefix("QLinear"), int(c.attr("opset", 13)))[0]
    return stored(c.b, made, c[3], c.optional(4))


@handles("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(c: Call) -> Tensor:
    parts = [real(c.b, c[i], c[i + 1], c[i + 2]) for i in range(2, len(c.inputs), 3)]
    joined = c.b("CONCATENATION", *parts, axis=c.axis(rank=parts[0].type.rank))
    return stored(c.b, joined, c[0], c[1])


@handles("QGemm", domain=MICROSOFT)
def qgemm(c: Call) -> Tensor:
    """alpha · A' B' + C, in integers where a scale of the result is given."""
    b = c.b
    x, w = real(b, c[0], c[1], c[2]), real(b, c[3], c[4], c[5], 0 if c.attr("transB", 0) else 1)
    x = b.transpose(x, (1, 0)) if c.attr("transA", 0) else x
    w = b.transpose(w, (1, 0)) if c.attr("transB", 0) else w
    y = scaled(b, product(b, x, w), float(c.attr("alpha", 1.0)))
    if (bias := c.optional(6)) is not None:
        step = scaled(b, b("MUL", b.reshape(c[1], ()), c[4]), float(c.attr("alpha", 1.0)))
        y = b("ADD", y, b("MUL", b.cast(bias, DType.FLOAT32), step))
    return y if c.optional(7) is None else stored(b, y, c[7], c.optional(8))


@handles("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(c: Call) -> Tensor:
    b = c.b
    x = real(b, c[0], c[2], c.optional(4))
    y = product(b, x, real(b, c[1], c[3], c.optional(5), c.rank(1) - 1))
    return y if c.optional(6) is None else b("ADD", y, c[6])


def in_steps(b: Builder, x: Tensor) -> Tensor:
    """Rounded to 256 steps from its least to its greatest, 0 among them (DynamicQuantizeLinear and back)."""
    axes, zero = b.integers(range(x.type.rank)), b.like(x, 0)
    low = b("MINIMUM", b("REDUCE_MIN", x, axes, keep_dims=False), zero)
    high = b("MAXIMUM", b("REDUCE_MAX", x, axes, keep_dims=False), zero)
    scale = b("MUL", b("SUB", high, low), b.like(x, 1 / 255))
    scale = b("MAXIMUM", scale, b.like(x, np.finfo(np.float32).tiny))  # of zeros alone
    shift = b("ROUND", b("DIV", b("SUB", zero, low), scale))
    steps = b("ADD", b("ROUND", b("DIV", x, scale)), shift)
    within = b("MINIMUM", b("MAXIMUM", steps, zero), b.like(x, 255))
    return b("MUL", b("SUB", within, shift), scale)


@handles("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(c: Call) -> Tensor:
    """The input is rounded to 256 steps of its range, as the original does."""
    b = c.b
    y = product(b, in_steps(b, c[0]), real(b, c[1], c[2], c.optional(3), c.rank(1) - 1))
    return y if c.optional(4) is None else b("ADD", y, c[4])


@handles("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_quantize_lstm(c: Call) -> Result:
    """An LSTM on what the weights stand for; inputs and states, which the original rounds in every step, are not rounded."""
    b = c.b
    weights = []
    for at, facts in ((1, 8), (2, 10)):
        scale, zero = c[facts], b.cast(c[facts + 1], DType.FLOAT32)
        scale.role |= Role.FIXED
        directions = b.shape(c[at])[0]
        shape = (directions, 1, scale.type.size // int(directions))
        y = b("SUB", b.cast(c[at], DType.FLOAT32), b.reshape(zero, shape))
        weights.append(b.transpose(b("MUL", y, b.reshape(scale, shape)), (0, 2, 1)))
    return recurrent(replace(c, op="LSTM", inputs=[c[0], *weights, *c.inputs[3:8]]))


@handles("MatMulNBits", domain=MICROSOFT)
def matmul_n_bits(c: Call) -> Tensor:
    """A product with weights in blocks of a few bits, which are fixed."""
    b, bits, block = c.b, int(c.attr("bits", 4)), int(c.required("block_size"))
    columns, rows = int(c.required("K")), int(c.required("N"))
    if c.optional(4) is not None:
        raise Refusal("its weights are reordered (g_idx)")
    packed, scales = c.value(1, "B"), c.value(2, "scales").reshape(rows, -1, 1)
    numbers = _unpacked(packed.reshape(rows, -1), bits).reshape(rows, -1, block)
    zero = c.optional(3)
    shift: Any = 1 << (bits - 1)
    if zero is not None:
        given = c.value(3, "zero_points")
        per_block = given if given.dtype.kind == "f" else _unpacked(given.reshape(rows, -1), bits)
        shift = per_block.reshape(rows, -1)[:, : scales.shape[1], None]
    weights = ((numbers.astype(np.float32) - shift) * scales).reshape(rows, -1)[:, :columns]
    y = b("FULLY_CONNECTED", c[0], b.like(c[0], weights), keep_num_dims=True)
    return y if c.optional(5) is None else b("ADD", y, c[5])


def _unpacked(packed: Array, bits: int) -> Array:
    """Numbers of so many bits out of rows of bytes, the lowest first."""
    flat = np.unpackbits(packed.view(np.uint8), axis=1, bitorder="little")
    parts = flat[:, : flat.shape[1] // bits * bits].reshape(len(packed), -1, bits)
    made: Array = (parts * (1 << np.arange(bits, dtype=np.int32))).sum(2, dtype=np.int32)
    return made
