"""Memory from the system: a large piece on huge pages where they come fast, all of it there before it is used."""

from __future__ import annotations

import mmap
import time
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from numpy.lib.stride_tricks import as_strided

from circle_train.available import available_bytes
from circle_train.errors import ModelError
from circle_train.ir import TensorType
from circle_train.ir.tensor_type import Array

CACHE_LINE = 64
HUGE_PAGE = 2 << 20
POPULATE_WRITE = 23
"""Linux's MADV_POPULATE_WRITE, which Python does not name."""
PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
"""Python maps memory shared, which Linux does not put on huge pages and a forked process would write to."""
HAS_HUGE_PAGES = hasattr(mmap, "MADV_HUGEPAGE")
LARGE = 64 << 20
"""Bytes from which the system is asked whether it has them."""
LARGEST = 1 << 40
"""Bytes; a plan beyond is a damaged or absurd model."""


def allocate(nbytes: int) -> Array:
    """Zeros, aligned to a cache line."""
    _require(nbytes)
    try:
        if nbytes < HUGE_PAGE:
            memory = np.zeros(nbytes + CACHE_LINE, np.uint8)
            return memory[-memory.ctypes.data % CACHE_LINE :][:nbytes]
        mapping = mmap.mmap(-1, nbytes, **PRIVATE)
    except (MemoryError, OSError):
        raise _refusal(nbytes) from None
    if HAS_HUGE_PAGES:
        _populate(mapping, nbytes)
    return np.frombuffer(mapping, np.uint8)


def untouched(nbytes: int) -> Array:
    """Addresses that nobody is going to read or write, to bind steps that will not be taken: no memory lies there."""
    if nbytes > LARGEST:
        _require(nbytes)
    return as_strided(allocate(CACHE_LINE), (nbytes,), (1,))


def _require(nbytes: int) -> None:
    """Refuse what the machine does not have before taking it from everybody else."""
    if nbytes > LARGEST:
        raise ModelError(
            f"the program needs {nbytes} bytes of memory: the model's shapes are absurd or damaged"
        )
    free = available_bytes() if nbytes >= LARGE else None
    if free is not None and nbytes > free:
        raise _refusal(nbytes, f"; {free} are free")


def _refusal(nbytes: int, beside: str = "") -> ModelError:
    return ModelError(
        f"the program needs {nbytes} bytes of memory, which this machine does not have{beside}; use a smaller batch, "
        "or set memory_budget"
    )


def _populate(mapping: mmap.mmap, nbytes: int) -> None:
    """Have the pages made now, huge ones as long as they come faster than small ones.

    They mostly do, ten times; but a virtual machine gets huge pages from its host, which may have taken them back,
    and small ones from what it still holds.
    """
    try:
        patience = _timed(mapping, mmap.MADV_NOHUGEPAGE, 0, min(HUGE_PAGE, nbytes))
        kind = mmap.MADV_HUGEPAGE
        for start in range(HUGE_PAGE, nbytes, HUGE_PAGE):
            taken = _timed(mapping, kind, start, min(HUGE_PAGE, nbytes - start))
            if taken > patience:
                kind = mmap.MADV_NOHUGEPAGE
    except OSError:  # an older kernel: pages then come one by one, as they are touched
        mapping.madvise(mmap.MADV_HUGEPAGE)


def _timed(mapping: mmap.mmap, kind: int, start: int, nbytes: int) -> float:
    """Seconds that pages of this kind take."""
    began = time.perf_counter()
    mapping.madvise(kind, start, nbytes)
    mapping.madvise(POPULATE_WRITE, start, nbytes)
    return time.perf_counter() - began


def zeros(types: Sequence[TensorType]) -> list[Array]:
    """An array for each type, side by side in one piece of memory."""
    sizes = [-(-type_.nbytes // CACHE_LINE) * CACHE_LINE for type_ in types]
    starts = [0, *accumulate(sizes)]
    memory = allocate(starts[-1])
    return [
        np.ndarray(type_.shape, type_.dtype.numpy, memory, start)
        for start, type_ in zip(starts, types, strict=False)
    ]


def copies(arrays: Sequence[Array]) -> list[Array]:
    """For whoever asked for results, which may take more than is left beside the program."""
    try:
        return [array.copy() for array in arrays]
    except MemoryError:
        raise _refusal(sum(array.nbytes for array in arrays)) from None


def aligned(array: Array) -> Array:
    """The array where kernels can read it: a file may hold numbers at any byte."""
    return np.require(array, requirements="A")
