"""A model of integers as its file computes it: for programs that train nothing, on what its weights are rounded to by now.

Training computes in reals on the file's grids, whose sums differ from those of integers in their last bits; that is a step
somewhere, now and then, and many steps some layers later. What a session predicts and judges is what the exported file gives.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circle_train.ir import Buffer, DType, Graph, Node, Quantization, Tensor, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.internal.integers.quantized import Quantized
from circle_train.ops.movement import Movement
from circle_train.ops.numeric.activation import Logistic, LogSoftmax, Softmax
from circle_train.ops.numeric.quantize import Dequantize, Quantize
from circle_train.passes.integers.on_grid import Grid
from circle_train.passes.integers.which import is_learned_on_grid
from circle_train.record import record


@record
class Stored:
    """A parameter, who reads it as such (None: everybody), and whether training moves it."""

    name: str
    root: Tensor
    """Of the loaded module."""
    readers: tuple[int, ...] | None
    moves: bool
    meaning: Quantization | None
    integers: Array | None
    """At present; None: it is floats."""


def hold_stored(graph: Graph, weights: Sequence[Stored]) -> None:
    """Give a graph that is trained on its grids the integers of its weights, instead of masters."""
    if not is_learned_on_grid(graph):
        return
    known: dict[tuple[object, object], list[Stored]] = {}
    for weight in weights:
        if weight.integers is not None:
            known.setdefault((weight.root.buffer, weight.meaning), []).append(weight)
    made: dict[tuple[Tensor, int], Tensor] = {}
    for node in graph.nodes:
        if not isinstance(node.op, Quantized):
            continue
        inputs = list(node.inputs)
        for i, (tensor, meaning) in enumerate(zip(node.inputs, node.op.given, strict=True)):
            if tensor is None or not tensor.is_constant:
                continue
            for weight in known.get((tensor.root().buffer, meaning), ()):
                if weight.readers is None or node.index in weight.readers:
                    key = tensor, id(weight)
                    made[key] = inputs[i] = made.get(key) or _held(tensor, weight)
        graph.reconnect(node, inputs)


def _held(tensor: Tensor, weight: Stored) -> Tensor:
    assert weight.integers is not None
    buffer = Buffer(np.ascontiguousarray(weight.integers).reshape(-1).view(np.uint8))
    return Tensor(
        tensor.name, tensor.type, buffer, quantization=tensor.quantization, origin=tensor, role=tensor.role
    )


def constants_of(graph: Graph, weights: Sequence[Stored]) -> list[Tensor] | None:
    """What of a graph holds these; None where not all of them can be found."""
    roots = {weight.root.buffer for weight in weights}
    found = [t for t in graph.all_tensors() if t.is_constant and t.root().buffer in roots]
    return found if {t.root().buffer for t in found} == roots else None


def as_reals(graph: Graph, outputs: Sequence[Tensor]) -> list[Tensor]:
    """What the integers of these stand for."""
    return [_real(graph, t) for t in outputs]


def as_learned(graph: Graph, outputs: Sequence[Tensor], real: Sequence[Tensor]) -> list[Tensor]:
    """The same as training sees them: behind whatever makes a distribution of reals, which losses are to find."""
    nodes = {node for output in outputs for node in _from_distribution(output)}
    grid = Grid(graph)
    for node in graph.nodes:
        if node in nodes:
            grid.take(node)
    graph.append(*grid.nodes)
    return [grid.reals.get(_before_reals(t), other) for t, other in zip(outputs, real, strict=True)]


def _real(graph: Graph, tensor: Tensor) -> Tensor:
    meaning = tensor.quantization
    if meaning is None or tensor.dtype.is_float:
        return tensor
    made = Tensor(tensor.name, TensorType(DType.FLOAT32, tensor.shape))
    made.shape_signature = tensor.shape_signature
    graph.append(Node(Quantized(Dequantize(), (meaning,), ((DType.FLOAT32, None),)), [tensor], [made]))
    return made


def _before_reals(tensor: Tensor) -> Tensor:
    """Of floats, the integers that they were made of."""
    node = tensor.producer
    is_wide = node is not None and isinstance(node.op, Quantized) and isinstance(node.op.of, Dequantize)
    return node.inputs[0] or tensor if is_wide and node is not None else tensor


def _from_distribution(output: Tensor) -> list[Node]:
    """The SOFTMAX or LOGISTIC that makes an output, and what only moves or rounds its results; of other outputs none."""
    found: list[Node] = []
    tensor: Tensor | None = _before_reals(output)
    while tensor is not None and (node := tensor.producer) is not None:
        found.append(node)
        op = node.op.of if isinstance(node.op, Quantized) else node.op
        if isinstance(op, (Softmax, Logistic, LogSoftmax)) and isinstance(node.op, Quantized):
            return found
        if not isinstance(op, (Movement, Quantize)):
            return []
        tensor = node.inputs[0]
    return []
