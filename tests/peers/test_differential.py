"""Random networks against other implementations, in every way of training them (see tools/dev/differential.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "dev" / "differential.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(TOOL), *arguments], capture_output=True, text=True, check=False
    )


def test_a_few_random_networks_agree_with_onnx_runtime_and_float64() -> None:
    """One of each kind."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("torch")
    done = run("--cases", "4")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 networks, 0 wrong" in done.stdout


@pytest.mark.slow(seconds=80)
def test_random_networks_agree_with_onnx_runtime_and_float64() -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("torch")
    done = run("--cases", "200")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_random_keras_models_train_as_keras_trains_them() -> None:
    pytest.importorskip("ai_edge_litert")
    if "TF_PYTHON" not in os.environ:
        pytest.skip("TF_PYTHON is not set: no interpreter with TensorFlow")
    done = run("keras", "--cases", "200")
    assert done.returncode == 0, done.stdout + done.stderr
