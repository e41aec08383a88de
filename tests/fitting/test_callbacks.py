"""Callbacks, history and progress, told a course of numbers by hand, and in a real fit."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import circle_train as ct
from circle_train.fitting.callbacks import (
    Callback,
    EarlyStopping,
    History,
    LambdaCallback,
    Progress,
    ReduceLROnPlateau,
)
from circle_train.fitting.saving import CSVLogger, ModelCheckpoint

MODEL = Path(__file__).parents[1] / "data" / "mlp.circle"


class Weights:
    """One weight; counts how often it is put back."""

    def __init__(self) -> None:
        self.value = np.zeros(1, np.float32)

    def flat(self, trainable_only: bool = True) -> Any:
        return self.value.copy()

    def set_flat(self, vector: Any, trainable_only: bool = True) -> None:
        self.value[:] = vector


class Session:
    """What callbacks see of a session: files are written as empty ones."""

    def __init__(self) -> None:
        self.stop_training = False
        self.learning_rate = 1.0
        self.kept_bytes = 0
        self.parameters = Weights()

    def save_checkpoint(self, path: str | os.PathLike[str]) -> None:
        Path(path).write_text(f"checkpoint {self.parameters.value[0]}", encoding="utf-8")

    def export(self, path: str | os.PathLike[str]) -> None:
        Path(path).write_text("model", encoding="utf-8")


def play(callback: Callback, values: list[float], name: str = "val_loss") -> Session:
    """A fit whose only weight is the epoch's number, until the callback ends it."""
    session = Session()
    callback.begin(session, len(values), 1)
    for epoch, value in enumerate(values):
        callback.on_epoch_begin(epoch)
        session.parameters.value[:] = epoch
        callback.on_batch_end(0, {"loss": value})
        callback.on_epoch_end(epoch, {"loss": 0.0, name: value})
        if session.stop_training:
            break
    callback.on_train_end()
    return session


@pytest.mark.parametrize(
    ("settings", "values", "stopped"),
    [
        ({"patience": 2}, [3, 2, 1, 1, 1, 1], 4),
        ({"patience": 2}, [3, 2, 1, 2, 0, 1, 1], 6),
        ({}, [3, 2, 2, 2], 2),
        ({"patience": 1}, [3, float("nan")], 1),
        ({"patience": 1, "min_delta": 0.5}, [3, 2, 1.6], 2),
        ({"patience": 1, "mode": "max"}, [1, 2, 3, 2], 3),
        ({"patience": 2}, [3, 2, 1], None),
    ],
)
def test_early_stopping_waits_for_its_patience(
    settings: dict[str, Any], values: list[float], stopped: int | None
) -> None:
    callback = EarlyStopping(**settings)
    session = play(callback, values)
    assert callback.stopped_epoch == stopped
    assert session.stop_training == (stopped is not None)
    again = play(callback, values)
    assert callback.stopped_epoch == stopped
    assert again.stop_training == session.stop_training


def test_accuracy_should_rise() -> None:
    callback = EarlyStopping("val_categorical_accuracy", patience=1)
    play(callback, [0.1, 0.5, 0.4], "val_categorical_accuracy")
    assert callback.stopped_epoch == 2


def test_the_best_weights_come_back() -> None:
    assert play(EarlyStopping(patience=2, restore_best=True), [3, 1, 2, 2, 2]).parameters.value == 1
    assert play(EarlyStopping(patience=9, restore_best=True), [3, 1, 2]).parameters.value == 1
    assert play(EarlyStopping(patience=2), [3, 1, 2, 2, 2]).parameters.value == 3


def test_a_plateau_lowers_the_rate() -> None:
    assert play(ReduceLROnPlateau(patience=2, factor=0.5), [1, 1, 1]).learning_rate == 0.5
    assert play(ReduceLROnPlateau(patience=2, factor=0.5), [1, 1, 1, 1, 1]).learning_rate == 0.25
    assert play(ReduceLROnPlateau(patience=2, factor=0.5), [3, 2, 1, 0]).learning_rate == 1.0
    assert play(ReduceLROnPlateau(patience=1, factor=0.5, cooldown=2), [1] * 4).learning_rate == 0.5
    assert play(ReduceLROnPlateau(patience=1, factor=0.1, min_lr=0.3), [1] * 5).learning_rate == 0.3


