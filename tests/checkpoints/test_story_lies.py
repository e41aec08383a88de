"""What a checkpoint tells of its fit, from somebody who could write anything there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import circle_train as ct
from circle_train.checkpoints import safetensors

MODEL = Path(__file__).parents[1] / "data" / "mlp.circle"
CONFIG = ct.TrainConfig(loss="mse", batch_size=4, optimizer=ct.optimizers.Adam(0.01), metrics=["mae"])
X, Y = (np.random.default_rng(0).random((12, n), np.float32) for n in (6, 5))


def listeners(folder: Path) -> list[Any]:
    callbacks = ct.callbacks
    return [
        callbacks.EarlyStopping("loss", patience=9, restore_best=True),
        callbacks.ReduceLROnPlateau("loss", patience=1),
        callbacks.ModelCheckpoint(path=folder / "c-{epoch}.safetensors", keep_last=1),
        callbacks.CSVLogger(folder / "log.csv"),
    ]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """By the fourth of nine batches, in the second of three epochs."""
    folder = tmp_path_factory.mktemp("story")
    session = ct.TrainSession(MODEL, CONFIG)

    def save(batch: int, logs: dict[str, float]) -> None:
        if session.state.step == 4:
            session.save_checkpoint(folder / "a.safetensors")

    told = [*listeners(folder), ct.callbacks.LambdaCallback(on_batch_end=save)]
    session.fit(X, Y, epochs=3, verbose=0, callbacks=told)
    return (folder / "a.safetensors").read_bytes()


LIES: dict[str, tuple[tuple[str, ...], Any]] = {
    "a log that is a list": (("callbacks", "CSVLogger/0", "text"), [1]),
    "columns that are a number": (("callbacks", "CSVLogger/0", "columns"), 7),
    "columns of lists": (("callbacks", "CSVLogger/0", "columns"), [[1, 2]]),
    "a best that is a word": (("callbacks", "EarlyStopping/0", "best"), "low"),
    "a rest of words": (("callbacks", "ReduceLROnPlateau/0", "resting"), "../x"),
    "a listener that is a list": (("callbacks", "ReduceLROnPlateau/0"), [1]),
    "a listener of nothing": (("callbacks", "EarlyStopping/0"), None),
    "listeners of words": (("callbacks",), "all"),
    "a history of words": (("callbacks", "History/0", "history"), "long"),
    "epochs in a table": (("callbacks", "History/0", "epoch"), {"a": 1}),
    "a sum of words": (("average", "total"), "much"),
    "samples in a table": (("average", "samples"), {"a": 1}),
    "an average of nothing": (("average",), {}),
    "metrics that are a number": (("average", "metrics"), 1.5),
    "a metric of words": (("average", "metrics", "mean_absolute_error"), {"total": "x", "count": 1}),
    "sums of outputs that are not there": (("average", "outputs"), [[1.0, 2.0]] * 3),
    "a number of a batch that is a word": (("telling", "number"), "first"),
    "an event of anything": (("telling", "event"), "__setattr__"),
    "told to a number": (("telling", "told"), 5),
    "logs of a number": (("telling", "logs"), 5),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_story_that_lies_is_refused(lie: str, written: bytes, tmp_path: Path) -> None:
    """Each ended in an exception of Python's, some batches later."""
    arrays, told = safetensors.decode(written, "a")
    story, (place, value) = json.loads(told["fit"]), LIES[lie]
    inner = story
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    texts = {name: text for name, text in told.items() if name != "checksum"} | {"fit": json.dumps(story)}
    (tmp_path / "a.safetensors").write_bytes(safetensors.encode(dict(arrays), texts))
    session = ct.TrainSession(MODEL, CONFIG)
    with pytest.raises(ct.CheckpointError):
        session.load_checkpoint(tmp_path / "a.safetensors")
        session.fit(X, Y, epochs=3, verbose=0, callbacks=listeners(tmp_path))


def test_what_goes_wrong_in_somebodys_own_callback_is_not_the_checkpoints(
    written: bytes, tmp_path: Path
) -> None:
    (tmp_path / "a.safetensors").write_bytes(written)
    session = ct.TrainSession(MODEL, CONFIG)
    session.load_checkpoint(tmp_path / "a.safetensors")

    def stumble(epoch: int, logs: dict[str, float]) -> None:
        raise ValueError("mine")

    own = ct.callbacks.LambdaCallback(on_epoch_end=stumble)
    with pytest.raises(ValueError, match="mine"):
        session.fit(X, Y, epochs=3, verbose=0, callbacks=[*listeners(tmp_path), own])


class Stumbling:
    """A metric of somebody's own."""

    name = "stumbling"

    def reset(self) -> None:
        """It has nothing to forget."""

    def update(self, output: Any, target: Any) -> None:
        raise ValueError("mine")

    def result(self) -> float:
        return 0.0


def test_nor_is_what_goes_wrong_in_somebodys_own_metric(written: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(written)
    session = ct.TrainSession(MODEL, replace(CONFIG, metrics=["mae", Stumbling()]))
    session.load_checkpoint(tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match=r"^mine$"):
        session.fit(X, Y, epochs=3, verbose=0, callbacks=listeners(tmp_path))
