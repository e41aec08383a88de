"""Small models that tests build by hand."""

from __future__ import annotations

import numpy as np

from circle_train.ir import DType, Graph, Module, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.model import Model
from circle_train.ops import REGISTRY, Op
from circle_train.ops.attributes import Activation, Padding


def make(name: str, **options: object) -> Op:
    """An operator by Circle's name."""
    return REGISTRY[name](**options)


def new_input(name: str, *shape: int, dtype: DType = DType.FLOAT32) -> Tensor:
    return Tensor(name, TensorType(dtype, shape), shape_signature=(-1, *shape[1:]))


def weight(name: str, *shape: int, seed: int = 0) -> Tensor:
    scale = np.sqrt(1.0 / max(int(np.prod(shape[1:])), 1))
    return constant(
        (np.random.default_rng([seed, *shape]).normal(size=shape) * scale).astype(np.float32), name
    )


def finish(graph: Graph, *outputs: Tensor) -> Model:
    """Number the operators and wrap the graph."""
    graph.outputs.extend(outputs)
    for index, node in enumerate(graph.nodes):
        node.index = index
    return Model(Module([graph]))


def mlp(inputs: int = 6, hidden: int = 8, classes: int = 4, softmax: bool = True) -> Model:
    """Two dense layers, the first with RELU, and a softmax."""
    graph = Graph("mlp", [new_input("x", 1, inputs)])
    relu = make("FULLY_CONNECTED", fused_activation_function=Activation.RELU)
    x = graph.emit(
        relu, graph.inputs[0], weight("fc0/w", hidden, inputs), weight("fc0/b", hidden), name="fc0"
    )
    x = graph.emit(
        make("FULLY_CONNECTED"), x, weight("fc1/w", classes, hidden), weight("fc1/b", classes), name="fc1"
    )
    if softmax:
        x = graph.emit(make("SOFTMAX", beta=1.0), x, name="softmax")
    return finish(graph, x)


def cnn() -> Model:
    """conv, depthwise, pool, mean, dense: every kind of kernel once."""
    graph = Graph("cnn", [new_input("image", 1, 9, 9, 3)])
    conv = make(
        "CONV_2D", padding=Padding.SAME, stride_h=2, stride_w=2, fused_activation_function=Activation.RELU6
    )
    x = graph.emit(conv, graph.inputs[0], weight("conv/w", 8, 3, 3, 3), weight("conv/b", 8), name="conv")
    depthwise = make("DEPTHWISE_CONV_2D", padding=Padding.SAME, stride_h=1, stride_w=1, depth_multiplier=1)
    x = graph.emit(depthwise, x, weight("dw/w", 1, 3, 3, 8), weight("dw/b", 8), name="dw")
    pool = make("MAX_POOL_2D", padding=Padding.VALID, stride_h=2, stride_w=2, filter_height=2, filter_width=2)
    x = graph.emit(pool, x, name="pool")
    x = graph.emit(
        make("MEAN", keep_dims=False), x, constant(np.array([1, 2], np.int32), "axes"), name="mean"
    )
    x = graph.emit(make("FULLY_CONNECTED"), x, weight("fc/w", 5, 8), weight("fc/b", 5), name="fc")
    return finish(graph, x)


def two_headed() -> Model:
    """One hidden layer and two outputs of different widths."""
    graph = Graph("two", [new_input("x", 1, 6)])
    tanh = make("FULLY_CONNECTED", fused_activation_function=Activation.TANH)
    x = graph.emit(tanh, graph.inputs[0], weight("fc/w", 7, 6), weight("fc/b", 7), name="fc")
    first = graph.emit(make("FULLY_CONNECTED"), x, weight("a/w", 3, 7), weight("a/b", 3), name="a")
    second = graph.emit(make("FULLY_CONNECTED"), x, weight("b/w", 2, 7), weight("b/b", 2), name="b")
    return finish(graph, first, second)


def tied() -> Model:
    """One weight tensor used twice, and two biases of different tensors over one buffer."""
    graph = Graph("tied", [new_input("x", 1, 6)])
    w, first = weight("w", 6, 6), weight("b0", 6)
    second = Tensor("b1", first.type, first.buffer)
    tanh = make("FULLY_CONNECTED", fused_activation_function=Activation.TANH)
    x = graph.emit(tanh, graph.inputs[0], w, first, name="one")
    x = graph.emit(make("FULLY_CONNECTED"), x, w, second, name="two")
    return finish(graph, x)
