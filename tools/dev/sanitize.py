#!/usr/bin/env python3
"""Builds the kernels with the address and undefined-behaviour sanitizers and runs the engine's tests on them.

python tools/dev/sanitize.py                       the tests of kernels, engine, memory and profiles
python tools/dev/sanitize.py --few                 what CI runs: kernels, operators and golden runs, by the widest vectors alone
python tools/dev/sanitize.py tests/ops/test_ops.py     others

The package is copied beside the sanitized library, so that what is installed stays as it is. Needs CMake and GCC or
Clang with its sanitizers' run time; exit status 1 where a test fails or a sanitizer reports.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "circle_train" / "backends" / "native"
TESTS = (
    "tests/backends/kernels",
    "tests/backends/test_backends.py",
    "tests/backends/test_backend_training.py",
    "tests/backends/test_damaged_training.py",
    "tests/backends/engine/test_engine_interrupted.py",
    "tests/backends/engine/test_engine_sessions.py",
    "tests/backends/engine/test_engine_shapes.py",
    "tests/compile/test_memory.py",
    "tests/compile/test_memory_measured.py",
    "tests/compile/test_memory_sharing.py",
    "tests/compile/test_memory_waiting.py",
    "tests/peers/test_onert_golden.py",
    "tests/session/fits",
    "tests/session/test_profiling.py",
    "tests/session/test_session.py",
    "tests/session/test_train_modes.py",
)
FEW = ("tests/backends/kernels", "tests/backends/test_backends.py", "tests/peers/test_onert_golden.py", "-k")
FEWER = {"CT_TEST_SAMPLES": "20", "CT_TEST_THREADS": "3"}
CANARY = """
import numpy as np
from circle_train.backends.native import Native
from circle_train.backends.native.engine.binding import copied
from circle_train.backends.native.engine.step import NativeStep
engine = Native(1)
NativeStep("canary", copied(np.ones(5000, np.float32), np.ones(4000, np.float32)), engine.scratch)()
"""
"""Writes beyond an array: where this goes unnoticed, the sanitizers are not at work."""
REPORTS = ("ERROR: AddressSanitizer", "runtime error:")


def build(folder: Path, compiler: str, *settings: str) -> Path:
    """The library with sanitizers; an earlier build in the folder is brought up to date."""
    configure = ["cmake", "-S", str(SOURCE), "-B", str(folder), "-DCT_SANITIZE=ON", *settings]
    subprocess.run([*configure, f"-DCMAKE_CXX_COMPILER={compiler}"], check=True)
    subprocess.run(["cmake", "--build", str(folder), "--parallel", str(os.cpu_count())], check=True)
    return next(folder.glob("libcircle_train_native.*"))


def runtime(compiler: str) -> str:
    """What must be loaded before Python: the sanitizer, and the C++ library whose exceptions it watches."""
    names = ["libasan.so", "libstdc++.so"]
    found = [
        subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
        for name in names
    ]
    return " ".join(done.stdout.strip() for done in found)


def copy_beside(library: Path, folder: str) -> None:
    """The repository with this library in its package."""
    ignored = shutil.ignore_patterns("*.so", "__pycache__", ".git", ".*_cache", "build")
    shutil.copytree(ROOT, folder, ignore=ignored, dirs_exist_ok=True)
    shutil.copy(library, Path(folder) / "circle_train" / "backends" / "native")


@contextmanager
def beside(library: Path, compiler: str, *limits: str) -> Iterator[Callable[..., tuple[int, str]]]:
    """Python on a copy of the package that holds this library: its words to status and output."""
    with tempfile.TemporaryDirectory() as folder:
        copy_beside(library, folder)
        environment = {
            **os.environ,
            "PYTHONPATH": folder,
            "LD_PRELOAD": runtime(compiler),
            # Python itself leaves memory behind at its end; a report must not look like a test's failure.
            "ASAN_OPTIONS": ":".join(["detect_leaks=0", "exitcode=77", *limits]),
            "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        }

        def python(*words: str) -> tuple[int, str]:
            done = subprocess.run(
                [sys.executable, *words],
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
            )
            return done.returncode, done.stdout.decode(errors="replace")

        if REPORTS[0] not in python("-c", CANARY)[1]:
            sys.exit(
                "the sanitizers do not notice a write beyond an array: nothing that they say would count"
            )
        yield python


def run(library: Path, compiler: str, tests: list[str]) -> tuple[int, str]:
    """pytest's status and output."""
    with beside(library, compiler) as python:
        return python("-m", "pytest", "--capture=no", "-x", *tests)


def widest() -> str:
    """The vectors that the installed library takes here: AVX512, AVX2, PORTABLE."""
    from circle_train.backends.native.engine import abi, library

    native = library.load()
    if native is None:
        sys.exit("the native engine was not built")
    return abi.Tier(native.ct_best_tier()).name


def of_tier(tier: str, compiler: str) -> Path:
    """The library for these vectors alone."""
    return build(ROOT / "build" / f"sanitize_{tier}", compiler, f"-DCT_TIERS={tier.lower()}")


def few(compiler: str) -> tuple[int, str]:
    """What CI has time for: compiled once, every kernel, each operator's examples, and some sessions."""
    tier = widest()
    library = of_tier(tier, compiler)
    os.environ.update(FEWER)
    chosen = f"(kernels and not test_workers and not sums) or (every_operator and {tier}) or (this_repository and native)"
    return run(library, compiler, [*FEW, chosen])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tests", nargs="*", default=TESTS)
    parser.add_argument("--few", action="store_true")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "sanitize")
    parser.add_argument("--compiler", default=os.environ.get("CXX", "g++"))
    options, others = parser.parse_known_args()
    if options.few:
        status, output = few(options.compiler)
    else:
        tests = [*options.tests, *others]  # pytest's options too
        status, output = run(build(options.build, options.compiler), options.compiler, tests)
    print(output)
    reports = [line for line in output.splitlines() if any(report in line for report in REPORTS)]
    print(f"{len(reports)} reports of the sanitizers; pytest ended with {status}")
    return 1 if status or reports else 0


if __name__ == "__main__":
    sys.exit(main())
