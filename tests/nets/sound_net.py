"""A small network for sounds: samples in rows of four hundred, filters over each row, their mean loudness, a classifier."""

from __future__ import annotations

import numpy as np

import circle_train as ct
from circle_train.ir import DType, Graph, Module, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ops import REGISTRY

SAMPLES, ROW = 16_000, 400


def sound_net() -> ct.Model:
    """Filters are sines of many pitches; the same at every call."""
    pitches = np.linspace(100, 4000, 32)
    moments = np.arange(ROW) / SAMPLES
    waves = [f(2 * np.pi * pitch * moments) for pitch in pitches for f in (np.sin, np.cos)]
    filters = np.array(waves, np.float32).reshape(-1, 1, 1, ROW) / np.float32(20)
    graph = Graph("main")
    x = Tensor("samples", TensorType(DType.FLOAT32, (1, SAMPLES)))
    x.shape_signature = (-1, SAMPLES)
    graph.inputs = [x]
    shape = (-1, SAMPLES // ROW, 1, ROW)
    x = graph.emit(REGISTRY["RESHAPE"](new_shape=shape), x, constant(np.array(shape, np.int32), "rows"))
    x = graph.emit(
        REGISTRY["CONV_2D"](), x, constant(filters, "filters"), constant(np.zeros(64, np.float32), "b")
    )
    x = graph.emit(REGISTRY["SQUARE"](), x)
    x = graph.emit(REGISTRY["MEAN"](), x, constant(np.array([1, 2], np.int32), "axes"))
    weights = np.random.default_rng(3).normal(0, 0.1, (5, 64)).astype(np.float32)
    x = graph.emit(
        REGISTRY["FULLY_CONNECTED"](), x, constant(weights, "w"), constant(np.zeros(5, np.float32), "c")
    )
    graph.outputs = [graph.emit(REGISTRY["SOFTMAX"](), x)]
    for index, node in enumerate(graph.nodes):
        node.index = index
    return ct.Model(ct.format.read(ct.format.write(Module([graph], identifier="TFL3"))))
