"""Memory from the system."""

from __future__ import annotations

import mmap
import os

import numpy as np
import pytest

import circle_train as ct
from circle_train.ir import DType, TensorType
from circle_train.ir.mapped import mapped
from circle_train.runtime import pages


@pytest.mark.parametrize(
    "nbytes", [0, 1, 4096, pages.HUGE_PAGE - 1, pages.HUGE_PAGE, 5 * pages.HUGE_PAGE + 17]
)
def test_memory_is_zero_and_aligned(nbytes: int) -> None:
    memory = pages.allocate(nbytes)
    assert memory.shape == (nbytes,) and memory.flags.writeable and not memory.any()
    assert nbytes == 0 or memory.ctypes.data % pages.CACHE_LINE == 0


def test_large_memory_is_there_before_it_is_used() -> None:
    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * mmap.PAGESIZE

    before = resident()
    memory = pages.allocate(64 << 20)
    assert resident() - before >= 0.95 * memory.nbytes


def test_arrays_lie_side_by_side() -> None:
    types = [
        TensorType(DType.FLOAT32, (3, 5)),
        TensorType(DType.INT64, ()),
        TensorType(DType.FLOAT32, (0, 4)),
    ]
    first, second, third = arrays = pages.zeros(types)
    assert [(a.shape, a.dtype) for a in arrays] == [(t.shape, t.dtype.numpy) for t in types]
    first.fill(7)
    assert second == 0 and third.size == 0 and first.ctypes.data % pages.CACHE_LINE == 0
    assert second.ctypes.data - first.ctypes.data == pages.CACHE_LINE
    assert pages.zeros([]) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_has_memory_of_its_own() -> None:
    memory = pages.allocate(2 * pages.HUGE_PAGE)
    child = os.fork()
    if child == 0:
        memory.fill(1)
        os._exit(0)
    os.waitpid(child, 0)
    assert not memory.any()


def test_an_absurd_size_is_refused() -> None:
    with pytest.raises(ct.ModelError, match="absurd or damaged"):
        pages.allocate(pages.LARGEST + 1)


def test_only_files_are_given_back() -> None:
    """What a session trains lies in mapped memory too, which must never be dropped."""
    assert mapped(pages.allocate(3 * pages.HUGE_PAGE)[10:20].view(np.uint8)) is None
    with open(__file__, "rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    assert mapped(np.frombuffer(mapping, np.uint8)[5:].reshape(1, -1)) is mapping
