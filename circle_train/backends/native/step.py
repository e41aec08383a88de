"""Bound kernels: single calls, and runs of them that native code walks at one go."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from circle_train.backends.native import abi
from circle_train.backends.native.codes import Kernel, Status
from circle_train.backends.native.library import Pool
from circle_train.errors import CircleTrainError, DataError
from circle_train.ir.tensor_type import Array
from circle_train.ops.gradient import NonFiniteLoss


@dataclass(slots=True)
class Call:
    """One kernel and its arguments, with what their pointers point to."""

    kernel: Kernel
    args: ctypes.Structure
    keep: tuple[Any, ...] = ()


@dataclass(slots=True, eq=False)
class NativeStep:
    """One node: the calls that compute it. A run on its own where it stands between nodes of the reference."""

    label: str
    calls: Sequence[Call]
    scratch: Scratch
    alone: NativeRun | None = field(default=None, repr=False)

    def __call__(self) -> None:
        if self.alone is None:
            self.alone = NativeRun([self], self.scratch)
        self.alone()


class Scratch:
    """Working memory shared by all programs of one engine: what the hungriest call needs, none of it kept."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.lock = threading.Lock()
        """Held during a run: the memory serves one at a time."""
        self._memory: Array = np.empty(0, np.uint8)

    def reserve(self, nbytes: int) -> Array:
        """At least so many bytes from a multiple of 64 on; who was given less before keeps what it has."""
        if self._memory.nbytes < nbytes:
            memory = np.empty(nbytes + 64, np.uint8)
            self._memory = memory[-memory.ctypes.data % 64 :]
        return self._memory


class NativeRun:
    """Consecutive native nodes as one call into the library; the interpreter's lock is released meanwhile."""

    def __init__(self, steps: Sequence[NativeStep], scratch: Scratch) -> None:
        self.steps = steps
        self.labels = [step.label for step in steps for _ in step.calls]
        calls = [call for step in steps for call in step.calls]
        self._keep = calls
        self._pool = scratch.pool
        self._array = (abi.Step * len(calls))()
        for slot, call in zip(self._array, calls, strict=True):
            slot.kernel, slot.args = int(call.kernel), ctypes.addressof(call.args)
        self.scratch_bytes = max(
            (scratch.pool.scratch_bytes(call.kernel, call.args) for call in calls), default=0
        )
        self._lock = scratch.lock
        self._memory = scratch.reserve(self.scratch_bytes)
        self._failed = ctypes.c_int64(-1)
        self._run: Callable[..., int] = scratch.pool.library.ct_run
        self._arguments = (
            scratch.pool.handle, self._array, len(calls), self._memory.ctypes.data,
            None, None, ctypes.addressof(self._failed),
        )  # fmt: skip

    def __call__(self) -> None:
        with self._lock:
            status = self._run(*self._arguments)
        if status:
            self._raise(status)

    def _raise(self, status: int) -> None:
        label = self.labels[self._failed.value]
        if status == Status.NOT_FINITE:
            guarded = self._keep[self._failed.value].keep[0]
            raise NonFiniteLoss(f"the loss is {float(np.sum(guarded))}")
        if status == Status.BAD_INDEX:
            raise DataError(
                f"{label}: an index or label lies outside its range; check the values of the data"
            )
        raise CircleTrainError(
            f"{label}: the native engine answered {Status(status).name}; reinstall circle-train"
        )
