"""Whatever holds numbers becomes the arrays a program reads, or is refused where meaning would be lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from circle_train.errors import DataError
from circle_train.ir import Tensor
from circle_train.ir.tensor_type import Array

NUMERIC = "fiub"
"""numpy's letters for float, signed, unsigned and bool."""


def coerce(value: Any, tensors: Sequence[Tensor], what: str) -> list[Array]:
    """One C-contiguous array for each tensor, of its shape and type; `what` is the argument's name."""
    if len(tensors) == 1 and type(value) is np.ndarray:
        return [to_tensor(value, tensors[0], what)]
    return [
        to_tensor(part, tensor, what)
        for part, tensor in zip(parts(value, tensors, what), tensors, strict=True)
    ]


def parts(value: Any, tensors: Sequence[Tensor], what: str) -> list[Any]:
    """What the caller gives for each tensor: one array, a list in order, or a dict by name.

    Tensors without elements, the labels of losses that take none, are not asked for.
    """
    if len(tensors) == 1 and isinstance(value, np.ndarray):
        return [value]
    wanted = [tensor for tensor in tensors if 0 not in tensor.shape[1:]]
    if len(wanted) < len(tensors):
        return _with_unwanted(value, tensors, wanted, what)
    if value is None:
        raise DataError(f"{what} is missing: give {_wanted(tensors)}")
    if isinstance(value, Mapping):
        return _by_name(value, tensors, what)
    if isinstance(value, (list, tuple)):
        if len(tensors) != 1:
            if len(value) != len(tensors):
                found = f"{len(value)} arrays"
                raise DataError(f"{what} holds {found}, expected {len(tensors)}: {_wanted(tensors)}")
            return list(value)
        if not value or getattr(value[0], "ndim", -1) != tensors[0].type.rank:
            return [value]
        if len(value) != 1:
            raise DataError(f"{what} holds {len(value)} arrays, expected 1: {_wanted(tensors)}")
        return [value[0]]
    if len(tensors) != 1:
        found = type(value).__name__
        raise DataError(f"{what} is one {found}, expected {len(tensors)} arrays: {_wanted(tensors)}")
    return [value]


def _with_unwanted(value: Any, tensors: Sequence[Tensor], wanted: Sequence[Tensor], what: str) -> list[Any]:
    """The caller's parts, and nothing for the tensors without elements (a data set brings that along)."""
    if isinstance(value, list) and len(value) == len(tensors):
        unwanted = [part for part, tensor in zip(value, tensors, strict=True) if tensor not in wanted]
        if not any(np.size(part) for part in unwanted):
            return value
    if not wanted and value is not None:
        raise DataError(f"{what} is given, but no loss takes labels; give None")
    given = iter(parts(value, wanted, what) if wanted else ())
    return [
        next(given) if tensor in wanted else np.empty(tensor.shape, tensor.dtype.numpy) for tensor in tensors
    ]


def count_samples(value: Any, tensors: Sequence[Tensor], what: str) -> int:
    """How many samples the value holds, counted along the first axis of its first array."""
    if not tensors:
        raise DataError("the model takes no inputs: there is nothing to learn from; check the file")
    first = value if type(value) is np.ndarray else parts(value, tensors, what)[0]
    shape = first.shape if isinstance(first, np.ndarray) else as_array(first, what).shape
    if not shape or not shape[0]:
        raise DataError(
            f"{what} has shape {_times(shape)}, expected at least one sample along the first axis"
        )
    return int(shape[0])


def shapes_of(value: Any, tensors: Sequence[Tensor], what: str) -> tuple[tuple[int, ...], ...]:
    """The shapes of the arrays, which differ from the tensors' only where these are open."""
    found = []
    for part, tensor in zip(parts(value, tensors, what), tensors, strict=True):
        shape = part.shape if isinstance(part, np.ndarray) else as_array(part, what).shape
        check_shape(shape, Tensor(tensor.name, tensor.type.with_shape(open_shape(tensor))), what)
        if 0 in shape:
            raise DataError(
                f"{what}: '{public_name(tensor)}' has shape {_times(shape)}, expected something in it"
            )
        found.append(tuple(shape))
    return tuple(found)


def open_shape(tensor: Tensor) -> tuple[int, ...]:
    """The shape, -1 for what the model leaves open."""
    signature = tensor.shape_signature
    return signature if signature is not None and len(signature) == tensor.type.rank else tensor.shape


def _by_name(value: Mapping[str, Any], tensors: Sequence[Tensor], what: str) -> list[Any]:
    names = [public_name(tensor) for tensor in tensors]
    missing = [name for name in names if name not in value]
    unknown = [str(name) for name in value if name not in names]
    if missing or unknown:
        found = ", ".join(f"'{name}'" for name in value) or "nothing"
        raise DataError(f"{what} holds {found}; expected exactly {', '.join(repr(name) for name in names)}")
    return [value[name] for name in names]


def public_name(tensor: Tensor) -> str:
    """An input's own name; for a target the name of the output that it belongs to."""
    name = tensor.name
    return name[len("target(") : -1] if name.startswith("target(") and name.endswith(")") else name


