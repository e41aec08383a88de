"""Nodes of random ONNX networks, each computed by its float64 twin in PyTorch as it is added."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from onnx import ModelProto, TensorProto, helper, numpy_helper
from torch.nn import functional

BATCH = 4


@dataclass
class Value:
    """A tensor of the network: its name there, and its twin."""

    name: str
    twin: torch.Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.twin.shape)


@dataclass
class Net:
    """A network under construction."""

    rng: np.random.Generator
    nodes: list[Any] = field(default_factory=list)
    initializers: list[Any] = field(default_factory=list)
    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    """By name: the twins of the initializers that are trained."""
    inputs: dict[str, np.ndarray] = field(default_factory=dict)
    opset: int = 19

    def input(self, *shape: int) -> Value:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = self.rng.normal(size=(BATCH, *shape)).astype(np.float32)
        return Value(name, torch.tensor(self.inputs[name], dtype=torch.float64))

    def weight(self, *shape: int, scale: float | None = None, shift: float = 0.0) -> Value:
        size = scale or 1 / np.sqrt(max(np.prod(shape[1:]), 2))
        array = (self.rng.normal(size=shape) * size + shift).astype(np.float32)
        name = f"w{len(self.weights)}"
        self.initializers.append(numpy_helper.from_array(array, name))
        self.weights[name] = torch.tensor(array, dtype=torch.float64, requires_grad=True)
        return Value(name, self.weights[name])

    def numbers(self, values: Any, dtype: Any = np.int64) -> str:
        name = f"c{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.array(values, dtype), name))
        return name

    def add(
        self, op: str, inputs: list[Value | str], twin: torch.Tensor, outputs: int = 1, **attributes: Any
    ) -> Value:
        """A node and what PyTorch makes of the twins of its inputs."""
        names = [f"{op.lower()}{len(self.nodes)}{'' if not i else f'_{i}'}" for i in range(outputs)]
        given = [value if isinstance(value, str) else value.name for value in inputs]
        self.nodes.append(helper.make_node(op, given, names, **attributes))
        return Value(names[0], twin)

    def pick(self, *options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def integer(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def model(self, outputs: list[Value]) -> ModelProto:
        infos = [
            helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", *a.shape[1:]])
            for n, a in self.inputs.items()
        ]
        ends = [
            helper.make_tensor_value_info(v.name, TensorProto.FLOAT, ["N", *v.shape[1:]]) for v in outputs
        ]
        graph = helper.make_graph(self.nodes, "random", infos, ends, self.initializers)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=9)


ACTIVATIONS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], dict[str, float]]] = {
    "Relu": (torch.relu, {}),
    "Sigmoid": (torch.sigmoid, {}),
    "Tanh": (torch.tanh, {}),
    "LeakyRelu": (lambda x: functional.leaky_relu(x, 0.1), {"alpha": 0.1}),
    "Elu": (functional.elu, {}),
    "Softplus": (functional.softplus, {}),
    "HardSigmoid": (lambda x: (x * 0.2 + 0.5).clamp(0, 1), {}),
    "HardSwish": (functional.hardswish, {}),
    "Selu": (functional.selu, {}),
    "Mish": (functional.mish, {}),
    "Softsign": (functional.softsign, {}),
    "Erf": (torch.erf, {}),
    "Sin": (torch.sin, {}),
    "Abs": (torch.abs, {}),
}


def activated(net: Net, x: Value) -> Value:
    op = net.pick(*ACTIVATIONS)
    twin, attributes = ACTIVATIONS[op]
    return net.add(op, [x], twin(x.twin), **attributes)


def convolution(net: Net, x: Value) -> Value:
    """Grouped, dilated, strided, padded on each side as it comes; in 1 to 3 dimensions."""
    dims, channels = len(x.shape) - 2, x.shape[1]
    groups = net.pick(1, 1, *(g for g in (2, channels) if channels % g == 0))
    outputs = groups * net.integer(1, 4)
    kernel = [net.integer(1, min(3, size)) for size in x.shape[2:]]
    dilations = [
        net.pick(1, 1, 2) if (k - 1) * 2 < size else 1 for k, size in zip(kernel, x.shape[2:], strict=True)
    ]
    strides = [net.pick(1, 1, 2) for _ in kernel]
    before, after = (
        [net.integer(0, (k - 1) * d) for k, d in zip(kernel, dilations, strict=True)] for _ in "ba"
    )
    w = net.weight(outputs, channels // groups, *kernel)
    given, bias = [x, w], None
    if net.pick(True, True, False):
        bias = net.weight(outputs, scale=0.3)
        given.append(bias)
    run = (functional.conv1d, functional.conv2d, functional.conv3d)[dims - 1]
    twin = run(
        padded(x.twin, before, after),
        w.twin,
        None if bias is None else bias.twin,
        strides,
        0,
        dilations,
        groups,
    )
    return net.add(
        "Conv",
        given,
        twin,
        group=groups,
        kernel_shape=kernel,
        dilations=dilations,
        strides=strides,
        pads=[*before, *after],
    )


def padded(x: torch.Tensor, before: list[int], after: list[int], value: float = 0.0) -> torch.Tensor:
    widths = [number for pair in reversed(list(zip(before, after, strict=True))) for number in pair]
    return functional.pad(x, widths, value=value)


def transposed_convolution(net: Net, x: Value) -> Value:
    dims, channels = len(x.shape) - 2, x.shape[1]
    kernel = [net.integer(1, 3) for _ in range(dims)]
    strides = [net.pick(1, 2) for _ in range(dims)]
    pads = [net.integer(0, (k - 1) // 2) for k in kernel]
    w, b = net.weight(channels, net.integer(1, 4), *kernel), None
    b = net.weight(w.shape[1], scale=0.3)
    run = (functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d)[dims - 1]
    twin = run(x.twin, w.twin, b.twin, strides, pads)
    if min(twin.shape) < 1:
        return x
    return net.add(
        "ConvTranspose", [x, w, b], twin, kernel_shape=kernel, strides=strides, pads=[*pads, *pads]
    )


def pooled(net: Net, x: Value) -> Value:
    """Maximum or mean, with ceil_mode and with padding that counts or does not."""
    dims = len(x.shape) - 2
    kernel = [net.integer(1, min(3, size)) for size in x.shape[2:]]
    strides = [net.integer(1, 2) for _ in kernel]
    pads = [net.integer(0, k // 2) for k in kernel]
    sizes = zip(x.shape[2:], kernel, strides, pads, strict=True)
    starts = [-(-(size + 2 * p - k) // s) * s < size + p for size, k, s, p in sizes]
    ceil = all(starts) and net.pick(
        False, True
    )  # of a last window that would begin in the padding others disagree
    common = {"kernel_shape": kernel, "strides": strides, "pads": [*pads, *pads], "ceil_mode": int(ceil)}
    if net.pick(True, False):
        run = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)[dims - 1]
        return net.add("MaxPool", [x], run(x.twin, kernel, strides, pads, ceil_mode=ceil), **common)
    counted = net.pick(False, True)
    mean = (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d)[dims - 1]
    twin = mean(x.twin, kernel, strides, pads, ceil, counted)
    return net.add("AveragePool", [x], twin, count_include_pad=int(counted), **common)


def normalised_channels(net: Net, x: Value) -> Value:
    shape = (1, -1, *[1] * (len(x.shape) - 2))
    gamma, beta = net.weight(x.shape[1], scale=0.2, shift=1.0), net.weight(x.shape[1], scale=0.2)
    if len(x.shape) > 2 and np.prod(x.shape[2:]) > 1 and net.pick(True, False):
        twin = functional.instance_norm(x.twin, weight=gamma.twin, bias=beta.twin, eps=1e-3)
        return net.add("InstanceNormalization", [x, gamma, beta], twin, epsilon=1e-3)
    scaled = net.add("Mul", [x, reshaped(net, gamma, shape)], x.twin * gamma.twin.reshape(shape))
    return net.add("Add", [scaled, reshaped(net, beta, shape)], scaled.twin + beta.twin.reshape(shape))


def reshaped(net: Net, x: Value, shape: tuple[int, ...]) -> Value:
    return net.add("Reshape", [x, net.numbers(shape)], x.twin.reshape(shape))