def test_checkpoints_of_the_best_and_the_last(tmp_path: Path) -> None:
    best = ModelCheckpoint(tmp_path / "best.ckpt", save_best_only=True)  # the path stands first, as in Keras
    play(best, [3, 1, 2, 0.5, 0.7])
    assert (tmp_path / "best.ckpt").read_text(encoding="utf-8") == "checkpoint 3.0"
    play(
        ModelCheckpoint(path=tmp_path / "run-{epoch:02d}-{val_loss:.1f}.safetensors", keep_last=2),
        [3, 1, 2, 0.5],
    )
    assert sorted(p.name for p in tmp_path.glob("run*")) == [
        "run-03-2.0.safetensors",
        "run-04-0.5.safetensors",
    ]
    play(ModelCheckpoint(path=str(tmp_path / "m.tflite")), [1])
    assert (tmp_path / "m.tflite").read_text(encoding="utf-8") == "model"


def test_csv_has_a_row_an_epoch(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    play(CSVLogger(path), [3, 1])
    rows = list(csv.DictReader(path.open(encoding="utf-8")))
    assert [(row["epoch"], row["val_loss"], row["learning_rate"]) for row in rows] == [
        ("1", "3", "1.0"),
        ("2", "1", "1.0"),
    ]
    play(CSVLogger(path, append=True), [5])
    assert [row["val_loss"] for row in csv.DictReader(path.open(encoding="utf-8"))] == ["3", "1", "5"]
    play(CSVLogger(path), [7])
    assert [row["val_loss"] for row in csv.DictReader(path.open(encoding="utf-8"))] == ["7"]


def test_history_keeps_the_course_and_draws_it(tmp_path: Path) -> None:
    history = History()
    play(history, [4, 3, 2, float("nan"), 0])
    assert history.epoch == [0, 1, 2, 3, 4]
    assert history.history["val_loss"][:3] == [4, 3, 2]
    assert history.curve("val_loss") == "█▆▅?▁"
    assert history.curve("loss") == "▁▁▁▁▁"
    assert len(history.curve("val_loss", width=3)) == 3
    history.to_csv(tmp_path / "h.csv")
    assert (tmp_path / "h.csv").read_text(encoding="utf-8").splitlines()[:2] == [
        "epoch,loss,val_loss",
        "1,0.0,4.0",
    ]
    assert repr(history) == "<History of 5 epochs: loss 0, val_loss 0>"
    with pytest.raises(ct.ConfigError, match="'acc' was not recorded, expected one of loss, val_loss"):
        history.curve("acc")


def test_progress_is_a_line_an_epoch_or_a_bar() -> None:
    lines, bar = io.StringIO(), io.StringIO()
    play(Progress(lines), [3, 1])
    written = lines.getvalue().splitlines()
    assert [line.split(" ")[:2] for line in written] == [["epoch", "1/2"], ["epoch", "2/2"]]
    assert written[0].endswith("loss 0.0000 val_loss 3.0000")
    play(Progress(bar, bar=True), [3, 1])
    assert "epoch 1/2" in bar.getvalue().split("\n")[0]
    assert " 1/1 " in bar.getvalue()
    assert "ms/step loss 3.0000" in bar.getvalue()
    assert bar.getvalue().count("\n") == 2


def test_verbose_decides(capsys: pytest.CaptureFixture[str]) -> None:
    assert Progress.wanted(0) == []
    assert [type(p) for p in Progress.wanted(1)] == [Progress]
    (lines,) = Progress.wanted("auto")
    assert isinstance(lines, Progress)
    assert not lines.bar
    with pytest.raises(ct.ConfigError, match="verbose is 'loud', expected 'auto', 0"):
        Progress.wanted("loud")


def test_functions_as_callbacks() -> None:
    seen: list[Any] = []
    play(
        LambdaCallback(
            on_train_begin=lambda: seen.append("begin"),
            on_epoch_begin=seen.append,
            on_batch_end=lambda batch, logs: seen.append((batch, logs["loss"])),
            on_epoch_end=lambda epoch, logs: seen.append(logs["val_loss"]),
            on_train_end=lambda: seen.append("end"),
        ),
        [3, 1],
    )
    assert seen == ["begin", 0, (0, 3), 3, 1, (0, 1), 1, "end"]
    with pytest.raises(ct.ConfigError, match="'on_batch' is unknown, expected some of on_train_begin"):
        LambdaCallback(on_batch=print)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EarlyStopping(mode="up"), "EarlyStopping: mode is 'up', expected 'auto', 'min' or 'max'"),
        (lambda: EarlyStopping(patience=-1), "patience is -1, expected a count from 0"),
        (lambda: EarlyStopping(min_delta=-1), "min_delta is -1, expected not negative"),
        (lambda: ReduceLROnPlateau(factor=1.0), "factor is 1.0, expected between 0 and 1"),
        (lambda: ModelCheckpoint(path="model.h5"), "path is 'model.h5', expected a name ending in .ckpt"),
        (lambda: ModelCheckpoint(keep_last=0), "keep_last is 0, expected a count from 1 or None"),
        (
            lambda: play(EarlyStopping("val_f1"), [1]),
            "monitor 'val_f1' was not measured, expected one of loss, val_loss",
        ),
        (
            lambda: play(ModelCheckpoint(path="{f1}.ckpt"), [1]),
            "cannot be filled in .*expected names among epoch, loss",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ct.ConfigError, match=message):
        make()


