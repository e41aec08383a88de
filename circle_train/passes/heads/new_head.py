"""A new classifier where the old one ends: found from the outputs backwards, else put on the pooled last features."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from circle_train.errors import ConfigError
from circle_train.ir import DType, Graph, Node, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ops.base import Op
from circle_train.ops.layers.conv import Conv2D
from circle_train.ops.layers.linear import FullyConnected
from circle_train.ops.layers.pool import AveragePool2D
from circle_train.ops.numeric.activation import Logistic, LogSoftmax, Relu, Softmax
from circle_train.ops.numeric.arithmetic import Add
from circle_train.ops.numeric.quantize import Dequantize, Quantize
from circle_train.ops.numeric.reduce import Mean
from circle_train.ops.shapes.shape import Reshape, Squeeze
from circle_train.passes.dead import drop_dead_nodes
from circle_train.passes.integers.quantized import quantization_of

BEHIND = (
    Softmax,
    LogSoftmax,
    Logistic,
    Relu,
    Reshape,
    Squeeze,
    Add,
    AveragePool2D,
    Mean,
    Quantize,
    Dequantize,
)
"""What may stand between a classifier and the output."""
SCORES: dict[str, Op | None] = {"softmax": Softmax(), "sigmoid": Logistic(), "values": None}
"""What follows the new layer, by what its outputs are to be."""


def make_head(graph: Graph, outputs: int, scores: str) -> None:
    """The graph's only output comes from a new FULLY_CONNECTED layer, whose weights are zeros: it starts without an opinion."""
    features, count, old = features_of(graph)
    rows = _in_float(graph, features)
    if any(size != 1 for size in rows.shape[1:-1]) and count == rows.shape[-1]:
        spatial = constant(np.arange(1, len(rows.shape) - 1, dtype=np.int32), "head/axes")
        rows = graph.emit(Mean(keep_dims=False), rows, spatial, name="head/pooled")
    weights = constant(np.zeros((outputs, count), np.float32), "head/weights")
    bias = constant(np.zeros(outputs, np.float32), "head/bias")
    last = graph.emit(FullyConnected(), rows, weights, bias, name="head/logits")
    if (op := SCORES[scores]) is not None:
        last = graph.emit(op, last, name="head/scores")
    last.name = old.name
    graph.outputs = [last]
    drop_dead_nodes(graph)
    made: Tensor | None = last
    while made is not None and made is not features and made.producer is not None:
        made.shape_signature = (-1, *made.shape[1:])
        made = made.producer.inputs[0]
    for index, node in enumerate(graph.nodes):
        node.index = index


def features_of(graph: Graph) -> tuple[Tensor, int, Tensor]:
    """What the first classifier reads, in rows of how many, and the output that it leads to; without one an output's own."""
    for output in graph.outputs:
        if (classifier := _classifier(output)) is not None:
            features, weights = classifier.inputs[:2]
            assert features is not None and weights is not None
            return features, weights.shape[-1], output
    for output in graph.outputs:
        holds_numbers = output.dtype.is_float or output.quantization is not None
        if holds_numbers and len(output.shape) > 1 and output.shape[-1] > 0:
            return output, output.shape[-1], output
    found = ", ".join(f"'{t.name}' of {t.type}" for t in graph.outputs) or "none"
    raise ConfigError(
        f"with_head: no output can carry a new head ({found}), expected rows or maps of features; "
        "give the model another output first"
    )


def _classifier(output: Tensor) -> Node | None:
    """The layer with weights behind an output."""
    for node in _backwards(output):
        if isinstance(node.op, FullyConnected | Conv2D):
            weights = node.inputs[1]
            assert weights is not None
            return node if weights.is_constant else None
        if not isinstance(node.op, BEHIND):
            return None
    return None


def _backwards(tensor: Tensor | None) -> Iterator[Node]:
    """Makers, along the operand that is no constant."""
    while tensor is not None and tensor.producer is not None:
        node = tensor.producer
        yield node
        computed = [t for t in node.inputs if t is not None and t.buffer is None]
        tensor = computed[0] if len(computed) == 1 else None


def _in_float(graph: Graph, features: Tensor) -> Tensor:
    """The features as real numbers."""
    maker = features.producer
    if features.dtype.is_float or (maker is not None and quantization_of(maker, features) is None):
        return features
    real = Tensor("head/features", TensorType(DType.FLOAT32, features.shape))
    graph.append(Node(Dequantize(), [features], [real]))
    return real
