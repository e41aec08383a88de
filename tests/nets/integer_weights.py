"""Files of one operator whose weights are integers, and what LiteRT makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from circle_train import format
from circle_train.ir import Buffer, DType, Graph, Module, Quantization, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ir.tensor_type import Array
from circle_train.ops import REGISTRY
from circle_train.passes.integers.four_bits import packed
from circle_train.runtime.litert import for_litert

RNG = np.random.default_rng(0)


def meaning(*scale: float, zero: int = 0) -> Quantization:
    """Scales as files hold them."""
    return Quantization(tuple(float(np.float32(s)) for s in scale), (zero,) * len(scale))


def held(shape: Sequence[int], scales: int, bits: int, axis: int = 0) -> Tensor:
    """Weights of 8 or 4 bits; of 8 with signs that the file does not speak of, if -8 are asked for."""
    bits, is_called_unsigned = abs(bits), bits < 0
    most = (1 << (bits - 1)) - 1
    codes = RNG.integers(-most, most + 1, shape).astype(np.int8)
    tensor = constant(codes, "w")
    if bits == 4:
        tensor = Tensor("w", TensorType(DType.INT4, tuple(shape)), Buffer(packed(codes)))
    if is_called_unsigned:
        tensor.type = TensorType(DType.UINT8, tensor.shape)
    about = meaning(*(0.127 / most * (1 + i % 5) for i in range(scales)))
    tensor.quantization = replace(about, axis=axis)
    return tensor


def stored(
    name: str, fed: Sequence[int], weights: Sequence[int], scales: int, bits: int = 8, **options: Any
) -> bytes:
    """A .tflite file of one operator between floats."""
    graph = Graph("main", [Tensor("x", TensorType(DType.FLOAT32, tuple(fed)))])
    axis = 3 if name == "DEPTHWISE_CONV_2D" else 0
    b = constant(RNG.normal(size=weights[axis]).astype(np.float32), "b")
    like = constant(np.zeros(weights, np.float32), "w")
    y = graph.emit(REGISTRY[name](**options), graph.inputs[0], like, b, name="y")
    return _file(graph, y, held(weights, scales, bits, axis), b)


def in_integers(fed: Sequence[int], weights: Sequence[int], scales: int, bits: int) -> bytes:
    """A FULLY_CONNECTED of int8, weights of so many bits."""
    graph = Graph("main", [Tensor("x", TensorType(DType.FLOAT32, tuple(fed)))])
    w, b = held(weights, scales, bits), constant(RNG.integers(-300, 300, weights[0]).astype(np.int32), "b")
    assert w.quantization is not None
    b.quantization = meaning(*(s * np.float32(0.05) for s in w.quantization.scale))
    like = [constant(np.zeros(shape, np.float32), "zeros") for shape in (weights, weights[:1])]
    y = graph.emit(REGISTRY["FULLY_CONNECTED"](), graph.inputs[0], *like, name="y")
    for tensor, scale, zero in ((graph.inputs[0], 0.05, 3), (y, 0.1, -5)):
        tensor.type, tensor.quantization = TensorType(DType.INT8, tensor.shape), meaning(scale, zero=zero)
    return _file(graph, y, w, b)


def _file(graph: Graph, y: Tensor, w: Tensor, b: Tensor) -> bytes:
    assert y.producer is not None and w.buffer is not None and b.buffer is not None
    graph.reconnect(y.producer, [graph.inputs[0], w, b])
    graph.outputs = [y]
    return format.write(for_litert(Module([graph], [Buffer(), w.buffer, b.buffer])), "TFL3")


def by_litert(model: bytes, x: Array) -> Array:
    runtime = pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
    interpreter = runtime.Interpreter(model_content=model, num_threads=1)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
    interpreter.invoke()
    made: Array = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    return made
