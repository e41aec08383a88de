"""Small int8 models as files have them: scales of their own for every tensor, int32 biases."""

from __future__ import annotations

from typing import Any

import numpy as np

import circle_train as ct
from circle_train.ir import DType, Graph, Module, Node, Quantization, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ops import REGISTRY
from circle_train.ops.attributes import Activation


def activation(name: str, scale: float, zero: int, *shape: int) -> Tensor:
    """For batches of any size."""
    tensor = Tensor(name, TensorType(DType.INT8, (1, *shape)), quantization=Quantization((scale,), (zero,)))
    tensor.shape_signature = (-1, *shape)
    return tensor


def weights(name: str, x: Tensor, real: Any, axis: int) -> tuple[Tensor, Tensor]:
    """Symmetric with a scale for each output, and a bias in units of the products."""
    others = tuple(i for i in range(real.ndim) if i != axis)
    scale = np.abs(real).max(others, keepdims=True) / 127
    w = constant(np.rint(real / scale).astype(np.int8), name)
    zeros = (0,) * scale.size
    w.quantization = Quantization(tuple(np.float32(scale).ravel().tolist()), zeros, axis)
    assert x.quantization is not None
    b = constant(((np.arange(scale.size) - scale.size // 2) * 40).astype(np.int32), f"{name}:bias")
    b.quantization = Quantization(
        tuple(x.quantization.scale[0] * each for each in w.quantization.scale), zeros
    )
    return w, b


def int8_cnn() -> ct.Model:
    """Convolution, depthwise, a sum, a mean, a dense layer and a softmax over 8 × 8 pictures of 3 classes."""
    rng = np.random.default_rng(3)
    x, first = activation("x", 1 / 128, 0, 8, 8, 3), activation("first", 0.02, -128, 8, 8, 8)
    second, total = activation("second", 0.012, 4, 8, 8, 8), activation("total", 0.025, -20, 8, 8, 8)
    mean, flat = activation("mean", 0.025, -20, 1, 1, 8), activation("flat", 0.025, -20, 8)
    logits, y = activation("logits", 0.03, 5, 3), activation("y", 1 / 256, -128, 3)
    conv = weights("conv", x, rng.normal(0, 0.4, (8, 3, 3, 3)), 0)
    depthwise = weights("depthwise", first, rng.normal(0, 0.3, (1, 3, 3, 8)), 3)
    dense = weights("dense", flat, rng.normal(0, 0.6, (3, 8)), 0)
    shape = constant(np.array([-1, 8], np.int32), "shape")
    pool = {"filter_width": 8, "filter_height": 8, "stride_w": 8, "stride_h": 8}
    made = [
        ("CONV_2D", {"fused_activation_function": Activation.RELU}, [x, *conv], first),
        ("DEPTHWISE_CONV_2D", {}, [first, *depthwise], second),
        ("ADD", {}, [first, second], total),
        ("AVERAGE_POOL_2D", pool, [total], mean),
        ("RESHAPE", {}, [mean, shape], flat),
        ("FULLY_CONNECTED", {}, [flat, *dense], logits),
        ("SOFTMAX", {}, [logits], y),
    ]
    nodes = [
        Node(REGISTRY[name](**options), ins, [out], i) for i, (name, options, ins, out) in enumerate(made)
    ]
    return ct.Model(Module([Graph("main", [x], [y], nodes)]))
