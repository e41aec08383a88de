"""Calls the kernel library directly, in any tier and thread count; its structures are read out of abi.h."""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from circle_train.backends.native.engine import library

ABI = Path(__file__).resolve().parents[3] / "circle_train/backends/native/kernels/run/abi.h"
LIBRARY = os.environ.get("CT_NATIVE_LIBRARY") or library.path()
if LIBRARY is None:
    pytest.skip("the native engine was not built", allow_module_level=True)

THREADS = [int(count) for count in os.environ.get("CT_TEST_THREADS", "1 2 3 8").split()]
"""How many threads each kernel is run by; valgrind, for which all are one, takes fewer."""

SCALARS: dict[str, Any] = {"int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64, "float": ctypes.c_float}


def _read_abi() -> tuple[dict[str, int], dict[str, Any], dict[str, str]]:
    """Constants, structure classes, and which structure each kernel id takes."""
    text = ABI.read_text()
    takes = dict(re.findall(r"CT_(\w+) = \d+,\s*/\* (ct_\w+_args) \*/", text))
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    constants = {name: int(value) for name, value in re.findall(r"\b(CT_\w+) = (-?\d+)", text)}
    constants |= {name: int(value) for name, value in re.findall(r"#define (CT_\w+) (\d+)\n", text)}
    structures: dict[str, Any] = {}
    for body, name in re.findall(r"typedef struct ct_\w+ \{(.*?)\} (ct_\w+);", text, flags=re.S):
        fields: list[Any] = []
        for kind, star, field, extent in re.findall(r"(?:const )?(\w+)(\*?) (\w+)(?:\[(\w+)\])?;", body):
            base: Any = ctypes.c_void_p if star else structures.get(kind) or SCALARS[kind]
            fields.append((field, base * constants[extent] if extent else base))
        attributes: dict[str, Any] = {"_fields_": fields}
        structures[name] = type(name, (ctypes.Structure,), attributes)
    return constants, structures, takes


CONSTANTS, STRUCTURES, TAKES = _read_abi()

lib = ctypes.CDLL(str(LIBRARY))
lib.ct_pool_create.restype = ctypes.c_void_p
lib.ct_pool_create.argtypes = [ctypes.c_int32, ctypes.c_int32]
lib.ct_pool_destroy.argtypes = [ctypes.c_void_p]
lib.ct_args_size.restype = ctypes.c_int64
lib.ct_kernel_name.restype = ctypes.c_char_p
lib.ct_scratch_bytes.restype = ctypes.c_int64
lib.ct_scratch_bytes.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p]
_run_arguments: list[Any] = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64] + [ctypes.c_void_p] * 4
lib.ct_run.argtypes = _run_arguments

_pools: dict[tuple[int, int], int] = {}


def pool(threads: int = 2, tier: int = -1) -> int:
    """A pool that lives as long as the process."""
    if (threads, tier) not in _pools:
        _pools[threads, tier] = lib.ct_pool_create(threads, tier)
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
        return ctypes.addressof(keep[field + "_array"])
    return kind(*value) if isinstance(value, list | tuple) else value


def struct(name: str, **values: Any) -> Any:
    """A structure by name; arrays become their addresses, lists fill fixed arrays, the rest is zero."""
    made = STRUCTURES[name]()
    made._keep = dict(values)
    kinds = dict(STRUCTURES[name]._fields_)
    for field, value in values.items():
        setattr(made, field, _as_field(value, kinds[field], made._keep, field))
    return made


class Program:
    """Bound steps with their scratch."""

    def __init__(self, steps: list[tuple[str, Any]], threads: int = 2, tier: int = -1) -> None:
        self.pool = pool(threads, tier)
        self.steps = (STRUCTURES["ct_step"] * len(steps))()
        self.keep = steps
        most = 0
        for i, (kernel, args) in enumerate(steps):
            number = CONSTANTS["CT_" + kernel]
            assert type(args).__name__ == TAKES[kernel], kernel
            self.steps[i].kernel, self.steps[i].args = number, ctypes.addressof(args)
            most = max(most, lib.ct_scratch_bytes(self.pool, number, ctypes.addressof(args)))
        # Exactly sized, so that the sanitizers see an overrun.
        self.memory = np.full(most + 64, 0xFF, np.uint8)
        self.scratch = (self.memory.ctypes.data + 63) // 64 * 64
        self.times = np.zeros(len(steps), np.int64)

    def run(self, times: bool = False) -> int:
        """One walk; the status."""
        at = self.times.ctypes.data if times else None
        return int(
            lib.ct_run(self.pool, ctypes.addressof(self.steps), len(self.steps), self.scratch, None, at, None)
        )


def run(kernel: str, args: Any, threads: int = 2, tier: int = -1) -> int:
    """One kernel, once."""
    return Program([(kernel, args)], threads, tier).run()
