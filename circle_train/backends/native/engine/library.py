"""Finding and loading the compiled kernels; pools of threads."""

from __future__ import annotations

import ctypes
import os
from ctypes import byref, c_int32, c_int64
from functools import lru_cache

from circle_train.backends.native.engine import abi
from circle_train.backends.native.engine.abi import Tier
from circle_train.errors import ConfigError
from circle_train.ir.tensor_type import Array

FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def path() -> str | None:
    """The compiled library beside this folder, whatever its suffix is on this system."""
    return next(
        (os.path.join(FOLDER, name) for name in sorted(os.listdir(FOLDER)) if _is_library(name)), None
    )


def _is_library(name: str) -> bool:
    return "circle_train_native" in name and name.endswith((".so", ".dylib", ".dll"))


@lru_cache(maxsize=1)
def load() -> ctypes.CDLL | None:
    """The library with its functions declared; None where it was not built or does not fit this package."""
    found = path()
    if found is None:
        return None
    try:
        library = ctypes.CDLL(found)
    except OSError:  # built for another machine: the reference runs
        return None
    library.ct_abi_version.restype = c_int32
    return declare(library) if library.ct_abi_version() == abi.ABI_VERSION else None


def declare(library: ctypes.CDLL) -> ctypes.CDLL:
    """Say what its functions take and give."""
    for name, result, arguments in abi.FUNCTIONS:
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class Workers:
    """Threads that run steps, at one SIMD tier; destroyed with the last program that uses them."""

    def __init__(self, threads: int | None, tier: Tier = Tier.AUTO) -> None:
        library = load()
        if library is None:
            raise ConfigError(
                "backend 'native' was not built for this release: install a C++ compiler and reinstall circle-train"
            )
        count = threads or available_cores()
        self.library = library
        self.threads = count
        self.handle: int | None = library.ct_workers_create(count, int(tier))
        if not self.handle:
            raise ConfigError(
                f"this processor cannot run {tier.name} code; its best is {Tier(library.ct_best_tier()).name}"
            )

    @property
    def has_bfloat16_products(self) -> bool:
        """Whether this tier on this processor has an instruction for products of bfloat16s."""
        return bool(self.library.ct_workers_has_bf16(self.handle))

    def scratch_bytes(self, kernel: int, args: ctypes.Structure) -> int:
        """Working memory that one call needs."""
        return int(self.library.ct_scratch_bytes(self.handle, kernel, byref(args)))

    def run(self, kernel: int, args: ctypes.Structure, scratch: Array) -> None:
        """One call, alone, whose working memory is given."""
        step, failed = abi.Step(ctypes.addressof(args), int(kernel)), c_int64(-1)
        status = self.library.ct_run(self.handle, byref(step), 1, scratch.ctypes.data, byref(failed))
        assert status == abi.Status.OK, f"kernel {kernel} answered {status}"

    def __del__(self) -> None:
        handle, self.handle = getattr(self, "handle", None), None
        if handle:
            self.library.ct_workers_destroy(handle)


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
