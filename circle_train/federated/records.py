"""What travels: trained parameters by name, then the statistics that training moves; nothing that stays as it was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from io import BytesIO
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord

from circle_train.errors import DataError, shown
from circle_train.ir.tensor_type import Array as Numbers
from circle_train.runtime.guard import is_spoiled
from circle_train.session import TrainSession

STORED_AS = "numpy.ndarray"
"""How Flower names numpy's own file format."""


def names(session: TrainSession) -> list[str]:
    """Of what travels, in order: trained parameters, then the running means and variances that move."""
    known = session.state.parameters
    order = list(session.parameters)
    return [n for n in order if known[n].trained] + [n for n in order if known[n].moves]


def values(session: TrainSession) -> dict[str, Numbers]:
    """What travels as contiguous float32 arrays, copied, in the layouts of the file that was loaded."""
    parameters = session.parameters
    return {name: np.array(parameters[name], np.float32, order="C") for name in names(session)}


def arrays(session: TrainSession) -> ArrayRecord:
    """A session's trained parameters and moving statistics as a Flower record.

    Names, order and layouts are those of `session.parameters`: of an ONNX model its initializers'.
    """
    return record_of(values(session))


def load(session: TrainSession, record: ArrayRecord) -> None:
    """Take over a record: exactly these names, shapes and finite numbers, or DataError and nothing is changed."""
    put(session, judged(record, {name: session.parameters[name].shape for name in names(session)}))


def put(session: TrainSession, found: Mapping[str, Numbers]) -> None:
    """Set what was judged."""
    parameters = session.parameters
    for name, array in found.items():
        parameters[name] = array


def flat(record: ArrayRecord) -> Numbers:
    """One float32 vector as ONNX Runtime's `get_contiguous_parameters` gives it, of a record without statistics."""
    parts = [decoded(array).ravel() for array in record.values()]
    return np.concatenate([np.empty(0, np.float32), *parts], dtype=np.float32)


def from_flat(session: TrainSession, vector: Any) -> ArrayRecord:
    """The record for a vector of the session's trained parameters, as `session.parameters.flat()` orders them."""
    trained = session.parameters.trainable()
    numbers = np.asarray(vector, np.float32)
    total = sum(array.size for array in trained.values())
    if numbers.shape != (total,):
        raise DataError(
            f"from_flat: the vector has shape {numbers.shape}, the trained parameters take ({total},)"
        )
    cuts = np.split(numbers, np.cumsum([array.size for array in trained.values()])[:-1])
    whole = values(session)
    whole.update({n: c.reshape(trained[n].shape) for n, c in zip(trained, cuts, strict=True)})
    return record_of(whole)


def record_of(found: Mapping[str, Numbers]) -> ArrayRecord:
    """The arrays as a record, in their order."""
    record = ArrayRecord()
    for name, array in found.items():
        record[name] = encoded(array)
    return record


def judged(record: Mapping[str, Array], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Numbers]:
    """The record's numbers in this order, as float32; DataError names the first thing that does not fit."""
    for sentence in _strangers(record, shapes):
        raise DataError(f"{sentence}; both sides need the same model and the same choice of what is trained")
    found = {name: _floats(name, record[name], shape) for name, shape in shapes.items()}
    for name, array in found.items():
        if is_spoiled(array):
            count = int((~np.isfinite(array)).sum())
            raise DataError(f"array '{name}' holds {count} numbers that are not finite, expected none")
    return found


def _strangers(record: Mapping[str, Array], shapes: Mapping[str, tuple[int, ...]]) -> Iterator[str]:
    yield from (
        f"array '{name}' is missing among the {len(record)} given" for name in shapes if name not in record
    )
    yield from (
        f"array '{name}' is none of the {len(shapes)} expected" for name in record if name not in shapes
    )


def _floats(name: str, array: Array, shape: tuple[int, ...]) -> Numbers:
    try:
        kind, announced = _announced(array)
        found = decoded(array) if kind == "f" and announced == shape else None
    except Exception as error:  # numpy reads headers by Python's parser, which raises what it likes
        raise DataError(f"array '{name}' cannot be read ({shown(error)}); expected numpy's format") from None
    if found is None:
        raise DataError(f"array '{name}' is {array.dtype} {announced}, expected float32 {shape}")
    if found.dtype == np.float32:
        return found
    with np.errstate(over="ignore"):
        return found.astype(np.float32)


def _announced(array: Array) -> tuple[str, tuple[int, ...]]:
    """The kind of numbers and the shape that stand before them: memory would be taken for what these say."""
    said = tuple(array.shape)
    if array.stype != STORED_AS or array.data.startswith(_head("<f4", said)):
        return "f", said
    file = BytesIO(array.data)
    version = np.lib.format.read_magic(file)
    readers = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}
    shape, _, dtype = readers[min(version[0], 2)](file)
    return dtype.kind, tuple(shape)


def encoded(array: Numbers) -> Array:
    """As `Array(array)`, in a quarter of the time."""
    dtype = array.dtype
    name = "float32" if dtype == np.float32 else dtype.name
    return Array(name, array.shape, STORED_AS, _head(dtype.str, array.shape) + array.tobytes())


def decoded(array: Array) -> Numbers:
    """As `array.numpy()`, without reading a header that is the expected one."""
    dtype = np.dtype(array.dtype)
    head = _head(dtype.str, tuple(array.shape)) if dtype.kind == "f" else b"-"
    if array.stype == STORED_AS and array.data.startswith(head):
        return np.frombuffer(array.data, dtype, offset=len(head)).reshape(array.shape)
    return array.numpy()


@lru_cache(maxsize=4096)
def _head(dtype: str, shape: tuple[int, ...]) -> bytes:
    """What stands before the numbers in numpy's format."""
    file = BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
    return file.getvalue()
