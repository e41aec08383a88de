"""The module that goes into a file: types for batch 1, signatures, unique names, metadata."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from circle_train.convert.building.builder import Builder
from circle_train.convert.building.emitter import SMALL
from circle_train.convert.building.provenance import CHANNELS_LAST, METADATA
from circle_train.convert.onnx_file.importer import Source
from circle_train.convert.stages.lower import FORMULAS, lower
from circle_train.convert.stages.symbols import Assignment
from circle_train.errors import ConversionError, DataError, ModelError
from circle_train.format.metadata.description import OURS as DESCRIBED
from circle_train.ir import Buffer, Graph, Metadata, Module, Node, Tensor, TensorType
from circle_train.ir.node import known_type
from circle_train.ir.size import Size, is_open
from circle_train.ops.open.sizes import open_types


def finish(builder: Builder, model: Source, assignment: Assignment, inner: Sequence[Graph] = ()) -> Module:
    """Number, name and type everything, all shapes inferred once more as a check; `inner` are the loops' graphs."""
    graph = builder.graph
    lower(builder, *FORMULAS)
    graph.name = model.model.graph.name or "main"
    for index, node in enumerate(graph.nodes):
        node.index = index
    _set_types(builder, model, assignment)
    _name(graph, inner)
    turned = [t.name for t in (*graph.inputs, *graph.outputs) if t in builder.turned]
    facts = {"engine": "direct", "opset": model.opsets.get("", 0), "producer": str(model.model.producer_name)}
    note = conversion_note(facts | ({CHANNELS_LAST: turned} if turned else {}))
    said = [
        Metadata(DESCRIBED, Buffer(np.frombuffer(entry.value.encode(), np.uint8)))
        for entry in model.model.metadata_props
        if entry.key == DESCRIBED
    ]
    graphs = [graph, *inner]
    constants = dict.fromkeys(t.buffer for g in graphs for t in g.all_tensors() if t.buffer is not None)
    notes = [note, *said[-1:]]
    buffers = [Buffer(), *constants, *(one.buffer for one in notes)]
    return Module(graphs, buffers, notes, description="converted from ONNX by circle-train")


def conversion_note(facts: dict[str, Any]) -> Metadata:
    """What the file says of its own making."""
    return Metadata(METADATA, Buffer(np.frombuffer(json.dumps(facts).encode(), np.uint8)))


def _set_types(builder: Builder, model: Source, assignment: Assignment) -> None:
    """Shapes as expressions, then those of the file; what is an expression is open in the signature."""
    graph, turned = builder.graph, builder.turned
    dims = [model.inputs[tensor.name][1] for tensor in graph.inputs]
    nhwc = [tensor in turned for tensor in graph.inputs]
    placed = [_placed(assignment.sizes(d), last) for d, last in zip(dims, nhwc, strict=True)]
    if not is_open(size for shape in placed for size in shape):
        _infer(graph, [_placed(assignment.example(d), last) for d, last in zip(dims, nhwc, strict=True)])
        return
    for tensor in graph.all_tensors():
        tensor.type = TensorType(tensor.dtype, tensor.shape)
    types = open_types(graph, placed, known=builder.derivations)
    try:
        _infer(graph, [_placed(assignment.smallest(d), last) for d, last in zip(dims, nhwc, strict=True)])
    except (ModelError, DataError):  # half of one row is none, and by how many there are is divided
        _infer(graph, [_placed(assignment.example(d), last) for d, last in zip(dims, nhwc, strict=True)])
    for tensor, type_ in types.items():
        if is_open(type_.shape):
            tensor.shape_signature = tuple(-1 if isinstance(size, Size) else size for size in type_.shape)


def _placed(shape: tuple[Any, ...], channels_last: bool) -> tuple[Any, ...]:
    return (shape[0], *shape[2:], shape[1]) if channels_last else shape


def _infer(graph: Graph, shapes: list[tuple[int, ...]]) -> None:
    """Give the inputs these shapes, infer all others, compute shape arithmetic."""
    for tensor, shape in zip(graph.inputs, shapes, strict=True):
        tensor.type = TensorType(tensor.dtype, shape)
    for node in graph.nodes:
        inputs = [known_type(tensor) for tensor in node.inputs]
        types = _with_values(node, inputs, node.op.infer_types(inputs))
        for tensor, type_ in zip(node.outputs, types, strict=True):
            believed = not type_.is_static and tensor.type.is_static and tensor.type.rank == type_.rank
            if not believed:
                tensor.type = type_
            elif any(a not in (-1, z) for a, z in zip(type_.shape, tensor.shape, strict=True)):
                raise ConversionError(f"{node}: made {type_}, but the ONNX model states {tensor.type}")
    for node in graph.nodes:
        for tensor in node.outputs:
            tensor.type = TensorType(tensor.dtype, tensor.shape)


def _with_values(
    node: Node, inputs: Sequence[TensorType | None], types: Sequence[TensorType]
) -> Sequence[TensorType]:
    """The types with their values, where these are integers that follow from shapes and constants."""
    if node.op.name == "SHAPE" and inputs[0] is not None and inputs[0].is_static:
        value = np.array(inputs[0].shape, types[0].dtype.numpy)
        return [TensorType(types[0].dtype, value.shape, value)]
    if any((t.dtype.is_float and node.op.name != "CAST") or not 0 <= t.size <= SMALL for t in types):
        return types
    if any(t is not None and t.value is None for t in inputs):
        return types
    with np.errstate(all="ignore"):
        values = node.op.compute([None if t is None else t.value for t in inputs])
    return [TensorType(t.dtype, v.shape, v) for t, v in zip(types, map(np.asarray, values), strict=True)]


def _name(graph: Graph, inner: Sequence[Graph]) -> None:
    """Names unique in the file but for weights that loops share; inputs, outputs and initializers keep the ONNX model's."""
    taken: set[str] = set()
    counts: dict[str, int] = {}

    def claim(tensor: Tensor, wanted: str) -> None:
        name, count = wanted, counts.get(wanted, 1)
        while name in taken:
            name, count = f"{wanted}:{count}", count + 1
        tensor.name, counts[wanted] = name, count
        taken.add(name)

    tensors = list(graph.all_tensors())
    shared = {t.buffer for t in tensors if t.is_constant}
    tensors += dict.fromkeys(
        t for part in inner for t in part.all_tensors() if t.buffer not in shared or not t.is_constant
    )
    first = [*graph.inputs, *graph.outputs]
    chosen = set(first)
    constants = [t for t in tensors if t.is_constant and t.name != "constant" and t not in chosen]
    chosen.update(constants)
    for tensor in [*first, *constants, *(t for t in tensors if t not in chosen)]:
        claim(tensor, tensor.name)
