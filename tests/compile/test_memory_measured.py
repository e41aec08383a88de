"""What a step is said to take is what it takes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import finish, make, mlp, new_input, weight

import circle_train as ct
from circle_train.backends import native
from circle_train.cli.main import main
from circle_train.ir import Graph
from circle_train.model import Model
from circle_train.ops.attributes import Activation, Padding
from circle_train.settings.as_json import from_dict, to_dict


def large(width: int) -> Model:
    """Convolutions whose activations and weights take some hundred megabytes."""
    graph = Graph("large", [new_input("image", 1, 64, 64, 3)])
    same = {"padding": Padding.SAME, "stride_h": 1, "stride_w": 1}
    x, channels = graph.inputs[0], 3
    for i in range(4):
        conv = make("CONV_2D", fused_activation_function=Activation.RELU6, **same)
        x = graph.emit(conv, x, weight(f"w{i}", width, 3, 3, channels), weight(f"b{i}", width))
        channels = width
    x = graph.emit(make("RESHAPE", new_shape=(-1, 64 * 64 * width)), x)
    return finish(
        graph, graph.emit(make("FULLY_CONNECTED"), x, weight("f", 16, 64 * 64 * width), weight("fb", 16))
    )


MEASURE = """
import gc, json, sys
import numpy as np, circle_train as ct
path, batch, settings = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
def status(key):
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(key))
x = np.random.default_rng(0).normal(size=(batch, 64, 64, 3)).astype(np.float32)
gc.collect()
open("/proc/self/clear_refs", "w").write("5")
before = status("VmRSS")
session = ct.TrainSession(path, ct.TrainConfig(loss="mse", batch_size=batch, **settings), backend="native", threads=2)
session.prepare()
y = np.zeros(session.program.targets[0].shape, np.float32)
for _ in range(2):
    session.train_step(x, y)
print(json.dumps([status("VmHWM") - before, session.plan.total_bytes]))
"""


def growth(path: Path, batch: int, **settings: Any) -> tuple[int, int]:
    """Measured and predicted, in a process of its own."""
    arguments = [str(path), str(batch), json.dumps(settings)]
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parent,
    )
    measured, predicted = json.loads(done.stdout)
    return measured, predicted


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists() or not native.is_available(),
    reason="needs Linux's peak memory and the native engine",
)
@pytest.mark.parametrize(("width", "batch"), [(32, 32), (48, 16)])
def test_the_predicted_peak_is_measured(width: int, batch: int, tmp_path: Path) -> None:
    large(width).save(tmp_path / "large.tflite")
    measured, predicted = growth(tmp_path / "large.tflite", batch)
    assert measured == pytest.approx(predicted, rel=0.03), (
        f"{measured / 1e6:.1f} MB, {predicted / 1e6:.1f} planned"
    )


def test_a_budget_stands_in_settings_and_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    config = ct.TrainConfig(loss="mse", batch_size=8, memory_budget="1.5MB")
    assert from_dict(json.loads(json.dumps(to_dict(config)))) == config
    mlp().save(tmp_path / "net.circle")
    for name, columns in (("x", 6), ("y", 4)):
        np.save(tmp_path / f"{name}.npy", np.ones((16, columns), np.float32))
    words = [
        *("train", "net.circle", "--input", "x.npy", "--expected", "y.npy"),
        *("--loss", "mse", "--batch-size", "8", "--memory-budget"),
    ]
    whole = ct.TrainSession(mlp(), config.replace(memory_budget=None)).plan.budget_bytes
    assert main([*words, f"{whole - 64}B"]) == 0
    capsys.readouterr()
    assert main([*words, "1KB"]) == 1
    assert "memory_budget is '1KB', but a step needs" in capsys.readouterr().err


def test_an_automatic_budget_is_most_of_what_is_left_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    mlp().save(tmp_path / "net.circle")
    for name, columns in (("x", 6), ("y", 4)):
        np.save(tmp_path / f"{name}.npy", np.ones((16, columns), np.float32))
    words = [
        "train",
        "net.circle",
        "--input",
        "x.npy",
        "--expected",
        "y.npy",
        "--loss",
        "mse",
        "--memory-budget",
        "auto",
    ]
    monkeypatch.setattr("circle_train.cli.settings.available_bytes", lambda: 100_000_000)
    assert main(words) == 0
    assert "memory budget: 80.0 MB, 80% of what is left here" in capsys.readouterr().err
    monkeypatch.setattr("circle_train.cli.settings.available_bytes", lambda: 1_000)
    assert main(words) == 1
    assert "a step needs" in capsys.readouterr().err
    monkeypatch.setattr("circle_train.cli.settings.available_bytes", lambda: None)
    assert main(words) == 1
    assert "does not say what is left" in capsys.readouterr().err
