"""Training that is killed at any moment and resumed ends in the same file, to the byte."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from onert_files import FOLDER

pytestmark = pytest.mark.slow

KILLS = 20
TRAINING = """
import pathlib, sys
import numpy as np
import circle_train as ct

model, folder = sys.argv[1], pathlib.Path(sys.argv[2])
checkpoint = folder / "run.safetensors"
optimizer = ct.optimizers.Adam(ct.schedules.Cosine(0.01, total_steps=2000))
session = ct.TrainSession(model, ct.TrainConfig("mse", optimizer, 4, metrics=["mae"]), seed=3)
if checkpoint.exists():
    session.load_checkpoint(checkpoint)
numbers = np.random.default_rng(0)
x = numbers.standard_normal((203, *session.model.inputs[0].shape[1:])).astype(np.float32)
y = numbers.standard_normal((203, *session.model.outputs[0].shape[1:])).astype(np.float32)
print("started", session.state.step, flush=True)
save = ct.callbacks.LambdaCallback(on_batch_end=lambda batch, logs: session.save_checkpoint(checkpoint))
session.fit(x, y, epochs=int(sys.argv[3]), validation_split=0.1, callbacks=[save], verbose=0)
session.export(folder / "final.circle")
print("done", session.state.step, flush=True)
"""


def start(folder: Path, epochs: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", TRAINING, str(FOLDER / "mlp_softmax.circle"), str(folder), str(epochs)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder)


def finish(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out


@pytest.mark.parametrize("seed", [0, 1])
def test_killed_training_ends_in_the_same_file(seed: int, tmp_path: Path) -> None:
    epochs = 120
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    for folder in (straight, broken):
        folder.mkdir()
    finish(start(straight, epochs))
    moments, kills, steps = random.Random(seed), 0, [0]
    while kills < KILLS:
        process = start(broken, epochs)
        assert process.stdout is not None
        steps.append(int(process.stdout.readline().split()[1]))
        time.sleep(moments.uniform(0.0, 0.12))
        if process.poll() is not None:
            pytest.fail(f"training was over after {kills} kills: there is too little of it")
        process.kill()
        process.communicate()
        kills += 1
    assert "done" in finish(start(broken, epochs))
    assert steps == sorted(steps) and len(set(steps)) > KILLS // 2
    assert (straight / "final.circle").read_bytes() == (broken / "final.circle").read_bytes()
    assert {path.name for path in broken.iterdir() if not path.name.startswith(".")} == {
        "final.circle",
        "run.safetensors",
    }