def _wanted(tensors: Sequence[Tensor]) -> str:
    return ", ".join(f"'{public_name(t)}' of {t.type}" for t in tensors)


def to_tensor(value: Any, tensor: Tensor, what: str) -> Array:
    """The value as the tensor's array; costs next to nothing where it already is."""
    dtype, shape = tensor.dtype.numpy, tensor.shape
    if type(value) is np.ndarray and value.dtype == dtype and value.shape == shape:
        return value if value.flags.c_contiguous else np.ascontiguousarray(value)
    is_plain = type(value) is np.ndarray and value.dtype.kind in NUMERIC
    array = value if is_plain else as_array(value, f"{what}: '{public_name(tensor)}'")
    if array.shape != shape:
        check_shape(array.shape, tensor, what)
    if dtype is None:
        raise DataError(f"{what}: '{public_name(tensor)}' is of {tensor.type}, which no array holds")
    converted = convert(array, dtype, f"{what}: '{public_name(tensor)}'")
    return converted if -1 in shape or converted.shape == shape else converted.reshape(shape)


def as_array(value: Any, place: str) -> Array:
    """A numpy array of numbers, in whatever layout and type it comes."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise DataError(f"{place} has masked elements, expected a plain array; fill them first")
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:  # torch raises the last
        found = str(error).rstrip(".")
        raise DataError(f"{place} cannot be read as an array: {found}; give an array of numbers") from None
    if array.dtype.kind not in NUMERIC:
        raise DataError(f"{place} has element type {array.dtype}, expected numbers (float, int or bool)")
    return array


def check_shape(found: Sequence[int], tensor: Tensor, what: str, any_count: bool = False) -> None:
    """Refuse another shape; axes of size 1 behind the first may be missing or too many."""
    wanted = open_shape(tensor) if any_count else tensor.shape
    if any_count and wanted and found:
        wanted = (found[0], *wanted[1:])
    if len(found) == len(wanted) and all(w in (-1, f) for f, w in zip(found, wanted, strict=True)):
        return
    if -1 not in wanted and _essential(found) == _essential(wanted):
        return
    expected = _times(["N", *wanted[1:]] if any_count else wanted)
    place = f"{what}: '{public_name(tensor)}'"
    raise DataError(f"{place} has shape {_times(found)}, expected {expected}{_hint(found, tensor)}")


def _essential(shape: Sequence[int]) -> list[int]:
    return [*shape[:1], *(size for size in shape[1:] if size != 1)]


def _times(shape: Sequence[object]) -> str:
    return "×".join(map(str, shape)) or "a scalar"


def _hint(found: Sequence[int], tensor: Tensor) -> str:
    """What is likely meant: the other kind of label, or one sample without its batch axis."""
    is_target = public_name(tensor) != tensor.name
    is_dense = tensor.dtype.is_float
    sample = list(tensor.shape[1:])
    if is_target and is_dense and list(found[1:]) == sample[:-1] and sample:
        return f"; give one-hot rows of {sample[-1]}, or use SparseCategoricalCrossentropy for class numbers"
    if is_target and not is_dense and list(found[1:-1]) == sample and len(found) == len(sample) + 2:
        return "; give class numbers, or use CategoricalCrossentropy for one-hot rows"
    if list(found) == sample:
        return "; add a first axis for the samples"
    signature = tensor.shape_signature or ()
    if len(found) == len(signature) and -1 in signature[1:]:
        fixed = (-1, *found[1:])
        return f"; the model leaves sizes open that training fixes: ct.load(path, shapes={{'{tensor.name}': {fixed}}})"
    return ""


def convert(array: Array, dtype: np.dtype[Any], place: str) -> Array:
    """The same numbers in another element type, C-contiguous; refused where one would change its meaning."""
    if array.dtype == dtype or np.can_cast(array.dtype, dtype, "safe"):
        return np.ascontiguousarray(array, dtype)
    converted, lost = (
        _converted(array, dtype) if "f" in (array.dtype.kind, dtype.kind) else _whole(array, dtype)
    )
    if lost.any():
        position = tuple(map(int, np.argwhere(lost)[0]))
        at = position[0] if len(position) == 1 else position
        found = f"{array[position]} at position {at}"
        raise DataError(f"{place} holds {found}, which {dtype} cannot hold; expected numbers that it can")
    return converted


def _whole(array: Array, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """Integers as others, and which of them are not the same."""
    converted = array.astype(dtype, order="C")
    return converted, np.asarray(converted != array)


def _converted(array: Array, dtype: np.dtype[Any]) -> tuple[Array, Any]:
    """To or from floats, and what of it means something else."""
    with np.errstate(over="ignore", invalid="ignore"):
        converted = array.astype(dtype, order="C")
        if dtype.kind == array.dtype.kind == "f":
            lost = np.isinf(converted) & np.isfinite(array) if _has_infinite(converted) else np.False_
        elif dtype.kind == "f":
            lost = converted.astype(array.dtype) != array
        else:
            lost = converted != array
    return converted, lost


def _has_infinite(array: Array) -> bool:
    return not np.isfinite(array.sum(dtype=np.float64))
