"""Reads an ONNX file: graph without weights, initializers as arrays, symbolic dimensions."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from circle_train.convert.onnx_file.digest import Digest
from circle_train.convert.onnx_file.elements import (
    FOUR_BITS,
    NUMPY,
    element_name,
    element_type,
    to_array,
    widened,
)
from circle_train.convert.onnx_file.messages import EXTERNAL, OTHER_TYPES, Element, read_model
from circle_train.convert.onnx_file.protobuf import Damage
from circle_train.errors import ConversionError
from circle_train.ir import DType
from circle_train.ir.mapped import open_bytes
from circle_train.ir.tensor_type import Array
from circle_train.passes.fold import LARGEST_FOLDED

OLDEST_OPSET, NEWEST_OPSET = 6, 28
SPARSEST = 64
"""Elements of a large sparse initializer for each that is there: a file of 200 bytes asked for weights of 1.6 GB."""
Dim = int | str
"""A size, or the name of a symbolic one."""


@dataclass
class Source:
    """An ONNX model: its graph, and its initializers as arrays, which are views of the mapped file."""

    model: Any
    arrays: dict[str, Array]
    place: Path | bytes
    digest: Digest
    inputs: dict[str, tuple[DType, tuple[Dim, ...]]] = field(default_factory=dict)
    """Graph inputs that are no initializers."""
    files: list[bytes | mmap.mmap] = field(default_factory=list)
    """The model's bytes, and those of its external data."""
    given: dict[str, tuple[Array, tuple[Dim, ...]]] = field(default_factory=dict)
    """Inputs whose values the caller gave, which count no longer among them."""
    contradictions: list[str] = field(default_factory=list)
    """Where the caller's sizes differ though the model calls them the same: said if it cannot be converted with them."""

    def let_go(self) -> None:
        """Pages of mapped files that were read need not stay in memory."""
        for data in self.files:
            if isinstance(data, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
                data.madvise(mmap.MADV_DONTNEED)

    @property
    def four_bits(self) -> frozenset[str]:
        """Initializers that are packed two elements into a byte."""
        packed = [t.name for t in self.model.graph.initializer if t.data_type in FOUR_BITS]
        return frozenset(packed)

    @property
    def opsets(self) -> dict[str, int]:
        return {"" if o.domain == "ai.onnx" else o.domain: int(o.version) for o in self.model.opset_import}


def read(source: Any) -> Source:
    """Parse a path or bytes; external data is read from beside the file."""
    place: Path | bytes
    data: bytes | mmap.mmap
    if isinstance(source, (bytes, bytearray, memoryview)):
        place = data = bytes(source)
    else:
        place = Path(source)
        data = _read(place)
    where = f"'{place}'" if isinstance(place, Path) else "the ONNX bytes"
    try:
        model = read_model(data)
    except Damage as error:
        raise ConversionError(
            f"{where}: no ONNX model ({error}); give a file that onnx.checker accepts"
        ) from error
    if not model.HasField("graph") or not model.opset_import:
        raise ConversionError(f"{where}: found no graph or no opset, expected an ONNX model; export it again")
    _check_opset(model, where)
    external: dict[Path, bytes | mmap.mmap] = {}
    arrays = _arrays(model.graph, place.parent if isinstance(place, Path) else None, where, external)
    if not any(array.dtype.kind == "f" and array.size > 1 for array in arrays.values()):
        arrays |= _constant_nodes(model.graph, where)
    inputs = _inputs(model, arrays, where)
    return Source(model, arrays, place, Digest(data), inputs, [data, *external.values()])


def _read(path: Path) -> bytes | mmap.mmap:
    try:
        return open_bytes(path)
    except OSError as error:
        raise ConversionError(f"'{path}' cannot be read ({error.strerror}); check the path") from error


def _check_opset(model: Any, where: str) -> None:
    for opset in model.opset_import:
        if opset.domain in ("", "ai.onnx") and not OLDEST_OPSET <= opset.version <= NEWEST_OPSET:
            raise ConversionError(
                f"{where}: opset {opset.version}, expected {OLDEST_OPSET} to {NEWEST_OPSET}; convert it with "
                "onnx.version_converter"
            )


def _arrays(
    graph: Any, folder: Path | None, where: str, external: dict[Path, bytes | mmap.mmap]
) -> dict[str, Array]:
    """The initializers; files beside the model are added to `external`."""
    arrays: dict[str, Array] = {}
    for tensor in graph.initializer:
        if tensor.data_location == EXTERNAL:
            arrays[tensor.name] = _external(tensor, folder, where, external)
        elif tensor.data_type != Element.STRING:
            with _filling(tensor, where):
                arrays[tensor.name] = to_array(tensor)
    for sparse in graph.sparse_initializer:
        with _filling(sparse.values, where):
            arrays[sparse.values.name] = _dense(sparse)
    return arrays


def _constant_nodes(graph: Any, where: str) -> dict[str, Array]:
    """The values of Constant nodes that are no single numbers: some exporters write all weights so."""
    arrays: dict[str, Array] = {}
    for node in graph.node:
        if node.op_type != "Constant" or node.domain not in ("", "ai.onnx"):
            continue
        for attribute in node.attribute:
            known = attribute.name == "value" and attribute.t.data_type in NUMPY
            if known and attribute.t.data_location != EXTERNAL:
                with _filling(attribute.t, where):
                    array = to_array(attribute.t)
                if array.dtype.kind == "f" and array.size > 1:
                    arrays[node.output[0]] = array
    return arrays


@contextmanager
def _filling(tensor: Any, where: str) -> Iterator[None]:
    """Elements are taken from the file itself in this block."""
    try:
        yield
    except (ValueError, IndexError, KeyError, TypeError, RuntimeError) as error:
        raise ConversionError(
            f"{where}: the elements of initializer '{tensor.name}' do not fill its shape {tuple(tensor.dims)} ({error}); "
            "the file is damaged"
        ) from error


def _external(tensor: Any, folder: Path | None, where: str, files: dict[Path, bytes | mmap.mmap]) -> Array:
    facts = {entry.key: entry.value for entry in tensor.external_data}
    location = facts.get("location", "")
    if folder is None:
        raise ConversionError(
            f"{where}: initializer '{tensor.name}' lies in the file '{location}'; load the model by its path"
        )
    path = external_file(folder, location, f"{where}: initializer '{tensor.name}'")
    is_bfloat16 = tensor.data_type == Element.BFLOAT16
    if tensor.data_type not in NUMPY and not is_bfloat16:
        raise ConversionError(
            f"{where}: initializer '{tensor.name}' has element type {element_name(tensor.data_type)}, which Circle "
            "does not compute"
        )
    if path not in files and os.path.isfile(path):
        files[path] = _read(path)
    data = files.get(path, b"")
    with _filling(tensor, where):
        dtype, count = np.dtype("<u2") if is_bfloat16 else NUMPY[tensor.data_type], prod(tensor.dims)
        offset, nbytes = int(facts.get("offset", 0)), count * dtype.itemsize
        length = int(facts.get("length", nbytes))
        if length != nbytes:
            raise ConversionError(
                f"{where}: initializer '{tensor.name}' has {length} bytes in '{path}', its shape {tuple(tensor.dims)} "
                f"takes {nbytes}; export the model again"
            )
        if not 0 <= offset <= offset + nbytes <= len(data):
            raise ConversionError(
                f"{where}: initializer '{tensor.name}' needs {nbytes} bytes at {offset} of '{path}', which "
                f"{'is shorter' if os.path.isfile(path) else 'is missing'}; put the file beside the model"
            )
        array = np.frombuffer(data, dtype, count, offset)
        return (widened(array) if is_bfloat16 else array).reshape(tuple(tensor.dims))


def external_file(folder: Path, location: str, what: str) -> Path:
    """Where a tensor's bytes lie; nothing outside the model's folder is touched, whatever the model or a link says."""
    try:
        path = (folder / location).resolve()
    except (ValueError, OSError) as error:
        raise ConversionError(f"{what} lies in '{location}', which is no file name ({error})") from None
    if os.path.isabs(location) or not path.is_relative_to(folder.resolve()):
        raise ConversionError(
            f"{what} lies outside the model's folder, in '{path}'; put the file beside the model"
        )
    return path


def _dense(sparse: Any) -> Array:
    """All elements, those that the file leaves out too; as the standard has it, places rise and each has one value."""
    values, places, dims = to_array(sparse.values), to_array(sparse.indices), tuple(sparse.dims)
    if prod(dims) > max(LARGEST_FOLDED, SPARSEST * values.size):
        raise ValueError(f"{values.size} values of {dims}, whose zeros take too much memory")
    if places.ndim == 2:
        places = np.ravel_multi_index(tuple(places.T), dims)
    if places.shape != values.shape or (np.diff(places, prepend=-1) <= 0).any():
        raise ValueError(f"{values.size} values, which have no rising places of their own")
    dense = np.zeros(dims, values.dtype)
    dense.reshape(-1)[places] = values
    return dense


def _inputs(model: Any, arrays: dict[str, Array], where: str) -> dict[str, tuple[DType, tuple[Dim, ...]]]:
    found = {}
    for info in model.graph.input:
        if info.name in arrays:
            continue
        if not info.type.HasField("tensor_type"):
            other = [kind for kind in OTHER_TYPES.values() if info.type.HasField(kind)]
            raise ConversionError(
                f"{where}: input '{info.name}' is of {(*other, 'unknown type')[0]}, expected a tensor"
            )
        tensor = info.type.tensor_type
        dtype = element_type(tensor.elem_type)
        if dtype is None:
            raise ConversionError(
                f"{where}: input '{info.name}' has element type {element_name(tensor.elem_type)}, which Circle "
                "does not compute"
            )
        if not tensor.HasField("shape"):
            raise ConversionError(
                f"{where}: input '{info.name}' has no shape; export the model with input shapes"
            )
        found[info.name] = (dtype, tuple(_dim(d, info.name, axis) for axis, d in enumerate(tensor.shape.dim)))
    return found


NO_NAMES = ("?", "-1", "None", "*")
"""What exporters call any size that they leave open."""


def _dim(dim: Any, name: str, axis: int) -> Dim:
    """A size; unnamed open sizes are the batch on the first axis, elsewhere a symbol of their own."""
    if dim.HasField("dim_value") and dim.dim_value >= 0:
        return int(dim.dim_value)
    named = "" if dim.dim_param in NO_NAMES else str(dim.dim_param)
    return named or ("batch" if axis == 0 else f"{name}.{axis}")


def declared_shapes(graph: Any) -> dict[str, tuple[int, ...]]:
    """Shapes that the model states in numbers, by value name."""
    shapes = {}
    for info in (*graph.value_info, *graph.output):
        tensor = info.type.tensor_type
        known = info.type.HasField("tensor_type") and tensor.HasField("shape")
        if known and all(d.HasField("dim_value") and d.dim_value >= 0 for d in tensor.shape.dim):
            shapes[info.name] = tuple(int(d.dim_value) for d in tensor.shape.dim)
    return shapes
