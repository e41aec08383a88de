"""Shapes that a file computes hold for any batch."""

from __future__ import annotations

import numpy as np

import circle_train as ct
from circle_train import format
from circle_train.ir import Buffer, DType, Graph, Module, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ops import REGISTRY


def test_a_reshape_to_a_computed_shape_takes_other_batches() -> None:
    graph = Graph("main", [Tensor("x", TensorType(DType.FLOAT32, (1, 6)), shape_signature=(-1, 6))])
    (x,) = graph.inputs
    shape = graph.emit(REGISTRY["SHAPE"](), x)
    zero, one = (constant(np.array([n], np.int32), f"n{n}") for n in (0, 1))
    batch = graph.emit(REGISTRY["SLICE"](), shape, zero, one)
    rest = constant(np.array([2, 3], np.int32), "rest")
    sizes = graph.emit(REGISTRY["CONCATENATION"](axis=0), batch, rest)
    graph.outputs = [graph.emit(REGISTRY["RESHAPE"](), graph.emit(REGISTRY["ABS"](), x), sizes)]
    for tensor in graph.all_tensors():
        if tensor.buffer is None and tensor.shape[:1] == (1,) and tensor is not batch:
            tensor.shape_signature = (-1, *tensor.shape[1:])
    buffers = dict.fromkeys(t.buffer for t in graph.all_tensors() if t.buffer is not None)
    model = ct.load(format.write(Module([graph], [Buffer(), *buffers])))
    for n in (1, 3):
        assert ct.InferenceSession(model)(np.ones((n, 6), np.float32)).shape == (n, 2, 3)


def test_the_first_of_an_open_axis_stays_the_first() -> None:
    graph = Graph("main", [Tensor("x", TensorType(DType.FLOAT32, (1, 1)), shape_signature=(-1, -1))])
    begin, size = (constant(np.array(n, np.int32), f"n{n[1]}") for n in ([0, 0], [-1, 1]))
    y = graph.emit(REGISTRY["SLICE"](), graph.inputs[0], begin, size)
    y.shape_signature = (-1, 1)
    graph.outputs = [y]
    buffers = dict.fromkeys(t.buffer for t in graph.all_tensors() if t.buffer is not None)
    model = ct.load(format.write(Module([graph], [Buffer(), *buffers])))
    infer = ct.InferenceSession(model, backend="reference")
    np.testing.assert_array_equal(infer(np.arange(3, dtype=np.float32).reshape(1, 3)), [[0]])
    np.testing.assert_array_equal(infer(np.arange(6, dtype=np.float32).reshape(2, 3)), [[0], [3]])
