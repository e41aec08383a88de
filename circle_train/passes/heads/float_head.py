"""The last operators of an integer model in float, so that they can be trained on what the frozen rest computes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from circle_train.errors import ConfigError
from circle_train.ir import Buffer, DType, Graph, Node, Quantization, Tensor, TensorType
from circle_train.ops.numeric.quantize import Dequantize, Quantize, dequantize
from circle_train.passes.integers.quantized import quantization_of, with_bias


def make_float_head(graph: Graph, count: int) -> None:
    """Dequantize what enters the last operators and what they hold; the others stay as they are."""
    nodes = sorted(graph.nodes, key=lambda node: node.index)
    if not 1 <= count <= len(nodes):
        raise ConfigError(
            f"with_float_head: {count} operators, expected 1 … {len(nodes)}, as many as there are"
        )
    head = _Head(nodes[:-count])
    meanings = [_meanings(node) for node in nodes[-count:]]  # of all, before the first becomes float
    if not any(map(any, meanings)):
        raise ConfigError(
            f"with_float_head({count}): the last operators hold no integers that stand for floats; train them as they are, "
            "or give a larger number"
        )
    for node, meaning in zip(nodes[-count:], meanings, strict=True):
        head.add(node, meaning)
    graph.nodes = [replace(node, index=index) for index, node in enumerate(head.nodes)]
    graph.outputs = [head.floats.get(tensor, tensor) for tensor in graph.outputs]


def _meanings(node: Node) -> tuple[Quantization | None, ...]:
    return with_bias(node, tuple(quantization_of(node, tensor) for tensor in node.inputs))


class _Head:
    """The nodes so far, and the float twins of integer tensors."""

    def __init__(self, body: list[Node]) -> None:
        self.nodes = list(body)
        self.floats: dict[Tensor, Tensor] = {}

    def add(self, node: Node, meanings: tuple[Quantization | None, ...]) -> None:
        inputs = [self._real(*pair) for pair in zip(node.inputs, meanings, strict=True)]
        if isinstance(node.op, (Quantize, Dequantize)) and inputs[0] is not None and inputs[0].dtype.is_float:
            self.floats[node.outputs[0]] = inputs[0]
            return
        for tensor in node.outputs:
            if quantization_of(node, tensor) is not None:
                tensor.type, tensor.quantization = TensorType(DType.FLOAT32, tensor.shape), None
        self.nodes.append(replace(node, inputs=inputs))

    def _real(self, tensor: Tensor | None, meaning: Quantization | None) -> Tensor | None:
        """The tensor itself if it holds plain numbers; else what they stand for, as a constant or computed."""
        if tensor is None or meaning is None or tensor.dtype.is_float:
            return tensor if tensor is None else self.floats.get(tensor, tensor)
        if tensor in self.floats:
            return self.floats[tensor]
        real = self.floats[tensor] = Tensor(f"{tensor.name}:float", TensorType(DType.FLOAT32, tensor.shape))
        real.shape_signature = tensor.shape_signature
        if tensor.is_constant:
            real.name = tensor.name
            real.buffer = Buffer(
                np.ascontiguousarray(dequantize(tensor.data, meaning)).reshape(-1).view(np.uint8)
            )
        else:
            self.nodes.append(Node(Dequantize(), [tensor], [real]))
        return real
