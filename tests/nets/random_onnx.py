"""Random small ONNX networks for classification, of kinds that ONNX Runtime could train."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

Rng = np.random.Generator
CLASSES = 4


class Net:
    """Nodes and initializers under construction; every method returns the name of its result."""

    def __init__(self, rng: Rng) -> None:
        self.rng = rng
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.weights: list[str] = []
        """The initializers that may be trained."""

    def node(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        names = [f"{op.lower()}{len(self.nodes)}{'' if i == 0 else f'_{i}'}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        return names[0]

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        name = f"c{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def weight(self, *shape: int) -> str:
        name = f"w{len(self.initializers)}"
        scale = 1 / np.sqrt(max(np.prod(shape[1:]), 2))
        value = self.rng.uniform(-scale, scale, shape).astype(np.float32)
        self.initializers.append(numpy_helper.from_array(value, name))
        self.weights.append(name)
        return name

    def choice(self, *options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def activation(self, x: str) -> str:
        return self.node(self.choice("Relu", "Sigmoid", "Tanh", "LeakyRelu"), x)

    def dense(self, x: str, inputs: int, outputs: int) -> str:
        return self.node("Gemm", x, self.weight(outputs, inputs), self.weight(outputs), transB=1)

    def model(self, shape: tuple[int, ...], output: str) -> ModelProto:
        self.nodes.append(helper.make_node("Identity", [output], ["scores"]))
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, *shape])]
        outputs = [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [4, CLASSES])]
        graph = helper.make_graph(self.nodes, "random", inputs, outputs, self.initializers)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


def convolutional(net: Net) -> tuple[tuple[int, ...], str]:
    """Convolutions of every kind, a residual connection, pools, a dense layer."""
    channels, x = 2, "x"
    for _ in range(int(net.rng.integers(1, 4))):
        size, stride = net.choice(1, 3), net.choice(1, 1, 2)
        is_depthwise = bool(net.rng.integers(0, 3) == 0)
        wider = channels if is_depthwise else net.choice(4, 6, 8)
        groups = channels if is_depthwise else 1
        weights = [net.weight(wider, channels // groups, size, size), net.weight(wider)]
        pads = [size // 2] * 4
        x = net.node("Conv", x, *weights, pads=pads, strides=[stride, stride], group=groups)
        channels = wider
        if net.rng.integers(2):
            same = net.node("Conv", x, net.weight(channels, channels, 1, 1))
            x = net.node("Add", net.activation(same), x)
        x = net.activation(x)
    if net.rng.integers(2):
        x = net.node(net.choice("MaxPool", "AveragePool"), x, kernel_shape=[2, 2], strides=[1, 1])
    x = net.node("Flatten", net.node("GlobalAveragePool", x))
    return (2, 9, 9), net.dense(x, channels, CLASSES)


def attention(net: Net) -> tuple[tuple[int, ...], str]:
    """Layers of self-attention and a feed-forward part, each with a normalisation written out."""
    length, width = 5, 8
    x = net.node("MatMul", "x", net.weight(6, width))
    for _ in range(int(net.rng.integers(1, 3))):
        q, k, v = (net.node("MatMul", x, net.weight(width, width)) for _ in range(3))
        scores = net.node("MatMul", q, net.node("Transpose", k, perm=[0, 2, 1]))
        scores = net.node("Mul", scores, net.constant(width**-0.5))
        mixed = net.node("MatMul", net.node("Softmax", scores, axis=-1), v)
        x = normalised(net, net.node("Add", x, mixed), width)
        hidden = net.node("Add", net.node("MatMul", x, net.weight(width, 12)), net.weight(12))
        hidden = net.activation(hidden) if net.rng.integers(2) else gelu(net, hidden)
        x = normalised(net, net.node("Add", x, net.node("MatMul", hidden, net.weight(12, width))), width)
    return (length, 6), net.dense(net.node("ReduceMean", x, axes=[1], keepdims=0), width, CLASSES)


def normalised(net: Net, x: str, width: int) -> str:
    centred = net.node("Sub", x, net.node("ReduceMean", x, axes=[-1]))
    square = net.node("ReduceMean", net.node("Mul", centred, centred), axes=[-1])
    deviation = net.node("Sqrt", net.node("Add", square, net.constant(1e-5)))
    scaled = net.node("Mul", net.node("Div", centred, deviation), net.weight(width))
    return net.node("Add", scaled, net.weight(width))


def gelu(net: Net, x: str) -> str:
    error = net.node("Erf", net.node("Div", x, net.constant(np.sqrt(2))))
    return net.node("Mul", net.node("Mul", x, net.node("Add", error, net.constant(1.0))), net.constant(0.5))


def recurrent(net: Net) -> tuple[tuple[int, ...], str]:
    """LSTM or GRU over time with initial states of its own, and a dense layer on the last state."""
    length, inputs, hidden = 6, 3, net.choice(4, 5)
    op = net.choice("LSTM", "GRU")
    gates = 4 if op == "LSTM" else 3
    weights = [
        net.weight(1, gates * hidden, inputs),
        net.weight(1, gates * hidden, hidden),
        net.weight(1, 2 * gates * hidden),
    ]
    start = net.constant(np.zeros((1, 4, hidden)))
    states = [start, start] if op == "LSTM" else [start]
    settings = {"linear_before_reset": 1} if op == "GRU" else {}
    time_first = net.node("Transpose", "x", perm=[1, 0, 2])
    sequence = net.node(
        op,
        time_first,
        *weights,
        "",
        *states,
        outputs=3 if op == "LSTM" else 2,
        hidden_size=hidden,
        **settings,
    )
    states_of = net.node("Squeeze", sequence, net.constant([1], np.int64))
    if net.rng.integers(2):
        last = net.node("Gather", states_of, net.constant(length - 1, np.int64), axis=0)
    else:
        last = net.node("ReduceMean", states_of, axes=[0], keepdims=0)
    return (length, inputs), net.dense(last, hidden, CLASSES)


KINDS = (convolutional, attention, recurrent)


def network(seed: int) -> tuple[ModelProto, list[str], tuple[int, ...]]:
    """A model, the names of its weights, and the shape of one sample."""
    net = Net(np.random.default_rng(seed))
    shape, output = KINDS[seed % len(KINDS)](net)
    return net.model(shape, output), net.weights, shape
