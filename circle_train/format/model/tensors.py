"""Tensor tables: types, shapes, quantization and the buffers behind constants, read and written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from circle_train.format.flatbuffer.decode import Damage, Table
from circle_train.format.model.lookups import pick
from circle_train.ir import Buffer, DType, Graph, Node, Quantization, Tensor, TensorType
from circle_train.ir.node import EMPTY

MAX_RANK = 32
MAX_ELEMENTS = 1 << 48
MAX_EXTENT = (1 << 31) - 1
"""Of one dimension, in a file."""
INTERPRETED = frozenset({"shape", "type", "buffer", "name", "is_variable", "shape_signature"})
"""Fields of the table that an ir.Tensor has attributes for; the others are carried under "fields"."""
FREE_SIZE = frozenset({DType.STRING, DType.RESOURCE, DType.VARIANT}) | {
    dtype for dtype in DType if dtype < DType.UINT4
}
"""Types whose bytes do not follow from the number of elements (strings, handles, GGML and MX blocks)."""


def read_tensor(table: Table, buffers: Sequence[Buffer]) -> Tensor:
    """A Tensor table; `buffers` is the file's table of them."""
    number = table.get("type", 0)
    if number not in DTYPE_OF:
        raise Damage(f"element type {number} is none of Circle's ({min(DType)} to {max(DType)})")
    name = table.get("name", "")
    type_ = TensorType(DTYPE_OF[number], read_shape(table, "shape"))
    buffer = pick(buffers, table.get("buffer", 0), "buffer")
    fields = {key: value for key, value in table.items() if key not in INTERPRETED}
    if "sparsity" not in fields:
        check_size(name, type_, buffer)
    tensor = Tensor(name, type_, buffer, is_variable=table.get("is_variable", False))
    if "shape_signature" in table:
        tensor.shape_signature = read_shape(table, "shape_signature")
    if "quantization" in fields:
        tensor.quantization = read_quantization(fields["quantization"], type_.shape)
        tensor.carried["quantization"] = tensor.quantization
    if fields:
        tensor.carried["fields"] = fields
    if "shape" not in table:
        tensor.carried["no_shape"] = True
    if min(type_.shape, default=0) < 0:
        tensor.carried["open_shape"] = True
    return tensor


def read_signs(graph: Graph) -> None:
    """Weights between floats that converters of before 2019 called UINT8: LiteRT reads their bytes with signs, around 0."""
    for tensor in graph.tensors:
        meaning = tensor.quantization
        if tensor.dtype is not DType.UINT8 or not tensor.is_constant or meaning is None:
            continue
        readers = graph.readers(tensor)
        made = [output for node in readers for output in node.outputs]
        if (
            made
            and all(t.dtype is DType.FLOAT32 for t in made)
            and all(_weighs(node, tensor) for node in readers)
        ):
            tensor.type = TensorType(DType.INT8, tensor.shape)
            tensor.quantization = replace(meaning, zero_point=(0,) * len(meaning.scale))
            tensor.carried |= {"called_unsigned": True, "quantization": tensor.quantization}


def _weighs(node: Node, tensor: Tensor) -> bool:
    """Whether an operator of layers takes the tensor for its weights; others decode what they read as it is called."""
    op = node.op
    places = [i for i, t in enumerate(node.inputs) if t is tensor]
    return op.scalar_parameters and all(op.input_name(i) in op.parameters for i in places)


DTYPE_OF = {int(dtype): dtype for dtype in DType}


def read_shape(table: Table, field: str) -> tuple[int, ...]:
    """Dimensions, -1 where known only at run time."""
    array = table.get(field)
    if array is None:
        return ()
    if array.size > MAX_RANK:
        raise Damage(f"{field} has {array.size} dimensions, expected at most {MAX_RANK}")
    shape = tuple(array.tolist())
    if shape and (min(shape) < -1 or prod(map(abs, shape)) > MAX_ELEMENTS):
        raise Damage(
            f"{field} is {shape}, expected dimensions from -1 and no more than {MAX_ELEMENTS} elements"
        )
    return shape


def check_size(name: str, type_: TensorType, buffer: Buffer) -> None:
    """A constant's bytes must be its shape's."""
    found = buffer.nbytes
    if found and type_.dtype not in FREE_SIZE and found != (expected := constant_size(type_)):
        raise Damage(f"constant '{name}' ({type_}) has {found} bytes of data, its shape takes {expected}")


def constant_size(type_: TensorType) -> int:
    """Bytes of a constant of this type; -1 where its shape is not known."""
    if not type_.is_static:
        return -1
    if type_.dtype in (DType.INT4, DType.UINT4):
        return (type_.size + 1) // 2
    return type_.size * 2 if type_.dtype is DType.BFLOAT16 else type_.nbytes


def read_quantization(table: Table, shape: tuple[int, ...]) -> Quantization | None:
    """Scales and zero points; None where there are none (ranges alone are carried)."""
    scales, zeros = table.get("scale"), table.get("zero_point")
    if scales is None or not scales.size:
        return None
    axis = table.get("quantized_dimension", 0)
    zeros = np.zeros(scales.size, np.int64) if zeros is None or not zeros.size else zeros
    if zeros.size not in (1, scales.size):
        raise Damage(f"quantization has {scales.size} scales but {zeros.size} zero points")
    if scales.size > 1 and not (0 <= axis < len(shape) and shape[axis] == scales.size):
        raise Damage(f"quantization has {scales.size} scales along dimension {axis} of shape {shape}")
    return Quantization(tuple(scales.tolist()), tuple(zeros.tolist()), axis)


def write_tensor(tensor: Tensor, buffer_index: int, buffer: Buffer) -> Table:
    """The Tensor table of a tensor."""
    table: Table = dict(tensor.carried.get("fields", {}))
    if "sparsity" not in table:
        check_size(tensor.name, tensor.type, buffer)
    shape, signature = tensor.shape, tensor.shape_signature
    if max(shape, default=0) > MAX_EXTENT:
        raise Damage(
            f"'{tensor.name}' ({tensor.type}) has more than {MAX_EXTENT} entries along one dimension"
        )
    if min(shape, default=0) < 0 and "open_shape" not in tensor.carried:
        shape, signature = (
            tuple(1 if dim < 0 else dim for dim in shape),
            signature or shape,
        )  # as converters do
    if shape or "no_shape" not in tensor.carried:
        table["shape"] = np.array(shape, np.int32)
    table["type"] = int(DType.UINT8 if "called_unsigned" in tensor.carried else tensor.dtype)
    table["buffer"] = buffer_index
    table["name"] = tensor.name
    table["is_variable"] = tensor.is_variable
    if signature is not None:
        table["shape_signature"] = np.array(signature, np.int32)
    quantization = write_quantization(tensor, table.pop("quantization", None))
    if quantization is not None:
        table["quantization"] = quantization
    return table


def write_quantization(tensor: Tensor, loaded: Table | None) -> Table | None:
    """What was loaded, unless the scales have been changed since."""
    quantization = tensor.quantization
    if quantization == tensor.carried.get("quantization"):
        return loaded
    if quantization is None:
        return None
    fields: dict[str | int, Any] = dict(loaded or {})
    fields["scale"] = np.array(quantization.scale, np.float32)
    fields["zero_point"] = np.array(quantization.zero_point, np.int64)
    fields["quantized_dimension"] = quantization.axis
    return fields


__all__ = ["EMPTY", "constant_size", "read_signs", "read_tensor", "write_tensor"]