def data(samples: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(samples, 6)).astype(np.float32), np.eye(5, dtype=np.float32)[
        rng.integers(0, 5, samples)
    ]


def test_a_real_fit_with_all_of_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, y = data(50)
    config = ct.TrainConfig("categorical_crossentropy", ct.optimizers.Adam(0.05), 8, metrics=["accuracy"])
    session = ct.TrainSession(MODEL, config)
    history = session.fit(
        x,
        y,
        epochs=30,
        validation_split=0.2,
        verbose=2,
        callbacks=[
            EarlyStopping(patience=3, restore_best=True),
            ModelCheckpoint(path=tmp_path / "best.safetensors", save_best_only=True),
            ReduceLROnPlateau(patience=2),
            CSVLogger(tmp_path / "log.csv"),
        ],
    )
    epochs = len(history.epoch)
    assert epochs < 30
    assert set(history.history) == {"loss", "accuracy", "val_loss", "val_accuracy"}
    assert history.history["loss"][-1] < history.history["loss"][0]
    best = min(history.history["val_loss"])
    assert session.evaluate(x[40:], y[40:])["loss"] == pytest.approx(best, rel=1e-5)
    other = ct.TrainSession(MODEL, config)
    other.load_checkpoint(tmp_path / "best.safetensors")
    assert other.evaluate(x[40:], y[40:])["loss"] == pytest.approx(best, rel=1e-5)
    assert len((tmp_path / "log.csv").read_text(encoding="utf-8").splitlines()) == epochs + 1
    assert len(capsys.readouterr().err.splitlines()) == epochs


def test_a_refused_fit_changes_nothing() -> None:
    x, y = data(20)
    session = ct.TrainSession(MODEL, ct.TrainConfig("sparse_categorical_crossentropy", batch_size=4))
    before = session.parameters.flat().copy()
    labels = y.argmax(-1)
    labels[17] = 5
    with pytest.raises(ct.DataError, match="label 5 at position 17: expected 0 … 4"):
        session.fit(x, labels, epochs=1, verbose=0)
    np.testing.assert_array_equal(session.parameters.flat(), before)


def test_a_silent_fit_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    x, y = data(8)
    ct.TrainSession(MODEL, ct.TrainConfig("categorical_crossentropy", batch_size=4)).fit(
        x, y, epochs=2, verbose=0
    )
    captured = capsys.readouterr()
    assert captured.out + captured.err == ""
