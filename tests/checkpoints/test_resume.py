"""A fit that is broken off anywhere and resumed from its checkpoint ends as if nothing had happened, callbacks too."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networks
import numpy as np
import pytest

import circle_train as ct
from circle_train.checkpoints import safetensors
from circle_train.fitting.callbacks import Callback, EarlyStopping, LambdaCallback, ReduceLROnPlateau
from circle_train.fitting.saving import CSVLogger, ModelCheckpoint

EPOCHS = 14


class Broken(Exception):
    """As if the process had been killed."""


class Counter(Callback):
    """A callback of somebody's own: counts what it hears."""

    remembers = ("heard", "logs")

    def on_train_begin(self) -> None:
        self.heard = np.zeros(2, np.int64)
        self.logs: list[float] = []

    def on_batch_end(self, batch: int, logs: Any) -> None:
        self.heard[0] += batch
        self.logs.append(logs["loss"])

    def on_epoch_end(self, epoch: int, logs: Any) -> None:
        self.heard[1] += epoch


class Run:
    """One training with everything that remembers; saves at each event and breaks off at the one of this number."""

    def __init__(self, folder: Path, place: int, breaks_at: int | None) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.events, self.breaks_at = folder, 0, breaks_at
        self.stop = EarlyStopping("val_mean_absolute_error", patience=3, min_delta=0.02, restore_best=True)
        self.plateau = ReduceLROnPlateau("val_loss", factor=0.5, patience=1, min_delta=0.02, cooldown=1)
        self.counters = Counter(), Counter()
        save = LambdaCallback(on_batch_end=self.save, on_epoch_end=self.save)
        best = ModelCheckpoint(path=folder / "best-{epoch}.circle", save_best_only=True, keep_last=2)
        self.callbacks = [
            self.counters[0], self.stop, best, self.plateau, CSVLogger(folder / "log.csv"), self.counters[1],
        ]  # fmt: skip
        self.callbacks.insert(place, save)
        config = ct.TrainConfig("mse", ct.optimizers.Adam(0.05), batch_size=8, metrics=["mae"])
        self.session = ct.TrainSession(networks.mlp(softmax=False), config, seed=5)

    def save(self, number: int, logs: Any) -> None:
        self.session.save_checkpoint(self.folder / "run.safetensors")
        self.events += 1
        if self.events == self.breaks_at:
            raise Broken

    def fit(self) -> dict[str, Any]:
        """Everything that came of it."""
        numbers = np.random.default_rng(1)
        x = numbers.standard_normal((37, 6))
        y = x @ numbers.standard_normal((6, 4)) + numbers.standard_normal((37, 4))
        given = x.astype(np.float32), y.astype(np.float32)
        history = self.session.fit(
            *given, epochs=EPOCHS, validation_split=0.3, callbacks=self.callbacks, verbose=0
        )
        return {
            "weights": self.session.parameters.flat().tobytes(),
            "rate": self.session.learning_rate,
            "stopped": (self.stop.stopped_epoch, self.stop.best_epoch, self.stop.waited),
            "history": (history.epoch, history.history),
            "counted": [(counter.heard.tolist(), counter.logs) for counter in self.counters],
            "files": {
                path.name: path.read_bytes()
                for path in self.folder.iterdir()
                if path.suffix in (".circle", ".csv")
            },
        }


@pytest.mark.parametrize("place", [0, *(pytest.param(p, marks=pytest.mark.slow) for p in (2, 3, 6))])
def test_wherever_it_breaks_off(place: int, tmp_path: Path) -> None:
    """At every batch and epoch, whoever has heard of it before the checkpoint was written."""
    whole = Run(tmp_path / "whole", place, None)
    expected = whole.fit()
    assert 4 < expected["stopped"][0] < EPOCHS - 1 and expected["rate"] < 0.05
    for event in range(1, whole.events + 1):
        folder = tmp_path / str(event)
        broken = Run(folder, place, event)
        with pytest.raises(Broken):
            broken.fit()
        resumed = Run(folder, place, None)
        resumed.session.load_checkpoint(folder / "run.safetensors")
        assert resumed.fit() == expected, f"broken off at event {event}"


