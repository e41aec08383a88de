"""Gives a module that another converter made the inputs and outputs of the ONNX model: names, order of axes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from circle_train.errors import ConversionError
from circle_train.ir import Graph, Node, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ops import REGISTRY

Face = tuple[str, tuple[int, ...]]
"""A name, and sizes with -1 where the model leaves one open."""


def restore_faces(graph: Graph, model: Any) -> None:
    """Rename what `graph` reads and writes as in the ONNX model, and turn channels-last images back."""
    weights = {initializer.name for initializer in model.graph.initializer}
    inputs = [_face(value) for value in model.graph.input if value.name not in weights]
    outputs = [_face(value) for value in model.graph.output]
    for tensor, (name, shape) in zip(graph.inputs, _matched(graph.inputs, inputs), strict=True):
        tensor.name = name
        if _is_turned(tensor.shape, shape):
            _turn_input(graph, tensor)
    for tensor, (name, shape) in zip(list(graph.outputs), _matched(graph.outputs, outputs), strict=True):
        tensor.name = name
        if _is_turned(tensor.shape, shape):
            _turn_output(graph, tensor)
    for index, node in enumerate(graph.nodes):
        node.index = index


def _face(value: Any) -> Face:
    sizes = value.type.tensor_type.shape.dim
    return value.name, tuple(size.dim_value if size.HasField("dim_value") else -1 for size in sizes)


def _matched(tensors: Sequence[Tensor], faces: Sequence[Face]) -> list[Face]:
    """The face of each tensor: by what is left of its name, else the next one that nobody has."""
    if len(tensors) != len(faces):
        raise ConversionError(
            f"engine onnx2tf: made {len(tensors)} inputs or outputs of the model's {len(faces)}; use the direct engine"
        )
    known = {re.sub(r"\W", "_", name): (name, shape) for name, shape in faces}
    named = [known.get(re.sub(r"^serving_default_|:\d+$", "", tensor.name)) for tensor in tensors]
    rest = iter([face for face in faces if face not in named])
    return [face if face is not None else next(rest) for face in named]


def _is_turned(found: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether the second axis of the ONNX model has become the last."""
    if len(found) != len(wanted) or len(found) < 3 or _fits(found, wanted):
        return False
    return _fits(found, (wanted[0], *wanted[2:], wanted[1]))


def _fits(found: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    return all(size in (-1, have) for have, size in zip(found[1:], wanted[1:], strict=True))


def _turn_input(graph: Graph, inner: Tensor) -> None:
    """A new input, channels first, in front of the one that the operators read."""
    rank = len(inner.shape)
    outer = _like(inner, (0, rank - 1, *range(1, rank - 1)))
    graph.inputs[graph.inputs.index(inner)] = outer
    inner.name = f"{outer.name}/channels_last"
    graph.insert(_transpose(outer, inner, (0, *range(2, rank), 1)))


def _turn_output(graph: Graph, inner: Tensor) -> None:
    """A new output, channels first, behind the one that an operator writes."""
    rank = len(inner.shape)
    order = (0, rank - 1, *range(1, rank - 1))
    outer = _like(inner, order)
    graph.outputs[graph.outputs.index(inner)] = outer
    inner.name = f"{outer.name}/channels_last"
    graph.append(_transpose(inner, outer, order))


def _like(tensor: Tensor, order: Sequence[int]) -> Tensor:
    signature = tensor.shape_signature
    return Tensor(
        tensor.name,
        TensorType(tensor.dtype, tuple(tensor.shape[axis] for axis in order)),
        shape_signature=None if signature is None else tuple(signature[axis] for axis in order),
    )


def _transpose(source: Tensor, result: Tensor, order: Sequence[int]) -> Node:
    return Node(REGISTRY["TRANSPOSE"](), [source, constant(np.array(order, np.int32), "order")], [result])
