"""Element types of ONNX tensors, and their elements as arrays."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from circle_train.convert.onnx_file.messages import Element, as_onnx
from circle_train.ir import DType
from circle_train.ir.tensor_type import Array

NUMPY: dict[int, np.dtype[Any]] = {
    Element.FLOAT: np.dtype(np.float32),
    Element.UINT8: np.dtype(np.uint8),
    Element.INT8: np.dtype(np.int8),
    Element.UINT16: np.dtype(np.uint16),
    Element.INT16: np.dtype(np.int16),
    Element.INT32: np.dtype(np.int32),
    Element.INT64: np.dtype(np.int64),
    Element.BOOL: np.dtype(np.bool_),
    Element.FLOAT16: np.dtype(np.float16),
    Element.DOUBLE: np.dtype(np.float64),
    Element.UINT32: np.dtype(np.uint32),
    Element.UINT64: np.dtype(np.uint64),
    Element.COMPLEX64: np.dtype(np.complex64),
    Element.COMPLEX128: np.dtype(np.complex128),
}
"""The types that numpy has itself."""
FIELDS: dict[int, str] = {
    Element.FLOAT: "float_data",
    Element.COMPLEX64: "float_data",
    Element.DOUBLE: "double_data",
    Element.COMPLEX128: "double_data",
    Element.INT64: "int64_data",
    Element.UINT32: "uint64_data",
    Element.UINT64: "uint64_data",
}
"""Where elements lie that are no raw bytes; all others in int32_data."""

FOUR_BITS = {Element.INT4: np.dtype(np.int8), Element.UINT4: np.dtype(np.uint8)}
"""Two elements lie in a byte; here each has one of its own."""


def dtype_of(tensor: Any) -> np.dtype[Any]:
    """What numpy holds the elements of a TensorProto in."""
    if tensor.data_type in NUMPY:
        return NUMPY[tensor.data_type]
    from onnx import helper

    found: np.dtype[Any] = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    return found


def element_type(code: int) -> DType | None:
    """Circle's element type for ONNX's, where numpy can hold both."""
    return DType.of(NUMPY[code]) if code in NUMPY else None


def element_name(code: int) -> str:
    """What ONNX calls the type."""
    return Element(code).name if code in set(Element) else f"number {code}"


def to_array(tensor: Any) -> Array:
    """The elements of a TensorProto; a view of its bytes where those lie as numpy wants them."""
    dims = tuple(tensor.dims)
    if min(dims, default=0) < 0:  # which numpy takes for "whatever is left"
        raise ValueError(f"shape {dims}")
    if tensor.data_type == Element.BFLOAT16:
        if tensor.HasField("raw_data"):
            return widened(tensor.raw_data.view("<u2")).reshape(dims)
        return widened(np.concatenate([np.empty(0, np.int64), *tensor.int32_data])).reshape(dims)
    if tensor.data_type in FOUR_BITS:
        return _unpacked(tensor).reshape(dims)
    if tensor.data_type not in NUMPY:
        return _by_onnx(tensor)
    dtype = NUMPY[tensor.data_type]
    if tensor.HasField("raw_data"):
        raw: Array = tensor.raw_data.view(dtype.newbyteorder("<"))
        return raw.astype(dtype, copy=False).reshape(dims)
    parts = getattr(tensor, FIELDS.get(tensor.data_type, "int32_data"))
    found = parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.int64), *parts]) if parts else []
    if dtype.kind == "c":
        return np.asarray(found, dtype.type(0).real.dtype).view(dtype).reshape(dims)
    if dtype == np.float16:
        return np.asarray(found).astype(np.uint16).view(dtype).reshape(dims)
    return np.asarray(found).astype(dtype, copy=False).reshape(dims)


def _unpacked(tensor: Any) -> Array:
    """Elements of four bits, the lower half of a byte first."""
    raw = (
        tensor.raw_data
        if tensor.HasField("raw_data")
        else np.concatenate([np.empty(0, np.int64), *tensor.int32_data])
    )
    halves = np.asarray(raw).astype(np.uint8)[:, None] >> np.array([0, 4], np.uint8)
    found: Array = halves.reshape(-1)[: prod(tensor.dims)] & 15
    return found if tensor.data_type == Element.UINT4 else ((found ^ 8).astype(np.int8) - 8).astype(np.int8)


def nbytes_of(tensor: Any) -> int:
    """How many bytes the elements of a TensorProto take."""
    count: int = prod(tensor.dims)
    return (count + 1) // 2 if tensor.data_type in FOUR_BITS else count * dtype_of(tensor).itemsize


def bytes_of(value: Array, tensor: Any) -> memoryview:
    """Elements as a TensorProto of this type holds them."""
    if tensor.data_type not in FOUR_BITS:
        return np.ascontiguousarray(value, dtype_of(tensor).newbyteorder("<")).reshape(-1).view(np.uint8).data
    halves = np.zeros(2 * nbytes_of(tensor), np.uint8)
    halves[: value.size] = value.reshape(-1).astype(np.int8).view(np.uint8) & 15
    return np.asarray(halves[::2] | (halves[1::2] << 4)).data


def widened(bits: Array) -> Array:
    """The numbers of bfloat16 as float32, which begins with the same bits."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _by_onnx(tensor: Any) -> Array:
    """Types that need packages of their own."""
    from onnx import numpy_helper

    return np.asarray(numpy_helper.to_array(as_onnx("TensorProto", tensor)))
