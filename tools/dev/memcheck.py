#!/usr/bin/env python3
"""Runs the engine's tests under valgrind's memcheck: reads and writes out of bounds, and values that nobody wrote.

python tools/dev/memcheck.py                       kernels, operators, networks and golden runs, on all cores
python tools/dev/memcheck.py --few                 what CI runs: every kernel at a few extents and golden runs, by three threads
python tools/dev/memcheck.py tests/compile/test_memory.py  others, as one process
python tools/dev/memcheck.py --build /tmp/build    on kernels built there, for reports with names and lines

Valgrind knows no AVX-512: the AVX2 and the portable kernels run. What is left out of the tests' files repeats the same
many times, measures time or has minutes of arithmetic; each kernel runs by one thread and by three. valgrind.supp lists
what is suppressed, all of it in CPython and the C library. The kernels are those that are installed; exit status 1 where
a test fails or valgrind reports.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sanitize import CANARY, SOURCE, copy_beside

from circle_train.backends.native.engine.library import path

FEW: tuple[tuple[str, ...], ...] = (
    (
        "tests/backends/kernels/test_extents.py",
        "tests/peers/test_onert_golden.py",
        "-k",
        "test_extents and not three_extents and not stride or (this_repository and native and adam)",
    ),
)
"""What pytest is given in CI, one process: most of its time goes into starting it."""
FEWER = {"CT_TEST_SAMPLES": "5", "CT_TEST_THREADS": "3"}
SHARES = (
    (
        "tests/backends/kernels",
        "-k",
        "not test_images and not test_winograd and not test_extents and not many_times and not share_a_pool "
        "and not another_thread and not leaves_the_core and not forked "
        "and not True-300-40 and not True-False-300 and not 5000-96-16",
    ),
    (
        "tests/peers/test_onert_golden.py",
        "tests/backends/engine/test_engine_sessions.py",
        "tests/backends/engine/test_engine_shapes.py",
        "-k",
        "native or own_operators or any_s",
    ),
    (
        "tests/backends/test_backends.py",
        "tests/backends/test_backend_training.py",
        "-k",
        "(every_operator and AVX2) or any_size or index or forked",
    ),
    (
        "tests/backends/kernels/images/test_images.py",
        "tests/backends/kernels/conv/test_winograd.py",
        "-k",
        "not test_error and not sums and not any_batch",
    ),
)
"""All of it; each share is a process."""
VALGRIND = (
    "valgrind",
    "--quiet",
    "--leak-check=no",
    "--fair-sched=yes",
    "--num-callers=30",
    f"--suppressions={Path(__file__).resolve().with_name('valgrind.supp')}",
)
SETTINGS = {
    "CT_TEST_THREADS": "1 3",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "PYTHONMALLOC": "malloc",
}
REPORT = re.compile(r"^==\d+== (?! |$)(.*)$", re.M)


def build(folder: Path, compiler: str) -> Path:
    """The library with the names and lines that reports give."""
    configure = ["cmake", "-S", str(SOURCE), "-B", str(folder), "-DCMAKE_BUILD_TYPE=RelWithDebInfo"]
    subprocess.run([*configure, f"-DCMAKE_CXX_COMPILER={compiler}"], check=True)
    subprocess.run(["cmake", "--build", str(folder), "--parallel", str(os.cpu_count())], check=True)
    return next(folder.glob("libcircle_train_native.*"))


def run(folder: str, words: Sequence[str], settings: Mapping[str, str]) -> tuple[int, str, str]:
    """Python under valgrind: its status, what it printed, and what valgrind reported."""
    with tempfile.TemporaryDirectory() as logs:
        done = subprocess.run(
            [*VALGRIND, f"--log-file={logs}/%p", sys.executable, *words],
            cwd=folder,
            env={**os.environ, **settings, "PYTHONPATH": folder},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        reported = "".join(log.read_text(errors="replace") for log in sorted(Path(logs).iterdir()))
    return done.returncode, done.stdout.decode(errors="replace"), reported


def watched(folder: str, share: Sequence[str], settings: Mapping[str, str]) -> tuple[int, str, str]:
    """A share of the tests, compiled to bytecode by a Python that nobody watches."""
    compiled = [sys.executable, "-m", "pytest", "--collect-only", "-q", *share]
    environment = {**os.environ, **settings, "PYTHONPATH": folder}
    subprocess.run(compiled, cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=False)
    return run(folder, ["-m", "pytest", "--durations=3", *share], settings)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tests", nargs="*")
    parser.add_argument("--few", action="store_true")
    parser.add_argument("--build", type=Path)
    parser.add_argument("--compiler", default=os.environ.get("CXX", "g++"))
    options, others = parser.parse_known_args()  # pytest's options too
    library = build(options.build, options.compiler) if options.build else path()
    if library is None:
        sys.exit("the native engine was not built")
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as cores:
        copy_beside(library, folder)
        settings = {**SETTINGS, **(FEWER if options.few else {})}
        if "Invalid write" not in run(folder, ("-c", CANARY), settings)[2]:
            sys.exit("valgrind does not notice a write beyond an array: nothing that it says would count")
        shares = [[*options.tests, *others]] if options.tests else FEW if options.few else SHARES
        results = list(cores.map(lambda share: watched(folder, share, settings), shares))
    for share, (status, printed, reported) in zip(shares, results, strict=True):
        print(f"{' '.join(share)}: status {status}\n{printed}{reported}")
    reports = sum(len(REPORT.findall(reported)) for _, _, reported in results)
    failed = sum(status != 0 for status, _, _ in results)
    print(f"{reports} reports of valgrind; {failed} of {len(results)} runs of pytest failed")
    return 1 if reports or failed else 0


if __name__ == "__main__":
    sys.exit(main())
