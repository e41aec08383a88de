"""`circle-train quantize`: what it prints, writes and returns."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest
from bfloat16_nets import IMAGES, LABELS, inverted_residual

import circle_train as ct
from circle_train.cli.main import main


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    inverted_residual().save(tmp_path / "net.tflite")
    np.save(tmp_path / "x.npy", IMAGES)
    np.save(tmp_path / "y.npy", LABELS)
    return tmp_path


def run(folder: pathlib.Path, *words: object) -> int:
    out = ["quantize", str(folder / "net.tflite"), str(folder / "out.tflite")]
    return main([*out, *map(str, words)])


def test_it_says_what_was_shipped(folder: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(folder, "--calibration", folder / "x.npy", "--validation", folder / "x.npy", folder / "y.npy")
        == 0
    )
    said = capsys.readouterr().out
    assert "int8, 10 operators" in said
    assert "accuracy: 0." in said
    assert ct.load(folder / "out.tflite").inputs[0].dtype == np.int8


def test_float16_needs_no_samples(folder: pathlib.Path) -> None:
    assert run(folder, "--scheme", "float16") == 0
    assert (folder / "out.tflite").stat().st_size < 0.7 * (folder / "net.tflite").stat().st_size


def test_a_users_error_is_one_line(folder: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder) == 1
    assert "error: quantize: the scheme int8 needs calibration samples" in capsys.readouterr().err
    assert not (folder / "out.tflite").exists()
