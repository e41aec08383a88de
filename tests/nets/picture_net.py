"""A small network for pictures: two convolutions, a mean over places, a classifier of ten classes and a softmax."""

from __future__ import annotations

import numpy as np

import circle_train as ct
from circle_train.ir import DType, Graph, Module, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ops import REGISTRY
from circle_train.ops.layers.conv import Conv2D


def picture_net(size: int = 32) -> ct.Model:
    """Weights are the same at every call."""
    random = np.random.default_rng(3)

    def weights(*shape: int) -> Tensor:
        fan = int(np.prod(shape[1:]))
        return constant(
            random.normal(0, (2 / fan) ** 0.5, shape).astype(np.float32), f"w{len(shape)}{shape[0]}"
        )

    def bias(count: int) -> Tensor:
        return constant(np.zeros(count, np.float32), f"b{count}")

    graph = Graph("main")
    x = Tensor("picture", TensorType(DType.FLOAT32, (1, size, size, 3)))
    x.shape_signature = (-1, size, size, 3)
    graph.inputs = [x]
    for count, taken in ((16, 3), (32, 16)):
        x = graph.emit(Conv2D(stride_h=2, stride_w=2), x, weights(count, 3, 3, taken), bias(count))
        x = graph.emit(REGISTRY["RELU"](), x)
    x = graph.emit(REGISTRY["MEAN"](), x, constant(np.array([1, 2], np.int32), "axes"))
    x = graph.emit(REGISTRY["FULLY_CONNECTED"](), x, weights(10, 32), bias(10))
    graph.outputs = [graph.emit(REGISTRY["SOFTMAX"](), x)]
    for index, node in enumerate(graph.nodes):
        node.index = index
    module = Module([graph], identifier="TFL3")
    return ct.Model(ct.format.read(ct.format.write(module)))
