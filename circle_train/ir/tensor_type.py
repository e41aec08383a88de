"""What is known of a tensor before it is computed: element type, shape, and sometimes its value."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from circle_train.record import record

Array = NDArray[Any]


class DType(enum.IntEnum):
    """Element types; the numbers are the file format's."""

    MXINT8 = -7
    MXFP4 = -6
    GGML_Q8_1 = -5
    GGML_Q8_0 = -4
    GGML_Q4_1 = -3
    GGML_Q4_0 = -2
    UINT4 = -1
    FLOAT32 = 0
    FLOAT16 = 1
    INT32 = 2
    UINT8 = 3
    INT64 = 4
    STRING = 5
    BOOL = 6
    INT16 = 7
    COMPLEX64 = 8
    INT8 = 9
    FLOAT64 = 10
    COMPLEX128 = 11
    UINT64 = 12
    RESOURCE = 13
    VARIANT = 14
    UINT32 = 15
    UINT16 = 16
    INT4 = 17
    BFLOAT16 = 18

    @property
    def numpy(self) -> np.dtype[Any] | None:
        """The numpy dtype that holds one element, or None where numpy has none."""
        return _NUMPY.get(self)

    @property
    def is_float(self) -> bool:
        return self in _FLOATS

    @classmethod
    def of(cls, dtype: np.dtype[Any] | type) -> DType:
        """The element type of a numpy dtype."""
        return _FROM_NUMPY[np.dtype(dtype)]


_FLOATS = (DType.FLOAT32, DType.FLOAT16, DType.FLOAT64, DType.BFLOAT16)
_NUMPY: dict[DType, np.dtype[Any]] = {
    DType.FLOAT32: np.dtype(np.float32),
    DType.FLOAT16: np.dtype(np.float16),
    DType.FLOAT64: np.dtype(np.float64),
    DType.INT8: np.dtype(np.int8),
    DType.INT16: np.dtype(np.int16),
    DType.INT32: np.dtype(np.int32),
    DType.INT64: np.dtype(np.int64),
    DType.UINT8: np.dtype(np.uint8),
    DType.UINT16: np.dtype(np.uint16),
    DType.UINT32: np.dtype(np.uint32),
    DType.UINT64: np.dtype(np.uint64),
    DType.BOOL: np.dtype(np.bool_),
    DType.COMPLEX64: np.dtype(np.complex64),
    DType.COMPLEX128: np.dtype(np.complex128),
}
_FROM_NUMPY = {numpy_dtype: dtype for dtype, numpy_dtype in _NUMPY.items()}


@record
class Quantization:
    """real = scale * (stored - zero_point), per tensor or along `axis`."""

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int = 0

    def is_along(self, axis: int | None) -> bool:
        """Whether the entries of that axis have scales of their own."""
        return len(self.scale) > 1 and self.axis == axis


@dataclass(frozen=True)
class TensorType:
    """Element type and shape (-1: known only at run time); `value` where it is known before running."""

    dtype: DType
    shape: tuple[int, ...]
    value: Array | None = field(default=None, compare=False, repr=False)
    quantization: Quantization | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, array: Array) -> TensorType:
        """An array's, without its values."""
        return cls(DType.of(array.dtype), array.shape)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        return all(dim >= 0 for dim in self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements; 0 where numpy cannot hold them."""
        return self.size * (self.dtype.numpy.itemsize if self.dtype.numpy is not None else 0)

    def with_shape(self, shape: tuple[int, ...]) -> TensorType:
        """The same element type in another shape."""
        return TensorType(self.dtype, shape)

    def __str__(self) -> str:
        dims = "×".join("?" if dim < 0 else str(dim) for dim in self.shape)
        return f"{self.dtype.name.lower()} {dims or 'scalar'}"
