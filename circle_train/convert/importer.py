"""Reads an ONNX file: graph without weights, initializers as arrays, symbolic dimensions."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import numpy_helper

from circle_train.errors import ConversionError
from circle_train.ir import DType
from circle_train.ir.tensor_type import Array

OLDEST_OPSET = 6
Dim = int | str
"""A size, or the name of a symbolic one."""


@dataclass
class Source:
    """An ONNX model: its graph, with the big arrays taken out of it."""

    model: Any
    arrays: dict[str, Array]
    place: Path | bytes
    digest: str
    inputs: dict[str, tuple[DType, tuple[Dim, ...]]] = field(default_factory=dict)
    """Graph inputs that are no initializers."""

    @property
    def opsets(self) -> dict[str, int]:
        return {"" if o.domain == "ai.onnx" else o.domain: int(o.version) for o in self.model.opset_import}


def read(source: Any) -> Source:
    """Parse a path, bytes or a file object; external data is read from beside the file."""
    place: Path | bytes
    if isinstance(source, (bytes, bytearray, memoryview)):
        place = raw = bytes(source)
    elif hasattr(source, "read"):
        place = raw = source.read()
    else:
        place = Path(source)
        raw = place.read_bytes()
    where = f"'{place}'" if isinstance(place, Path) else "the ONNX bytes"
    model = onnx.ModelProto()
    try:
        model.ParseFromString(raw)
    except DecodeError as error:
        raise ConversionError(
            f"{where}: no ONNX model ({error}); give a file that onnx.checker accepts"
        ) from error
    if not model.HasField("graph") or not model.opset_import:
        raise ConversionError(f"{where}: found no graph or no opset, expected an ONNX model; export it again")
    digest = hashlib.sha256(raw).hexdigest()
    del raw
    _check_opset(model, where)
    arrays = _take_arrays(model, place.parent if isinstance(place, Path) else None, where)
    slim = onnx.ModelProto()
    slim.CopyFrom(model)
    del model
    return Source(slim, arrays, place, digest, _inputs(slim, arrays, where))


def _check_opset(model: Any, where: str) -> None:
    newest = onnx.defs.onnx_opset_version()
    for opset in model.opset_import:
        if opset.domain in ("", "ai.onnx") and not OLDEST_OPSET <= opset.version <= newest:
            raise ConversionError(
                f"{where}: opset {opset.version}, expected {OLDEST_OPSET} to {newest}; convert it with "
                "onnx.version_converter, or install a newer onnx"
            )


def _take_arrays(model: Any, folder: Path | None, where: str) -> dict[str, Array]:
    """The initializers, removed from the model."""
    arrays = {}
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            arrays[tensor.name] = _external(tensor, folder, where)
        elif tensor.data_type != onnx.TensorProto.STRING:
            arrays[tensor.name] = _inside(tensor, where)
    for sparse in model.graph.sparse_initializer:
        arrays[sparse.values.name] = _dense(sparse)
    model.graph.ClearField("initializer")
    model.graph.ClearField("sparse_initializer")
    return arrays


def _inside(tensor: Any, where: str) -> Array:
    """The elements that the file itself holds."""
    try:
        return to_array(tensor)
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        raise ConversionError(
            f"{where}: the elements of initializer '{tensor.name}' do not fill its shape {tuple(tensor.dims)} ({error}); "
            "the file is damaged"
        ) from error


def to_array(tensor: Any) -> Array:
    """The elements of a TensorProto; a view of its bytes where those lie as numpy wants them."""
    return np.asarray(numpy_helper.to_array(tensor))


def _external(tensor: Any, folder: Path | None, where: str) -> Array:
    facts = {entry.key: entry.value for entry in tensor.external_data}
    if folder is None:
        raise ConversionError(
            f"{where}: initializer '{tensor.name}' lies in the file '{facts.get('location')}'; "
            "load the model by its path"
        )
    path = (folder / facts["location"]).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise ConversionError(
            f"{where}: initializer '{tensor.name}' lies outside the model's folder, in '{path}'"
        )
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    count = int(np.prod(tensor.dims, dtype=np.int64))
    offset, nbytes = int(facts.get("offset", 0)), count * dtype.itemsize
    if not path.is_file() or path.stat().st_size < offset + nbytes:
        raise ConversionError(
            f"{where}: initializer '{tensor.name}' needs {nbytes} bytes at {offset} of '{path}', which "
            f"{'is shorter' if path.is_file() else 'is missing'}; put the file beside the model"
        )
    return np.fromfile(path, dtype, count, offset=offset).reshape(tuple(tensor.dims))


def _dense(sparse: Any) -> Array:
    values, indices = to_array(sparse.values), to_array(sparse.indices)
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    if indices.ndim == 1:
        dense.reshape(-1)[indices] = values
    else:
        dense[tuple(indices.T)] = values
    return dense


def _inputs(model: Any, arrays: dict[str, Array], where: str) -> dict[str, tuple[DType, tuple[Dim, ...]]]:
    found = {}
    for info in model.graph.input:
        if info.name in arrays:
            continue
        kind = info.type.WhichOneof("value")
        if kind != "tensor_type":
            raise ConversionError(
                f"{where}: input '{info.name}' is of {kind or 'unknown type'}, expected a tensor"
            )
        tensor = info.type.tensor_type
        dtype = element_type(tensor.elem_type)
        if dtype is None:
            known = dict(map(reversed, onnx.TensorProto.DataType.items()))
            name = known.get(tensor.elem_type, f"number {tensor.elem_type}")
            raise ConversionError(
                f"{where}: input '{info.name}' has element type {name}, which Circle does not compute"
            )
        if not tensor.HasField("shape"):
            raise ConversionError(
                f"{where}: input '{info.name}' has no shape; export the model with input shapes"
            )
        found[info.name] = (dtype, tuple(_dim(d, info.name, axis) for axis, d in enumerate(tensor.shape.dim)))
    return found


def _dim(dim: Any, name: str, axis: int) -> Dim:
    """A size; unnamed open sizes are the batch on the first axis, elsewhere a symbol of their own."""
    if dim.HasField("dim_value") and dim.dim_value >= 0:
        return int(dim.dim_value)
    return str(dim.dim_param) or ("batch" if axis == 0 else f"{name}.{axis}")


def element_type(code: int) -> DType | None:
    """Circle's element type for ONNX's, where numpy can hold both."""
    try:
        return DType.of(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(code)))
    except (KeyError, TypeError, ValueError):
        return None


def declared_shapes(graph: Any) -> dict[str, tuple[int, ...]]:
    """Shapes that the model states in numbers, by value name."""
    shapes = {}
    for info in (*graph.value_info, *graph.output):
        tensor = info.type.tensor_type
        known = info.type.HasField("tensor_type") and tensor.HasField("shape")
        if known and all(d.HasField("dim_value") and d.dim_value >= 0 for d in tensor.shape.dim):
            shapes[info.name] = tuple(int(d.dim_value) for d in tensor.shape.dim)
    return shapes
