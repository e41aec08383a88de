"""Programs: order, forks, and several callers at once."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from native import Program, lib, pool, struct
from sized.call import rand

from circle_train.backends.native.engine import abi


def product(m: int = 300, n: int = 200, k: int = 100) -> tuple[Any, np.ndarray, np.ndarray]:
    """A product worth several threads, its result and what that should be."""
    a, b, c = rand(m, k), rand(k, n), np.zeros((m, n), np.float32)
    args = struct(
        "ct_matmul_args", a=a, b=b, c=c, batch0=1, batch1=1, m=m, n=n, k=k, a_row=k, a_col=1, b_row=n, b_col=1,
        c_row=n, alpha=1,
    )  # fmt: skip
    return args, c, a.astype(np.float64) @ b


def add_one(x: np.ndarray) -> Any:
    """x += 1 as a chain."""
    tensor = struct("ct_chain_tensor", data=x, strides=[1] + [0] * 7)
    op = struct("ct_chain_operation", op=abi.ChainOp.ADD_IMM, imm=1.0)
    return struct(
        "ct_chain_args", inputs=[tensor], outputs=[tensor], ops=[op], shape=[x.size] + [0] * 7, rank=1, input_count=1,
        output_count=1, op_count=1,
    )  # fmt: skip


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_steps_run_in_order_many_times(threads: int) -> None:
    x = np.zeros(50000, np.float32)
    program = Program([("CHAIN", add_one(x))] * 10, threads)
    for _ in range(100):
        assert program.run() == 0
    assert (x == 1000).all()


def test_an_unknown_kernel_or_opcode_is_refused() -> None:
    x = np.zeros(10, np.float32)
    program = Program([("CHAIN", add_one(x))] * 3)
    program.steps[1].kernel = len(abi.Kernel)
    assert (program.run(), program.failed.value, x[0]) == (abi.Status.BAD_KERNEL, 1, 1)
    args = add_one(x)
    args._keep["ops"][0].op = 999
    args._keep["ops_array"][0].op = 999
    assert Program([("CHAIN", args)]).run() == abi.Status.BAD_KERNEL


def test_a_tier_this_processor_lacks_gives_no_pool() -> None:
    assert not lib.ct_workers_create(1, 7)
    assert lib.ct_best_tier() in (0, 1, 2)


def test_two_threads_share_a_pool() -> None:
    """The second caller runs alone, with the same bits."""
    made = [product() for _ in range(4)]
    programs = [Program([("MATMUL", args)] * 20, 2) for args, _, _ in made]
    callers = [threading.Thread(target=lambda p=p: [p.run() for _ in range(20)]) for p in programs]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    for _, c, want in made:
        assert c.tobytes() == made[0][1].tobytes()
        np.testing.assert_allclose(c, want, atol=1e-3)


def test_a_forked_child_gets_its_own_threads() -> None:
    args, c, want = product()
    program = Program([("MATMUL", args)], 3)
    program.run()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        c[:] = 0
        ok = all(program.run() == 0 for _ in range(50)) and np.allclose(c, want, atol=1e-3)
        os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert program.run() == 0


def test_a_fork_while_another_thread_runs() -> None:
    args, _c, _ = product()
    program = Program([("MATMUL", args)] * 50, 2)
    stop = threading.Event()

    def keep_running() -> None:
        while not stop.is_set():
            program.run()

    busy = threading.Thread(target=keep_running)
    busy.start()
    for _ in range(10):
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            os._exit(0 if program.run() == 0 else 1)
        assert os.waitpid(child, 0)[1] == 0
    stop.set()
    busy.join()


def test_pools_come_and_go() -> None:
    args, _, _ = product(64, 64, 64)
    number = abi.Kernel.MATMUL
    for threads in (1, 2, 5, 2, 8):
        made = lib.ct_workers_create(threads, -1)
        assert lib.ct_workers_count(ctypes.c_void_p(made)) == threads
        steps = Program([("MATMUL", args)]).steps
        scratch = np.zeros(lib.ct_scratch_bytes(made, number, ctypes.addressof(args)) + 64, np.uint8)
        at = (scratch.ctypes.data + 63) // 64 * 64
        for _ in range(10):
            assert lib.ct_run(made, steps, 1, at, None) == 0
        lib.ct_workers_destroy(made)
    assert pool(2)


def last_core(thread: int) -> int:
    """The core that a thread of this process was last on."""
    stat = Path(f"/proc/self/task/{thread}/stat").read_text()
    return int(stat[stat.rindex(")") + 2 :].split()[36])


@pytest.fixture
def cores() -> Iterator[set[int]]:
    """Those of the calling thread, its own again afterwards."""
    if not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs Linux and two cores")
    before = os.sched_getaffinity(0)
    yield set(before)
    os.sched_setaffinity(0, before)


def test_a_worker_that_slept_leaves_the_core_to_its_caller(cores: set[int]) -> None:
    """Where all cores are busy the scheduler would leave both on one; a caller that may only be there keeps it so."""
    args, c, want = product()
    before = set(os.listdir("/proc/self/task"))
    program = Program([("MATMUL", args)])
    program.pool = lib.ct_workers_create(2, -1)
    program.run()
    (worker,) = (int(thread) for thread in set(os.listdir("/proc/self/task")) - before)

    def together(allowed: set[int]) -> tuple[int, set[int]]:
        """A run from the core on which the worker fell asleep, and where that may be afterwards."""
        time.sleep(0.02)
        core = last_core(worker)
        os.sched_setaffinity(0, {core})
        os.sched_setaffinity(0, allowed or {core})
        assert program.run() == 0
        return core, set(os.sched_getaffinity(worker))

    assert together(set())[1] == cores
    assert any(cores - {core} == left for core, left in (together(cores) for _ in range(50)))
    np.testing.assert_allclose(c, want, atol=1e-3)
    lib.ct_workers_destroy(program.pool)
