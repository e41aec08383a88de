"""Run operators on quantized tensors by real arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circle_train.errors import ModelError, UnsupportedOpError
from circle_train.ir import DType, Graph, Node, Quantization, Tensor, TensorType
from circle_train.ir.node import known_type
from circle_train.ops.attributes import Activation
from circle_train.ops.internal.integers.hybrid import Hybrid
from circle_train.ops.internal.integers.quantized import Quantized
from circle_train.ops.movement import Movement
from circle_train.ops.opaque import Opaque

INTEGERS = (DType.INT8, DType.UINT8, DType.INT16, DType.UINT16, DType.INT32, DType.INT64)
SMALL = (DType.INT8, DType.UINT8, DType.INT16)
PACKED = (DType.INT4, DType.UINT4)
SMALLEST_SCALE, LARGEST_SCALE = 2.0**-126, 1e29
"""Normal float32s, and so is what bytes count of them."""


def run_quantized(graph: Graph) -> None:
    """Wrap every operator that reads or writes a quantized tensor; the tensors keep their integers.

    What only moves integers that mean the same on both sides needs no meaning.
    """
    for node in graph.nodes:
        if isinstance(node.op, (Opaque, Quantized, Hybrid)):
            continue
        given = tuple(quantization_of(node, tensor) for tensor in node.inputs)
        made = tuple((tensor.dtype, quantization_of(node, tensor)) for tensor in node.outputs)
        if only_moves(node, {*given, *(quantization for _, quantization in made)} - {None}):
            continue
        if any(given) or any(quantization for _, quantization in made):
            refuse_meaningless(node, given)
            node.op = Quantized(node.op, with_bias(node, given), made)


def only_moves(node: Node, meanings: set[Quantization | None]) -> bool:
    """Whether integers go through the operator as they are."""
    op = node.op
    is_plain = isinstance(op, Movement) and not op.invents and op.activation is Activation.NONE
    return is_plain and len(meanings) == 1 and all(m is not None and len(m.scale) == 1 for m in meanings)


def quantization_of(node: Node, tensor: Tensor | None) -> Quantization | None:
    """What the integers of a tensor stand for; None where they are plain numbers, or floats."""
    if tensor is None:
        return None
    if tensor.dtype in PACKED:
        raise UnsupportedOpError(
            f"{node}: {tensor} packs two elements into a byte and is no constant with a scale, which is not computed; "
            "export the model with 8 bit or float tensors"
        )
    stored = tensor.quantization
    if stored is None or not stored.scale or tensor.dtype not in INTEGERS:
        return None
    if not any(stored.scale) and tensor.dtype not in SMALL:
        return None
    require_sound(node, tensor, stored)
    return stored


def require_sound(node: Node, tensor: Tensor, stored: Quantization) -> None:
    """Refuse scales and zero points with which nothing could be computed."""
    limits = np.iinfo(tensor.dtype.numpy)
    wrong = next((scale for scale in stored.scale if not SMALLEST_SCALE <= scale <= LARGEST_SCALE), None)
    if wrong is not None:
        raise ModelError(
            f"{node}: a scale of '{tensor.name}' ({tensor.type}) is {wrong}, expected {SMALLEST_SCALE:g} to "
            f"{LARGEST_SCALE:g}: the file is damaged"
        )
    if not all(limits.min <= zero <= limits.max for zero in stored.zero_point):
        wrong = next(zero for zero in stored.zero_point if not limits.min <= zero <= limits.max)
        raise ModelError(
            f"{node}: a zero point of '{tensor.name}' ({tensor.type}) is {wrong}, expected {limits.min} to {limits.max}: "
            "the file is damaged"
        )


def refuse_meaningless(node: Node, given: Sequence[Quantization | None]) -> None:
    """Bytes without a scale where reals come out."""
    bare = [t for t in node.outputs if t.dtype in SMALL and not (t.quantization and t.quantization.scale)]
    if not bare or not any(given):
        return
    real = [
        known_type(t) if t is None or meaning is None else TensorType(DType.FLOAT32, t.shape)
        for t, meaning in zip(node.inputs, given, strict=True)
    ]
    for tensor, found in zip(node.outputs, node.op.infer_types(real), strict=True):
        if tensor in bare and found.dtype.is_float:
            raise ModelError(
                f"{node}: '{tensor.name}' ({tensor.type}) holds integers that stand for reals, expected a scale: the file is "
                "damaged"
            )


def with_bias(node: Node, given: tuple[Quantization | None, ...]) -> tuple[Quantization | None, ...]:
    """An integer bias without a scale of its own has the product of the input's and the weights'."""
    known = {node.op.input_name(i): quantization for i, quantization in enumerate(given)}
    x, w, bias = known.get("x"), known.get("w"), node.op.pad(node.inputs)[-1]
    if x is None or w is None or bias is None or known.get("b") or node.op.input_name(len(given) - 1) != "b":
        return given
    scale = tuple(x.scale[0] * each for each in w.scale)
    return (*given[:-1], Quantization(scale, (0,) * len(scale)))
