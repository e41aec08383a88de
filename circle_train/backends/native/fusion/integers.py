"""Integers: what no kernel computes as such, by the kernels of floats; and roundings to a grid in training, in one pass."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circle_train.backends.native.binders.integer.bytes import BINDERS, SHORTS
from circle_train.backends.native.engine.binding import OPS
from circle_train.backends.native.fusion.rewriter import Rewriter
from circle_train.ir import DType, Node, Quantization, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ops.axes import Elementwise
from circle_train.ops.internal.active_bits import ActiveBits
from circle_train.ops.internal.fused import Fused
from circle_train.ops.internal.integers.on_grid import OnGrid
from circle_train.ops.internal.integers.quantized import Quantized
from circle_train.ops.layers.resize import ResizeBilinear
from circle_train.ops.numeric.quantize import Dequantize, Quantize, dequantize
from circle_train.record import record

BYTES = (DType.INT8, DType.UINT8)
STORED = (*BYTES, DType.INT16)
Made = tuple[DType, Quantization | None]
UPWARDS = 1 - 2.0**-20
"""As a scale it takes halves up, and nothing else that a float32 tells from them."""


def widen_integers(rewriter: Rewriter) -> None:
    """Spell out what `Quantized` means where that is faster: widen, compute, round."""
    for node in rewriter.nodes():
        op = node.op
        if not isinstance(op, Quantized) or _is_computed(node, op) or not _gains(node, op):
            continue
        before: list[Node] = []
        given, results = _meanings(node, op)
        inputs = [
            t if t is None or meaning is None else _widened(t, meaning, before)
            for t, meaning in zip(node.inputs, given, strict=True)
        ]
        made = [
            t if meaning is None else Tensor(f"{t.name}:real", TensorType(DType.FLOAT32, t.shape))
            for t, (_, meaning) in zip(node.outputs, results, strict=True)
        ]
        behind = [
            Node(Quantized(Quantize(), (None,), ((dtype, meaning),)), [real], [t], node.index)
            for t, real, (dtype, meaning) in zip(node.outputs, made, results, strict=True)
            if meaning is not None
        ]
        if isinstance(op.of, Quantize):
            behind[0].inputs[0], computed = inputs[0], []
        else:
            computed = [Node(op.of, inputs, made, node.index, [node])]
        rewriter.replace([node], *before, *computed, *behind)


def _meanings(node: Node, op: Quantized) -> tuple[Sequence[Quantization | None], Sequence[Made]]:
    """What integers are taken for.

    A RESIZE_BILINEAR makes halves by the thousand, which XNNPACK takes up: bytes then count from their least.
    """
    dtype, meaning = op.made[0]
    if not isinstance(op.of, ResizeBilinear) or dtype not in BYTES or op.given[0] != meaning:
        return op.given, op.made
    least = (int(np.iinfo(dtype.numpy).min),)
    return (Quantization((1.0,), least), *op.given[1:]), ((dtype, Quantization((UPWARDS,), least)),)


def _is_computed(node: Node, op: Quantized) -> bool:
    """Whether there is a kernel for the bytes themselves."""
    stored = [
        t for t, meaning in zip(node.inputs, op.given, strict=True) if t is not None and meaning is not None
    ]
    stored = [t for t in stored if not t.is_constant]
    stored += [t for t, (_, meaning) in zip(node.outputs, op.made, strict=True) if meaning is not None]
    if stored and all(t.dtype is DType.INT16 for t in stored):
        return type(op.of) in SHORTS
    is_table = len(node.inputs) == 1 and isinstance(op.of.axes, Elementwise)
    return (type(op.of) in BINDERS or is_table) and all(t.dtype in BYTES for t in stored)


def _gains(node: Node, op: Quantized) -> bool:
    """Whether kernels take all steps of it."""
    known = [(t, meaning) for t, meaning in zip(node.inputs, op.given, strict=True) if t is not None]
    known += [(t, meaning) for t, (_, meaning) in zip(node.outputs, op.made, strict=True)]
    fits = all(
        meaning is None or t.is_constant or (t.dtype in STORED and len(meaning.scale) == 1)
        for t, meaning in known
    )
    return fits and _has_floats(op) and node.outputs[0].type.is_static


def _has_floats(op: Quantized) -> bool:
    """Whether what it wraps has kernels of floats, or comes from integers to others."""
    if isinstance(op.of, (Quantize, Dequantize)):
        return isinstance(op.of, Quantize) and op.given[0] is not None
    return type(op.of) in OPS or bool(op.of.formula)


def _widened(tensor: Tensor, meaning: Quantization, before: list[Node]) -> Tensor:
    if tensor.is_constant:
        return constant(np.ascontiguousarray(dequantize(tensor.data, meaning), np.float32), tensor.name)
    real = Tensor(f"{tensor.name}:real", TensorType(DType.FLOAT32, tensor.shape))
    before.append(Node(Quantized(Dequantize(), (meaning,), ((DType.FLOAT32, None),)), [tensor], [real]))
    return real


KERNEL = "settle"


@record
class Settled:
    """Which grid, between what the gradient passes, and what the outputs are: y, bits, bytes."""

    grid: OnGrid
    inside: tuple[float, float | None]
    made: tuple[str, ...]


def settle(rewriter: Rewriter) -> None:
    """Join each rounding with the bits of its mask, and with the bytes in which its result waits."""
    for node in rewriter.nodes():
        known = _settled(node)
        if node not in rewriter or known is None:
            continue
        x, y = node.inputs[0], node.outputs[0]
        bits = next((r for r in rewriter.readers(x) if isinstance(r.op, ActiveBits)), None)
        stored = next((r for r in rewriter.readers(y) if _stores(r, known.grid)), None)
        members, results, made = [node], list(node.outputs), list(known.made)
        inside = known.inside
        if bits is not None and "bits" not in made:
            assert isinstance(bits.op, ActiveBits)
            members.append(bits)
            results.append(bits.outputs[0])
            made.append("bits")
            inside = bits.op.low, bits.op.high
        if stored is not None and "bytes" not in made:
            members.append(stored)
            results.append(stored.outputs[0])
            made.append("bytes")
        if len(members) > 1 and x is not None:
            settings = Settled(known.grid, inside, tuple(made))
            rewriter.fuse(members, KERNEL, {"x": x}, results, settings, [x])


def _settled(node: Node) -> Settled | None:
    """What the node does already."""
    if isinstance(node.op, OnGrid):
        return Settled(node.op, (0.0, None), ("y",))
    if isinstance(node.op, Fused) and node.op.kernel == KERNEL:
        known: Settled = node.op.settings
        return known
    return None


def _stores(node: Node, grid: OnGrid) -> bool:
    """Whether it makes of the grid's numbers the bytes that they are."""
    op = node.op
    if not isinstance(op, Quantized) or not isinstance(op.of, Quantize) or op.given != (None,):
        return False
    meaning = op.made[0][1]
    return meaning is not None and meaning.scale == (grid.scale,) and meaning.zero_point == (int(grid.zero),)