def test_twice_and_in_the_same_session(tmp_path: Path) -> None:
    """Ctrl-C and another fit; then a checkpoint of what was broken off, taken over elsewhere."""
    expected = Run(tmp_path / "whole", 0, None).fit()
    run = Run(tmp_path / "run", 0, 7)
    for breaks_at in (7, 20):
        run.breaks_at = breaks_at
        with pytest.raises(Broken):
            run.fit()
    run.session.save_checkpoint(tmp_path / "later.safetensors")
    other = Run(tmp_path / "run", 0, None)
    other.session.load_checkpoint(tmp_path / "later.safetensors")
    assert other.fit() == expected


def test_a_finished_fit_leaves_nothing_behind(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", 0, None)
    run.fit()
    run.session.save_checkpoint(tmp_path / "done.safetensors")
    _, metadata = safetensors.decode((tmp_path / "done.safetensors").read_bytes(), "")
    assert "fit" not in metadata
    run.callbacks.clear()
    run.session.load_checkpoint(tmp_path / "done.safetensors")
    assert run.fit()["history"][0] == list(range(EPOCHS))


def broken_off(tmp_path: Path) -> Path:
    with pytest.raises(Broken):
        Run(tmp_path / "run", 0, 18).fit()
    return tmp_path / "run" / "run.safetensors"


def rewritten(path: Path, change: Callable[[dict[str, str]], Any]) -> None:
    """The same checkpoint with other texts."""
    arrays, metadata = safetensors.decode(path.read_bytes(), "")
    metadata.pop("checksum", None)
    change(metadata)
    path.write_bytes(safetensors.encode(arrays, metadata))


def test_checkpoints_without_callbacks_still_load(tmp_path: Path) -> None:
    """As they were written before; the callbacks then begin anew where the fit goes on."""
    path = broken_off(tmp_path)
    arrays, metadata = safetensors.decode(path.read_bytes(), "")
    own = {name: array for name, array in arrays.items() if not name.startswith("callback/")}
    assert len(own) < len(arrays)
    metadata.pop("fit")
    metadata.pop("checksum", None)
    path.write_bytes(safetensors.encode(own, metadata))
    run = Run(tmp_path / "run", 0, None)
    run.session.load_checkpoint(path)
    epoch = json.loads(metadata["progress"])["epoch"]
    assert run.fit()["history"][0][0] == epoch > 0


@pytest.mark.parametrize(
    "damage",
    [
        lambda fit: fit.pop("average"),
        lambda fit: fit.update(callbacks=3),
        lambda fit: fit.update(telling={"event": "save_checkpoint"}),
        lambda fit: fit.update(telling=7),
    ],
)
def test_a_fit_that_cannot_be_read_is_refused(damage: Callable[[Any], Any], tmp_path: Path) -> None:
    path = broken_off(tmp_path)

    def change(metadata: dict[str, str]) -> None:
        fit = json.loads(metadata["fit"])
        damage(fit)
        metadata["fit"] = json.dumps(fit)

    rewritten(path, change)
    run = Run(tmp_path / "run", 0, None)
    with pytest.raises(ct.CheckpointError, match="its fit cannot be read"):
        run.session.load_checkpoint(path)
    assert run.session.state.step == 0


def test_what_no_checkpoint_can_hold_is_refused(tmp_path: Path) -> None:
    class Odd(Callback):
        remembers = ("odd",)
        odd = {1, 2}

    run = Run(tmp_path / "run", 0, None)
    run.callbacks.append(Odd())
    with pytest.raises(ct.ConfigError, match=r"a callback remembers what no checkpoint can hold \(set"):
        run.fit()
