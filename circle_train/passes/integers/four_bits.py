"""Constants of four bits, two to a byte in files and in memory, a byte each while somebody looks at them."""

from __future__ import annotations

import numpy as np

from circle_train.ir import DType, Graph, Tensor, TensorType
from circle_train.ir.remade import Remade
from circle_train.ir.tensor_type import Array

WIDE = {DType.INT4: np.dtype(np.int8), DType.UINT4: np.dtype(np.uint8)}
"""What holds an element of them."""
LIMITS = {DType.INT4: (-8, 7), DType.UINT4: (0, 15)}


class Unpacked(Remade):
    """A byte for each element of a packed constant, there for as long as somebody holds it: an engine has panels of its own."""

    __slots__ = ("_source",)

    def __init__(self, source: Tensor) -> None:
        super().__init__()
        self._source = source

    def make(self) -> Array:
        return unpacked(self._source)

    @property
    def nbytes(self) -> int:
        return self._source.type.size

    @property
    def behind(self) -> Array:
        assert self._source.buffer is not None
        return self._source.buffer.behind


def unpack_four_bits(graph: Graph) -> None:
    """Every such constant that has a scale becomes one of whole bytes, which knows its origin."""
    wide: dict[Tensor, Tensor] = {}
    for node in graph.nodes:
        packed = [t for t in node.inputs if t is not None and _is_packed(t)]
        for tensor in packed:
            if tensor not in wide:
                whole = TensorType(DType.of(WIDE[tensor.dtype]), tensor.shape)
                made = Tensor(tensor.name, whole, Unpacked(tensor))
                made.origin, made.role, made.quantization = tensor, tensor.role, tensor.quantization
                wide[tensor] = made
        if packed:
            inputs = [wide.get(t, t) if t is not None else None for t in node.inputs]
            graph.reconnect(node, inputs)


def _is_packed(tensor: Tensor) -> bool:
    return tensor.dtype in WIDE and tensor.is_constant and tensor.quantization is not None


def unpacked(tensor: Tensor) -> Array:
    """The low half of each byte first; an array that owns its memory."""
    assert tensor.buffer is not None
    stored, found = tensor.buffer.bytes, np.empty(tensor.shape, WIDE[tensor.dtype])
    flat = found.reshape(-1).view(np.uint8)
    flat[::2], flat[1::2] = stored[: -(-flat.size // 2)] & 15, stored[: flat.size // 2] >> 4
    if tensor.dtype is DType.INT4:
        flat ^= 8
        found -= 8
    return found


def packed(values: Array) -> Array:
    """Whole bytes as a file holds them."""
    halves = np.zeros(-(-values.size // 2) * 2, np.uint8)
    halves[: values.size] = values.reshape(-1).view(np.uint8) & 15
    return halves[::2] | (halves[1::2] << 4)
