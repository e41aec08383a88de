"""Compares a converted module with the ONNX model that it came from, on random inputs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from circle_train.convert.movement import inverse
from circle_train.convert.provenance import CHANNELS_LAST, METADATA
from circle_train.errors import ConversionError
from circle_train.ir import Graph, Module, Tensor
from circle_train.ir.tensor_type import Array

CHANNELS_FIRST = (0, 3, 1, 2)


def verify(source: Any, module: Module, seed: int) -> dict[str, float]:
    """One random input through the referee and through our reference operators."""
    graph = module.main
    random = np.random.default_rng(seed)
    feeds = {tensor.name: _random(tensor, random) for tensor in graph.inputs}
    turned = _turned(module)
    back = inverse(CHANNELS_FIRST)
    given = {
        name: value.transpose(CHANNELS_FIRST) if name in turned else value for name, value in feeds.items()
    }
    names = [tensor.name for tensor in graph.outputs]
    differences = {}
    for name, ours, theirs in zip(names, evaluate(graph, feeds), _refer(source, names, given), strict=True):
        expected = np.asarray(theirs).transpose(back) if name in turned else np.asarray(theirs)
        if ours.shape != expected.shape:
            raise ConversionError(
                f"output '{name}' has shape {ours.shape}, the ONNX model gives {expected.shape}; report this"
            )
        differences[name] = difference(ours, expected)
    return differences


def difference(ours: Array, expected: Array) -> float:
    """The largest distance, relative to the largest value; equal infinities and NaNs are no distance."""
    one, two = np.asarray(ours, np.float64), np.asarray(expected, np.float64)
    with np.errstate(invalid="ignore"):
        gap = np.where((one == two) | (np.isnan(one) & np.isnan(two)), 0, np.abs(one - two))
    magnitude = float(np.abs(two[np.isfinite(two)]).max(initial=0))
    largest = float(gap.max(initial=0))
    return (np.inf if np.isnan(largest) else largest) / max(magnitude, 1e-6)


def _turned(module: Module) -> set[str]:
    """Inputs and outputs that were made channels last."""
    for note in module.metadata:
        if note.name == METADATA:
            return set(json.loads(note.buffer.bytes.tobytes()).get(CHANNELS_LAST, ()))
    return set()


def evaluate(graph: Graph, feeds: Mapping[str, Array]) -> list[Array]:
    """The outputs by our reference arithmetic, node after node."""
    values: dict[Tensor, Array] = {tensor: feeds[tensor.name] for tensor in graph.inputs}
    readers = {
        tensor: index
        for index, node in enumerate(graph.nodes)
        for tensor in node.inputs
        if tensor is not None
    }
    kept = set(graph.outputs)
    with np.errstate(all="ignore"):
        for index, node in enumerate(graph.nodes):
            inputs = [_value(t, values) for t in node.inputs]
            values.update(zip(node.outputs, map(np.asarray, node.op.compute(inputs)), strict=True))
            for tensor in node.inputs:
                if tensor is not None and readers[tensor] == index and tensor not in kept:
                    values.pop(tensor, None)
    return [values[tensor] for tensor in graph.outputs]


def _value(tensor: Tensor | None, values: Mapping[Tensor, Array]) -> Array | None:
    if tensor is None or tensor in values:
        return None if tensor is None else values[tensor]
    return tensor.data


def _random(tensor: Tensor, random: np.random.Generator) -> Array:
    """Numbers that any model of this input accepts: floats around zero, small whole numbers."""
    kind = np.dtype(tensor.dtype.numpy)
    if kind.kind == "f":
        return random.standard_normal(tensor.shape).astype(kind)
    return random.integers(0, 2, tensor.shape).astype(kind)


def _refer(source: Any, names: list[str], feeds: Mapping[str, Array]) -> list[Any]:
    """The outputs by onnxruntime, or where that is missing by onnx's reference evaluator."""
    model = source if isinstance(source, bytes) else str(source)
    try:
        import onnxruntime
    except ImportError:
        from onnx.reference import ReferenceEvaluator

        proto: Any = onnx.load_from_string(model) if isinstance(model, bytes) else model
        return list(ReferenceEvaluator(proto).run(names, dict(feeds)))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return list(session.run(names, dict(feeds)))
