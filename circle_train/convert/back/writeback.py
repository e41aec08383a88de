"""Trained values back into the ONNX file: the same graph and names, only initializers (or Constant nodes) differ."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx

from circle_train.convert.building.provenance import Provenance
from circle_train.convert.onnx_file.importer import external_file
from circle_train.convert.stages.walk import names_read
from circle_train.errors import ConversionError
from circle_train.format.atomic import atomic_write, atomic_writes
from circle_train.ir.tensor_type import Array

ALIGNMENT = 4096
"""Of tensors in an external data file, so that they can be mapped into memory."""


def write_back(
    provenance: Provenance,
    values: Mapping[str, Array],
    path: str | os.PathLike[str],
    outputs: Sequence[str] | None = None,
) -> None:
    """Write the model that was loaded to `path`, with these values of constants in its initializers.

    With `outputs` it computes the tensors of these names and holds nothing that they do not need.
    """
    raw = _read(provenance)
    strangers = sorted(set(values) - set(provenance.lineages))
    if strangers:
        raise ConversionError(
            f"{os.fspath(path)}: '{strangers[0]}' was trained but is no initializer of the ONNX model, so it "
            f"cannot be put back ({provenance.engine} engine); export it as .circle"
        )
    model = onnx.ModelProto()
    model.ParseFromString(raw)
    del raw
    if outputs is not None:
        _choose_outputs(model, outputs)
    fresh = {name: provenance.to_onnx(name, value) for name, value in values.items()}
    external = [t for t in model.graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL]
    for tensor in model.graph.initializer:
        if tensor.name in fresh and tensor.data_location != onnx.TensorProto.EXTERNAL:
            _put(tensor, fresh[tensor.name])
    for node in model.graph.node:
        if node.op_type == "Constant" and node.output[0] in fresh:
            _put(next(a.t for a in node.attribute if a.name == "value"), fresh[node.output[0]])
    if not external:
        with atomic_write(path) as file:
            file.write(model.SerializeToString())
        return
    beside = f"{os.fspath(path)}.data"
    with atomic_writes([beside, path]) as (data, file):
        _write_external(external, provenance, fresh, data, os.path.basename(beside))
        file.write(model.SerializeToString())


def _choose_outputs(model: Any, names: Sequence[str]) -> None:
    """Make these tensors the outputs; take out nodes and initializers that none of them needs."""
    graph = model.graph
    made = {name for node in graph.node for name in node.output if name}
    if unknown := [name for name in names if name not in made]:
        raise ConversionError(
            f"outputs: no node of the ONNX model makes '{unknown[0]}'; name one of its tensors"
        )
    inferred = onnx.shape_inference.infer_shapes(model).graph
    known = {info.name: info for info in (*inferred.output, *inferred.value_info)}
    infos = [known.get(name) or onnx.helper.make_empty_tensor_value_info(name) for name in names]
    needed, kept = set(names), []
    for node in reversed(graph.node):
        if needed & set(node.output):
            kept.append(node)
            needed |= names_read([node])
    for field, items in (
        ("output", infos),
        ("node", kept[::-1]),
        ("initializer", [tensor for tensor in graph.initializer if tensor.name in needed]),
        ("value_info", []),
    ):
        copies = [type(item).FromString(item.SerializeToString()) for item in items]
        graph.ClearField(field)
        getattr(graph, field).extend(copies)


def _read(provenance: Provenance) -> bytes:
    """The bytes of the file that was loaded; it must not have changed since."""
    if isinstance(provenance.source, bytes):
        return provenance.source
    if provenance.source is None:
        raise ConversionError(
            "the package does not hold the ONNX model that it was made of; export it as .circle or .tflite, or put the "
            "parameters into the model where it is: ct.load('net.onnx').with_parameters(…)"
        )
    if not provenance.source.is_file():
        raise ConversionError(
            f"'{provenance.source}' is gone; put the ONNX model back where it was loaded from"
        )
    raw = provenance.source.read_bytes()
    if hashlib.sha256(raw).hexdigest() != provenance.digest:
        raise ConversionError(
            f"'{provenance.source}' has changed since it was loaded; load it again before training"
        )
    return raw


def _checked(tensor: Any, value: Array) -> Array:
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    if tuple(value.shape) != tuple(tensor.dims):
        raise ConversionError(
            f"initializer '{tensor.name}' has shape {tuple(tensor.dims)}, the value has {value.shape}"
        )
    return np.ascontiguousarray(value, dtype)


def _put(tensor: Any, value: Array) -> None:
    """The elements as raw bytes, whichever field held them."""
    array = _checked(tensor, value)
    for field in ("float_data", "double_data", "int32_data", "int64_data", "uint64_data"):
        tensor.ClearField(field)
    tensor.raw_data = array.astype(array.dtype.newbyteorder("<")).tobytes()


def _write_external(
    external: list[Any], provenance: Provenance, fresh: Mapping[str, Array], file: BinaryIO, name: str
) -> None:
    """The data file of that name beside the new model, with the old values of whatever was not trained."""
    assert isinstance(provenance.source, Path)
    folder = provenance.source.parent
    for tensor in external:
        if tensor.name in fresh:
            offset, length = _append(file, _checked(tensor, fresh[tensor.name]).tobytes())
        else:
            offset, length = _append(file, _old_bytes(tensor, folder))
        tensor.ClearField("external_data")
        for key, value in (("location", name), ("offset", offset), ("length", length)):
            entry = tensor.external_data.add()
            entry.key, entry.value = key, str(value)


def _append(file: BinaryIO, data: bytes) -> tuple[int, int]:
    file.write(bytes(-file.tell() % ALIGNMENT))
    offset = file.tell()
    file.write(data)
    return offset, len(data)


def _old_bytes(tensor: Any, folder: Path) -> bytes:
    facts = {entry.key: entry.value for entry in tensor.external_data}
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    count = int(np.prod(tensor.dims, dtype=np.int64))
    path = external_file(folder, facts["location"], f"initializer '{tensor.name}'")
    with open(path, "rb") as file:
        file.seek(int(facts.get("offset", 0)))
        return file.read(int(facts.get("length", count * dtype.itemsize)))
