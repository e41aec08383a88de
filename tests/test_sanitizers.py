"""The engine's tests once more, on kernels built with the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
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


@pytest.mark.slow
def test_the_sanitizers_have_nothing_to_report() -> None:
    if absent := missing():
        pytest.skip(f"{absent} is not there")
    done = subprocess.run(
        [sys.executable, "tools/dev/sanitize.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert " 0 reports of the sanitizers" in f" {done.stdout.splitlines()[-1]}"
    assert " passed" in done.stdout
