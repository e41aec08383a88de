"""Inputs that are no samples: their values are given once, and they become constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from circle_train.errors import ConfigError
from circle_train.ir import Buffer, DType, Graph, TensorType
from circle_train.ir.tensor_type import Array


def fix_inputs(graph: Graph, values: Mapping[str, Any]) -> None:
    """Make inputs of these names constants of these values."""
    inputs = {tensor.name: tensor for tensor in graph.inputs}
    for name, value in values.items():
        require_input(name, inputs)
        tensor = inputs[name]
        signature = tensor.shape_signature
        known = signature if signature is not None and len(signature) == tensor.type.rank else tensor.shape
        array = np.ascontiguousarray(value_of(name, value, tensor.dtype, known))
        tensor.type = TensorType(tensor.dtype, array.shape)
        tensor.shape_signature, tensor.buffer = None, Buffer(array.reshape(-1).view(np.uint8))
        graph.inputs.remove(tensor)


def require_input(name: str, inputs: Mapping[str, Any]) -> None:
    """Refuse a name that no input has."""
    if name not in inputs:
        raise ConfigError(f"inputs gives '{name}' a value, the model's inputs are {', '.join(inputs)}")


def value_of(name: str, value: Any, dtype: DType, shape: Sequence[int | str]) -> Array:
    """The value in the input's element type and rank; it serves every entry of an axis where it has only one."""
    array = _of_type(name, value, dtype)
    if array.size == 1:
        array = array.reshape((1,) * len(shape))
    fits = array.ndim == len(shape) and all(
        found in (1, size) or not isinstance(size, int) or size < 0
        for found, size in zip(array.shape, shape, strict=True)
    )
    if not fits or 0 in array.shape:
        sizes = "×".join("any" if not isinstance(n, int) or n < 0 else str(n) for n in shape)
        found = "×".join(map(str, array.shape)) or "a scalar"
        raise ConfigError(
            f"inputs gives '{name}' as {found}, expected {sizes or 'a scalar'}, or one number for all of it"
        )
    fixed = [
        size if isinstance(size, int) and size >= 0 else found
        for found, size in zip(array.shape, shape, strict=True)
    ]
    return np.broadcast_to(array, fixed)


def _of_type(name: str, value: Any, dtype: DType) -> Array:
    """The same numbers in the input's element type."""
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError):  # torch raises the last
        array = np.empty(0, object)
    if array.dtype.kind not in "fiub" or dtype.numpy is None:
        raise ConfigError(f"inputs gives '{name}' as {type(value).__name__}, expected numbers: {dtype.name}")
    with np.errstate(all="ignore"):
        converted = array.astype(dtype.numpy)
    if not dtype.is_float and np.any(converted != array):
        raise ConfigError(f"inputs gives '{name}' numbers that {dtype.name} cannot hold; give others")
    return converted
