"""The engine once more: on kernels built with sanitizers, under valgrind, and its pool watched for races."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from circle_train.backends import native

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "circle_train/backends/native/kernels"
COMPILER = os.environ.get("CXX", "g++")


def missing() -> str | None:
    """What is not there that the sanitizers need."""
    absent = next((tool for tool in ("cmake", COMPILER) if shutil.which(tool) is None), None)
    if absent is not None or sys.platform != "linux":
        return absent or "Linux"
    found = subprocess.run(
        [COMPILER, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    )
    return None if Path(found.stdout.strip()).is_absolute() else f"libasan of {COMPILER}"


pytestmark = pytest.mark.xdist_group("builds")  # they share a folder


SHORT_AND_LONG = pytest.mark.parametrize(
    "options",
    [
        pytest.param(["--few"], id="few", marks=pytest.mark.slow(seconds=200)),
        pytest.param([], id="all", marks=[pytest.mark.slow, pytest.mark.thorough]),
    ],
)


@SHORT_AND_LONG
def test_the_sanitizers_have_nothing_to_report(options: list[str]) -> None:
    if absent := missing():
        pytest.skip(f"{absent} is not there")
    done = run("tools/dev/sanitize.py", *options)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert " 0 reports of the sanitizers" in f" {done.stdout.splitlines()[-1]}"
    assert " passed" in done.stdout


@SHORT_AND_LONG
def test_valgrind_has_nothing_to_report(options: list[str]) -> None:
    if shutil.which("valgrind") is None or sys.platform != "linux":
        pytest.skip("valgrind is not there")
    if not native.is_available():
        pytest.skip("the native engine was not built")
    done = run("tools/dev/memcheck.py", *options)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert done.stdout.splitlines()[-1].startswith("0 reports of valgrind; 0 of ")
    assert " passed" in done.stdout


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pool and what drives it, built with the thread sanitizer."""
    if sys.platform != "linux" or shutil.which(COMPILER) is None:
        pytest.skip(f"{COMPILER} is not there")
    program = tmp_path_factory.mktemp("races") / "races"
    sources = [str(ROOT / "tests/backends/kernels/worker_races.cpp"), str(KERNELS / "run/workers.cpp")]
    command = [COMPILER, "-std=c++17", "-O1", "-g", "-fsanitize=thread", "-pthread", f"-I{KERNELS}"]
    built = subprocess.run(
        [*command, *sources, "-o", str(program)], capture_output=True, text=True, check=False
    )
    if "tsan" in built.stderr:
        pytest.skip(f"{COMPILER} lacks the thread sanitizer's run time")
    assert built.returncode == 0, built.stderr
    return program


@pytest.mark.slow
def test_the_pool_has_no_races(watched: Path) -> None:
    done = subprocess.run([str(watched)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "every unit once\n", "")


@pytest.mark.slow
def test_a_race_would_be_noticed(watched: Path) -> None:
    done = subprocess.run([str(watched), "all in one cell"], capture_output=True, text=True, check=False)
    assert "WARNING: ThreadSanitizer: data race" in done.stderr
