"""Calls the kernel library directly, in any tier and thread count."""

from __future__ import annotations

import ctypes
import os
from typing import Any

import numpy as np
import pytest

from circle_train.backends.native.engine import abi, library

LIBRARY = os.environ.get("CT_NATIVE_LIBRARY") or library.path()
if LIBRARY is None:
    pytest.skip("the native engine was not built", allow_module_level=True)

THREADS = [int(count) for count in os.environ.get("CT_TEST_THREADS", "1 2 3 8").split()]
"""How many threads each kernel is run by; valgrind, for which all are one, takes fewer."""
SAMPLES = int(os.environ.get("CT_TEST_SAMPLES", "100"))
"""With how many extents each kernel is tried; valgrind takes fewer."""


def is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, ctypes.Structure) and kind is not ctypes.Structure


STRUCTURES = {kind.__doc__.rstrip("."): kind for kind in vars(abi).values() if is_struct(kind)}
lib = library.declare(ctypes.CDLL(str(LIBRARY)))

_pools: dict[tuple[int, int], int] = {}


def pool(threads: int = 2, tier: int = -1) -> int:
    """A pool that lives as long as the process."""
    if (threads, tier) not in _pools:
        _pools[threads, tier] = lib.ct_workers_create(threads, tier)
    return _pools[threads, tier]


def tiers() -> list[int]:
    """The tiers this processor can run."""
    return [t for t in (0, 1, 2) if pool(1, t)]


def _as_field(value: Any, kind: Any, keep: dict[str, Any], field: str) -> Any:
    """What a structure's field is set to; arrays made on the way are kept alive in `keep`."""
    if isinstance(value, np.ndarray):
        assert value.dtype != np.float64, field
        return value.ctypes.data
    if isinstance(value, list) and value and isinstance(value[0], ctypes.Structure):
        keep[field + "_array"] = (type(value[0]) * len(value))(*value)
        return keep[field + "_array"]
    return kind(*value) if isinstance(value, list | tuple) else value


def struct(name: str, **values: Any) -> Any:
    """A structure by name; arrays become their addresses, lists fill fixed arrays, the rest is zero."""
    made = STRUCTURES[name]()
    made._keep = dict(values)
    kinds = dict(STRUCTURES[name]._fields_)
    for field, value in values.items():
        setattr(made, field, _as_field(value, kinds[field], made._keep, field))
    return made


BEHIND = 1 << 16
"""Bytes behind the scratch that no kernel may touch."""


class Program:
    """Bound steps with their scratch."""

    def __init__(self, steps: list[tuple[str, Any]], threads: int = 2, tier: int = -1) -> None:
        self.pool = pool(threads, tier)
        self.steps = (STRUCTURES["ct_step"] * len(steps))()
        self.keep = steps
        self.size = 0
        for i, (kernel, args) in enumerate(steps):
            number = abi.Kernel[kernel]
            assert type(args) is abi.ARGS[number], kernel
            self.steps[i].kernel, self.steps[i].args = number, ctypes.addressof(args)
            asked = lib.ct_scratch_bytes(self.pool, number, ctypes.addressof(args))
            self.size = max(self.size, asked)
        self.memory = np.full(self.size + BEHIND + abi.ALIGNMENT, 0xFF, np.uint8)
        self.scratch = -(-self.memory.ctypes.data // abi.ALIGNMENT) * abi.ALIGNMENT
        self.behind = self.memory[self.scratch - self.memory.ctypes.data + self.size :]

    def run(self) -> int:
        """One walk, which wrote nothing behind the scratch it asked for; the status."""
        self.failed = ctypes.c_int64(-1)
        failed = ctypes.addressof(self.failed)
        status = int(lib.ct_run(self.pool, self.steps, len(self.steps), self.scratch, failed))
        assert (self.behind == 0xFF).all(), "written behind the scratch"
        return status


def run(kernel: str, args: Any, threads: int = 2, tier: int = -1) -> int:
    """One kernel, once."""
    return Program([(kernel, args)], threads, tier).run()
