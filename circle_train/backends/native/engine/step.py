"""Bound kernels: single calls, and runs of them that native code walks at one go."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import field
from time import perf_counter
from typing import Any
from weakref import WeakSet

import numpy as np

from circle_train.backends.native.engine import abi
from circle_train.backends.native.engine.abi import Kernel, Status
from circle_train.backends.native.engine.library import Workers
from circle_train.errors import CircleTrainError, DataError
from circle_train.ir.tensor_type import Array
from circle_train.ops.internal.gradient import GuardFinite
from circle_train.record import mutable


@mutable
class Call:
    """One kernel and its arguments, with what their pointers point to."""

    kernel: Kernel
    args: ctypes.Structure
    keep: tuple[Any, ...] = ()


@mutable
class NativeStep:
    """One node: the calls that compute it. A run on its own where it stands between nodes of the reference."""

    label: object
    """What it says of itself, if anybody asks."""
    calls: Sequence[Call]
    scratch: Scratch
    nbytes: int = 0
    """What was made for its kernels when it was bound: packed weights, tables."""
    alone: NativeRun | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        # Before any run is made: they all share what the hungriest step of the program needs.
        self.scratch.reserve(self.calls)

    def __call__(self) -> None:
        if self.alone is None:
            self.alone = NativeRun([self], self.scratch)
        self.alone()


class Scratch:
    """Working memory shared by all programs of one engine: what the hungriest call needs, none of it kept."""

    def __init__(self, workers: Workers) -> None:
        self.workers = workers
        self.lock = threading.Lock()
        """Held during a run: the memory serves one at a time."""
        self.memory: Array = np.empty(0, np.uint8)
        _EVERY.add(self)

    @property
    def nbytes(self) -> int:
        return self.memory.nbytes

    def reserve(self, calls: Sequence[Call]) -> None:
        """Enough for each of these calls, aligned; a run that was given less before keeps what it has."""
        nbytes = max((self.workers.scratch_bytes(call.kernel, call.args) for call in calls), default=0)
        if self.memory.nbytes < nbytes:
            memory = np.empty(nbytes + abi.ALIGNMENT, np.uint8)
            self.memory = memory[-memory.ctypes.data % abi.ALIGNMENT :][:nbytes]


_EVERY: WeakSet[Scratch] = WeakSet()


def _unlock_in_child() -> None:
    """Whoever held a lock when the process forked is not in the child."""
    for scratch in _EVERY:
        scratch.lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock_in_child)

LONG = 0.3
"""Seconds after which a call is taken in pieces from then on: between them Python looks for signals."""


class NativeRun:
    """Consecutive native nodes as one call into the library; the interpreter's lock is released meanwhile."""

    def __init__(self, steps: Sequence[NativeStep], scratch: Scratch) -> None:
        self.steps = steps
        self._labels = [step.label for step in steps for _ in step.calls]
        self._calls = [call for step in steps for call in step.calls]
        self._array = (abi.Step * len(self._calls))()
        for slot, call in zip(self._array, self._calls, strict=True):
            slot.kernel, slot.args = int(call.kernel), ctypes.addressof(call.args)
        self._scratch, self._workers = scratch, scratch.workers
        self._memory = scratch.memory
        self._failed = ctypes.c_int64(-1)
        # Told nothing of its arguments, which `_cut` makes as C has them: converting them takes as long as a small step.
        self._run: Callable[..., int] = scratch.workers.library["ct_run"]
        self._pieces = self._cut(len(self._calls))

    def __call__(self) -> None:
        start = perf_counter()
        with self._scratch.lock:
            for first, arguments in self._pieces:
                status = self._run(*arguments)
                if status:
                    self._raise(status, first + self._failed.value)
        spent = perf_counter() - start
        if spent > LONG and len(self._pieces) == 1:
            self._pieces = self._cut(max(1, int(len(self._calls) * LONG / spent)))

    def _cut(self, count: int) -> list[tuple[int, tuple[Any, ...]]]:
        """Where each piece of so many calls begins, and what ct_run is given for it."""
        size, failed = ctypes.sizeof(abi.Step), ctypes.addressof(self._failed)
        pieces: list[tuple[int, tuple[Any, ...]]] = []
        for first in range(0, len(self._calls), max(count, 1)):
            steps = ctypes.cast(ctypes.addressof(self._array) + first * size, ctypes.POINTER(abi.Step))
            length = min(count, len(self._calls) - first)
            handle, memory = ctypes.c_void_p(self._workers.handle), ctypes.c_void_p(self._memory.ctypes.data)
            pieces.append((first, (handle, steps, ctypes.c_int64(length), memory, ctypes.c_void_p(failed))))
        return pieces

    def _raise(self, status: int, index: int) -> None:
        label = self._labels[index]
        if status == Status.NOT_FINITE:
            guarded, op = self._calls[index].keep
            assert isinstance(op, GuardFinite)
            raise op.refusal(guarded)
        if status == Status.BAD_INDEX:
            raise DataError(
                f"{label}: an index or label lies outside its range; check the values of the data"
            )
        raise CircleTrainError(
            f"{label}: the native engine answered {Status(status).name}; reinstall circle-train"
        )
