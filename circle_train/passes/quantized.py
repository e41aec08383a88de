"""Run operators on quantized tensors by real arithmetic."""

from __future__ import annotations

from circle_train.errors import UnsupportedOpError
from circle_train.ir import DType, Graph, Node, Quantization, Tensor
from circle_train.ops.attributes import Activation
from circle_train.ops.internal.quantized import Quantized
from circle_train.ops.movement import Movement
from circle_train.ops.opaque import Opaque

INTEGERS = (DType.INT8, DType.UINT8, DType.INT16, DType.UINT16, DType.INT32, DType.INT64)
PACKED = (DType.INT4, DType.UINT4)


def run_quantized(graph: Graph) -> None:
    """Wrap every operator that reads or writes a quantized tensor; the tensors keep their integers.

    What only moves integers that mean the same on both sides needs no meaning.
    """
    for node in graph.nodes:
        if isinstance(node.op, (Opaque, Quantized)):
            continue
        given = tuple(quantization_of(node, tensor) for tensor in node.inputs)
        made = tuple((tensor.dtype, quantization_of(node, tensor)) for tensor in node.outputs)
        if only_moves(node, {*given, *(quantization for _, quantization in made)} - {None}):
            continue
        if any(given) or any(quantization for _, quantization in made):
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
            f"{node}: {tensor} packs two elements into a byte, which is not computed; "
            "export the model with 8 bit or float weights"
        )
    stored = tensor.quantization
    return stored if stored is not None and stored.scale and tensor.dtype in INTEGERS else None


def with_bias(node: Node, given: tuple[Quantization | None, ...]) -> tuple[Quantization | None, ...]:
    """An integer bias without a scale of its own has the product of the input's and the weights'."""
    known = {node.op.input_name(i): quantization for i, quantization in enumerate(given)}
    x, w, bias = known.get("x"), known.get("w"), node.op.pad(node.inputs)[-1]
    if x is None or w is None or bias is None or known.get("b") or node.op.input_name(len(given) - 1) != "b":
        return given
    scale = tuple(x.scale[0] * each for each in w.scale)
    return (*given[:-1], Quantization(scale, (0,) * len(scale)))
