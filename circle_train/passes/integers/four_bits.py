"""Constants of four bits, two to a byte in files, a byte each while something is computed."""

from __future__ import annotations

import numpy as np

from circle_train.ir import DType, Graph, Tensor
from circle_train.ir.graph import constant
from circle_train.ir.tensor_type import Array

WIDE = {DType.INT4: np.dtype(np.int8), DType.UINT4: np.dtype(np.uint8)}
"""What holds an element of them."""
LIMITS = {DType.INT4: (-8, 7), DType.UINT4: (0, 15)}


def unpack_four_bits(graph: Graph) -> None:
    """Every such constant that has a scale becomes one of whole bytes, which knows its origin."""
    wide: dict[Tensor, Tensor] = {}
    for node in graph.nodes:
        packed = [t for t in node.inputs if t is not None and _is_packed(t)]
        for tensor in packed:
            if tensor not in wide:
                made = constant(unpacked(tensor), tensor.name)
                made.origin, made.role, made.quantization = tensor, tensor.role, tensor.quantization
                wide[tensor] = made
        if packed:
            inputs = [wide.get(t, t) if t is not None else None for t in node.inputs]
            graph.reconnect(node, inputs)


def _is_packed(tensor: Tensor) -> bool:
    return tensor.dtype in WIDE and tensor.is_constant and tensor.quantization is not None


def unpacked(tensor: Tensor) -> Array:
    """The low half of each byte first."""
    assert tensor.buffer is not None
    stored = tensor.buffer.bytes
    halves = np.stack([stored & 15, stored >> 4], axis=1).reshape(-1)[: tensor.type.size]
    if tensor.dtype is DType.INT4:
        halves = (halves ^ 8).view(np.int8) - np.int8(8)
    return halves.astype(WIDE[tensor.dtype]).reshape(tensor.shape)


def packed(values: Array) -> Array:
    """Whole bytes as a file holds them."""
    halves = np.zeros(-(-values.size // 2) * 2, np.uint8)
    halves[: values.size] = values.reshape(-1).view(np.uint8) & 15
    return halves[::2] | (halves[1::2] << 4)
