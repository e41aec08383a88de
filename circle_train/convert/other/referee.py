"""Compares a converted module with the ONNX model that it came from, on random inputs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx

from circle_train.convert.building.provenance import CHANNELS_LAST, METADATA
from circle_train.convert.onnx_file.importer import read
from circle_train.convert.stages.given import asked_values
from circle_train.errors import ConversionError, ModelError
from circle_train.ir import Graph, Module, Tensor
from circle_train.ir.tensor_type import Array
from circle_train.ops.orders import inverse
from circle_train.passes.batch import set_shapes

CHANNELS_FIRST = (0, 3, 1, 2)
OPEN_SIZES = (12, 96, 512)
"""Tried for sizes that a model leaves open, besides the batch, which is 2."""


def verify(source: Any, module: Module, seed: int, inputs: Mapping[str, Any]) -> dict[str, float]:
    """One random input through the referee and through our reference operators; open sizes larger than 1."""
    turned = _turned(module)
    failure: Exception | None = None
    for graph in _sized(source, module.main, turned):
        feeds = {tensor.name: _random(tensor, np.random.default_rng(seed)) for tensor in graph.inputs}
        names = [tensor.name for tensor in graph.outputs]
        given = {k: v.transpose(CHANNELS_FIRST) if k in turned else v for k, v in feeds.items()}
        given |= _fixed(source, inputs, given)
        try:
            expected = _refer(source, names, given)
        except (
            Exception
        ) as error:  # of either package, which have no common class: these sizes do not suit the model
            failure = failure or error
            continue
        return _differences(dict(zip(names, expected, strict=True)), evaluate(graph, feeds), turned)
    reason = str(failure).splitlines()[0]
    raise ConversionError(
        f"the model cannot be verified, its referee does not run it ({reason}); install onnxruntime, which runs more "
        "models than onnx's own evaluator, convert it with --no-verify, or check it with onnx.checker"
    ) from failure


def _differences(theirs: Mapping[str, Any], ours: list[Array], turned: set[str]) -> dict[str, float]:
    differences = {}
    for (name, value), our in zip(theirs.items(), ours, strict=True):
        expected = (
            np.asarray(value).transpose(inverse(CHANNELS_FIRST)) if name in turned else np.asarray(value)
        )
        if our.shape != expected.shape:
            raise ConversionError(
                f"output '{name}' has shape {our.shape}, the ONNX model gives {expected.shape}; report this"
            )
        differences[name] = difference(our, expected)
    return differences


def _sized(source: Any, graph: Graph, turned: set[str]) -> Iterator[Graph]:
    """The graph with its open sizes as several numbers, of which one should suit it, and as the file has it."""
    dims = {name: shape for name, (_, shape) in read(source).inputs.items()}
    for size in OPEN_SIZES:
        shapes = []
        for tensor in graph.inputs:
            order = inverse(CHANNELS_FIRST) if tensor.name in turned else tuple(range(tensor.type.rank))
            open_ = [axis for axis, n in enumerate(tensor.shape_signature or ()) if n < 0]
            shape = list(tensor.shape)
            for axis in open_:
                batch = any(d[:1] == (dims[tensor.name][order[axis]],) for d in dims.values())
                shape[axis] = 2 if batch else size
            shapes.append(tuple(shape))
        if shapes == [tensor.shape for tensor in graph.inputs]:
            break
        copy = graph.copy()
        try:
            set_shapes(copy, shapes)
        except ModelError:
            continue
        yield copy
    yield graph


def _fixed(source: Any, inputs: Mapping[str, Any], feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Values of fixed inputs, as many of them as the others' sizes ask for, or else one along each open axis."""
    model = read(source)
    sizes = {
        dim: size
        for name, array in feeds.items()
        for dim, size in zip(model.inputs[name][1], array.shape, strict=True)
    }
    found = {}
    for name, (array, dims) in asked_values(model, inputs).items():
        found[name] = np.broadcast_to(
            array, [sizes.get(d, n) for d, n in zip(dims, array.shape, strict=True)]
        )
    return found


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
    """The outputs by onnxruntime, or where that is missing or cannot by onnx's reference evaluator."""
    model = source if isinstance(source, bytes) else str(source)
    failure: Exception | None = None
    try:
        import onnxruntime
    except ImportError:
        pass
    else:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        try:
            session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            return list(session.run(names, dict(feeds)))
        except Exception as error:  # its exceptions have no class in common; it lags behind onnx's versions
            failure = error
    from onnx.reference import ReferenceEvaluator

    proto: Any = onnx.load_from_string(model) if isinstance(model, bytes) else model
    try:
        with np.errstate(all="ignore"):
            return list(ReferenceEvaluator(proto).run(names, dict(feeds)))
    except Exception as error:
        raise failure or error from error
