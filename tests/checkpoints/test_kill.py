"""Training that is killed at any moment and resumed ends in the same file, to the byte."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from onert_files import FOLDER

pytestmark = pytest.mark.slow

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


def saved(batch, logs):
    session.save_checkpoint(checkpoint)
    print("step", flush=True)


save = ct.callbacks.LambdaCallback(on_batch_end=saved)
session.fit(x, y, epochs=int(sys.argv[3]), validation_split=0.1, callbacks=[save], verbose=0)
session.export(folder / "final.circle")
print("done", session.state.step, flush=True)
"""


WITH_CALLBACKS = TRAINING.replace("callbacks=[save]", "callbacks=[*listeners, save]").replace(
    "session.fit(",
    """
callbacks = ct.callbacks
stop = callbacks.EarlyStopping("loss", min_delta=1e-4, patience=9, restore_best=True)
slower = callbacks.ReduceLROnPlateau("val_loss", factor=0.5, patience=6, cooldown=2)
best = callbacks.ModelCheckpoint(path="best-{epoch:03d}.ckpt", save_best_only=True, keep_last=2)
listeners = [callbacks.CSVLogger(folder / "log.csv"), stop, slower, best]
history = session.fit(""",
)
WITH_CALLBACKS += """
(folder / "course.txt").write_text(f"{stop.stopped_epoch} {session.learning_rate} {history.history}")
"""


def start(folder: Path, epochs: int, training: str = TRAINING) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", training, str(FOLDER / "mlp_softmax.circle"), str(folder), str(epochs)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder)


def finish(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out


def kill(process: subprocess.Popen[str], moments: random.Random, most: int) -> int:
    """Kill it some steps after it began, in the midst of one or between two; the step that it began with."""
    assert process.stdout is not None
    begun = int(process.stdout.readline().split()[1])
    for _ in range(moments.randint(1, most)):
        assert process.stdout.readline() == "step\n", "training was over: there is too little of it"
    time.sleep(moments.uniform(0.0, 0.005))
    process.kill()
    process.communicate()
    return begun


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


@pytest.mark.parametrize(
    "kills, epochs",
    [
        pytest.param(8, 12, marks=pytest.mark.slow(seconds=20)),
        pytest.param(50, 60, marks=pytest.mark.thorough),
    ],
)
def test_killed_training_ends_in_the_same_file(kills: int, epochs: int, tmp_path: Path) -> None:
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    for folder in (straight, broken):
        folder.mkdir()
    finish(start(straight, epochs))
    moments = random.Random(kills)
    steps = [kill(start(broken, epochs), moments, 40) for _ in range(kills)]
    assert "done" in finish(start(broken, epochs))
    assert steps == sorted(set(steps)), "each goes on behind what the last has done"
    assert (straight / "final.circle").read_bytes() == (broken / "final.circle").read_bytes()
    assert names(broken) == {"final.circle", "run.safetensors"}


@pytest.mark.parametrize(
    "kills",
    [pytest.param(10, marks=pytest.mark.slow(seconds=20)), pytest.param(300, marks=pytest.mark.thorough)],
)
def test_killed_at_any_moment_from_its_start_to_its_end(kills: int, tmp_path: Path) -> None:
    """While Python starts, between steps, within one, while the model is exported, after the last word."""
    straight = tmp_path / "straight"
    straight.mkdir()
    began = time.monotonic()
    finish(start(straight, 2))
    life, moments, broken = time.monotonic() - began, random.Random(kills), tmp_path / "0"
    for number in range(kills):
        broken.mkdir(exist_ok=True)
        process = start(broken, 2)
        try:
            process.communicate(timeout=moments.uniform(0.0, 1.02 * life))
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        assert process.returncode in (0, -signal.SIGKILL), "what a kill left stops nobody"
        assert names(broken) <= {"final.circle", "run.safetensors"}
        if "final.circle" in names(broken):  # it is there whole or not at all
            assert (straight / "final.circle").read_bytes() == (broken / "final.circle").read_bytes()
            finish(start(broken, 2))
            assert [path.name for path in broken.iterdir() if path.name.startswith(".")] == []
            broken = tmp_path / str(number + 1)
    broken.mkdir(exist_ok=True)
    finish(start(broken, 2))
    assert (straight / "final.circle").read_bytes() == (broken / "final.circle").read_bytes()


@pytest.mark.parametrize(
    "kills",
    [pytest.param(8, marks=pytest.mark.slow(seconds=20)), pytest.param(20, marks=pytest.mark.thorough)],
)
def test_callbacks_go_on_as_if_nothing_had_been(kills: int, tmp_path: Path) -> None:
    """The same stopping epoch, learning rate, best weights, log and files, wherever it was killed."""
    epochs = 400
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    for folder in (straight, broken):
        folder.mkdir()
    finish(start(straight, epochs, WITH_CALLBACKS))
    stopped = int((straight / "course.txt").read_text().split()[0])
    assert 40 < stopped < epochs - 1, "the training is to end early, and not at once"
    moments = random.Random(2)
    steps = [kill(start(broken, epochs, WITH_CALLBACKS), moments, 40 * 46 // kills) for _ in range(kills)]
    assert steps == sorted(set(steps))
    finish(start(broken, epochs, WITH_CALLBACKS))
    assert {path.name: path.read_bytes() for path in broken.iterdir() if not path.name.startswith(".")} == {
        path.name: path.read_bytes() for path in straight.iterdir() if not path.name.startswith(".")
    }
