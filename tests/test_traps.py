"""What people write by mistake: one line that says what they may have meant, or what they meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from picture_net import picture_net

import circle_train as ct
from circle_train.cli.main import main
from circle_train.data.opening import open_any

MLP = Path(__file__).parent / "data" / "mlp.circle"
SHAPES = Path(__file__).parent / "data" / "shapes"


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: ct.optimizers.Adam(lr=0.1), "did you mean 'learning_rate'"),  # type: ignore[call-arg]
        (lambda: ct.TrainConfig(optimiser="adam"), "did you mean 'optimizer'"),  # type: ignore[call-arg]
        (lambda: ct.TrainConfig(optimizer="adm"), "did you mean 'adam'"),
        (lambda: ct.TrainConfig(loss="mean_square_error"), "did you mean 'mean_squared_error'"),
        (lambda: ct.TrainConfig(trainable="fc1"), "a single name stands in a list"),
        (lambda: ct.TrainConfig(trainable="last:x"), "expected 'all', 'none'"),
    ],
)
def test_names_that_nobody_knows(make: Any, message: str) -> None:
    with pytest.raises((TypeError, ct.ConfigError), match=message):
        make()


def test_words_of_the_command_line_mean_the_same_in_python() -> None:
    assert ct.TrainConfig(trainable="last:3").trainable == ("last", 3)
    assert ct.TrainConfig(trainable="last:-1").trainable == "all"


def test_a_single_metric_is_not_taken_letter_by_letter() -> None:
    config = ct.TrainConfig(loss="categorical_crossentropy", metrics="accuracy")
    assert config.metrics == ("accuracy",)
    x, y = np.zeros((4, 6), np.float32), np.eye(5, dtype=np.float32)[:4]
    assert "accuracy" in ct.TrainSession(MLP, config).evaluate(x, y)


def test_a_misspelt_metric_is_named() -> None:
    session = ct.TrainSession(MLP, ct.TrainConfig(metrics=["acuracy"]))
    with pytest.raises(ct.ConfigError, match="did you mean 'accuracy'"):
        session.evaluate(np.zeros((4, 6), np.float32), np.zeros((4, 5), np.float32))


@pytest.mark.parametrize("size", ["90", "90.5", " 7 "])
def test_a_size_wants_a_unit(size: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "x.npy", np.zeros((4, 6), np.float32))
    np.save(tmp_path / "y.npy", np.zeros((4, 5), np.float32))
    words = [
        "train",
        str(MLP),
        "--input",
        str(tmp_path / "x.npy"),
        "--expected",
        str(tmp_path / "y.npy"),
        "--loss",
        "mse",
    ]
    assert main([*words, "--memory-budget", size]) == 1
    assert "expected a size with its unit, like '150MB'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name, remedy",
    [
        ("net.h5", "from_keras_model"),
        ("net.pt", r"torch\.onnx\.export"),
        ("w.safetensors", "weights alone"),
        ("x.pb", "from_saved_model"),
    ],
)
def test_files_of_other_libraries_are_told_how_to_become_ours(name: str, remedy: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"something")
    with pytest.raises(ct.ModelError, match=remedy):
        ct.load(tmp_path / name)


@pytest.mark.parametrize(
    "words, meant",
    [
        (["train", "net.tflite", "--input", "x.npy", "--lr", "1"], "--learning-rate"),
        (["train", "net.tflite", "--input", "x.npy", "--epoch", "1"], "--epochs"),
        (["convert", "a", "b", "--verfy"], "--verify"),
    ],
)
def test_options_that_nobody_knows(words: list[str], meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert f"did you mean '{meant}'" in capsys.readouterr().err


def test_options_of_fit_that_belong_elsewhere() -> None:
    session = ct.TrainSession(MLP, ct.TrainConfig(loss="mse"))
    x, y = np.zeros((4, 6), np.float32), np.zeros((4, 5), np.float32)
    with pytest.raises(ct.ConfigError, match=r"TrainConfig\(batch_size=…\)"):
        session.fit(x, y, batch_size=2)
    with pytest.raises(ct.ConfigError, match="did you mean 'epochs'"):
        session.fit(x, y, epoch=2)


def test_one_callback_is_told_too() -> None:
    session = ct.TrainSession(MLP, ct.TrainConfig(loss="mse"))
    x, y = np.zeros((4, 6), np.float32), np.zeros((4, 5), np.float32)
    stop = ct.callbacks.EarlyStopping(monitor="loss", min_delta=10)
    assert len(session.fit(x, y, epochs=9, callbacks=stop, verbose=0).epoch) == 2


def test_a_folder_validates_on_its_share_of_every_class() -> None:
    model = picture_net().with_head(["circle", "square"])
    session = ct.TrainSession(
        model, ct.TrainConfig(loss="categorical_crossentropy", metrics="accuracy", batch_size=4)
    )
    program = session.program
    data = open_any(str(SHAPES), None, program.inputs, program.targets, None)
    train, held_out = data.split(0.25)
    assert held_out is not None
    assert train.targets[0].sum(0).tolist() == [6, 6]
    assert held_out.targets[0].sum(0).tolist() == [2, 2]
    history = session.fit(str(SHAPES), validation_split=0.25, verbose=0)
    assert "val_accuracy" in history.history


def test_fewer_classes_than_outputs_are_not_trained_in_silence() -> None:
    session = ct.TrainSession(picture_net(), ct.TrainConfig(loss="categorical_crossentropy"))
    with pytest.raises(ct.DataError, match="has 2 classes, but the model tells 10 apart; give it a new head"):
        session.fit(str(SHAPES), verbose=0)


def test_classes_have_the_numbers_that_the_model_gives_them() -> None:
    model = picture_net().with_head(["square", "triangle", "circle"])
    program = ct.TrainSession(model, ct.TrainConfig(loss="categorical_crossentropy")).program
    data = open_any(str(SHAPES), None, program.inputs, program.targets, model.description)
    assert data.targets[0].sum(0).tolist() == [8, 0, 8]  # type: ignore[union-attr]


def test_the_command_line_writes_the_best_epoch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 6)).astype(np.float32)
    np.savez(tmp_path / "d.npz", x=x, y=np.eye(5, dtype=np.float32)[rng.integers(0, 5, 40)])
    words = [
        "train",
        str(MLP),
        "--input",
        str(tmp_path / "d.npz"),
        "--loss",
        "categorical_crossentropy",
        "--epochs",
        "6",
    ]
    words += ["--validation-split", "0.5", "--learning-rate", "0.5", "--export", str(tmp_path / "o.circle")]
    assert main(words) == 0
    said = capsys.readouterr()
    losses = [
        float(line.rpartition("val_loss ")[2].split()[0])
        for line in said.err.splitlines()
        if "val_loss" in line
    ]
    assert f"best epoch: {int(np.argmin(losses)) + 1} of 6" in said.out
    session = ct.TrainSession(tmp_path / "o.circle", ct.TrainConfig(loss="categorical_crossentropy"))
    found = session.evaluate(x[20:], np.load(tmp_path / "d.npz")["y"][20:])["loss"]
    assert found == pytest.approx(min(losses), abs=1e-4)


@pytest.mark.parametrize(
    "option, path, message",
    [
        ("--export", "x.h5", "the suffix is '.h5'"),
        ("--export", "x.onnx", "only a model that came from .onnx"),
        ("--export", "nowhere/x.tflite", "there is no folder"),
        ("--export-checkpoint", "x.tflite", "the suffix is '.tflite'"),
    ],
)
def test_where_results_go_is_looked_at_before_training(
    option: str,
    path: str,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("d.npz", x=np.zeros((4, 6), np.float32), y=np.zeros((4, 5), np.float32))
    assert main(["train", str(MLP), "--input", "d.npz", "--loss", "mse", option, path]) == 1
    said = capsys.readouterr().err
    assert message in said and "epoch" not in said


def test_more_operators_than_there_are_and_none_that_learns() -> None:
    x, y = np.zeros((4, 6), np.float32), np.zeros((4, 5), np.float32)
    with pytest.warns(match=r"'last:99', but the model has 3 operators: all of them are trained"):
        ct.TrainSession(MLP, ct.TrainConfig(loss="mse", trainable="last:99")).fit(x, y, verbose=0)
    for nothing in ("none", "last:0", ("last", 1)):
        session = ct.TrainSession(MLP, ct.TrainConfig(loss="mse", trainable=nothing))
        with pytest.warns(UserWarning, match="nothing is trained"):
            session.fit(x, y, verbose=0)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_bytes_for_a_net_of_floats_are_not_taken_in_silence(dtype: str) -> None:
    session = ct.TrainSession(MLP, ct.TrainConfig(loss="mse"))
    x, y = np.full((4, 6), 100, dtype), np.zeros((4, 5), np.float32)
    with pytest.warns(UserWarning, match=f"takes floats and is given {dtype} of 0 … 100"):
        session.evaluate(x, y)


def test_bytes_that_are_yes_or_no_are_data(recwarn: pytest.WarningsRecorder) -> None:
    session = ct.TrainSession(MLP, ct.TrainConfig(loss="mse"))
    session.evaluate(np.ones((4, 6), np.uint8), np.zeros((4, 5), np.float32))
    assert not recwarn.list


def test_who_watches_the_validation_is_refused_before_the_first_step() -> None:
    session = ct.TrainSession(MLP, ct.TrainConfig(loss="mse"))
    x, y = np.zeros((4, 6), np.float32), np.zeros((4, 5), np.float32)
    stop = ct.callbacks.EarlyStopping
    with pytest.raises(ct.ConfigError, match=r"nothing validates; give fit validation data"):
        session.fit(x, y, epochs=9, callbacks=stop(), verbose=0)
    with pytest.raises(
        ct.ConfigError, match=r"the class EarlyStopping, expected an object: EarlyStopping\(\)"
    ):
        session.fit(x, y, callbacks=stop, verbose=0)  # type: ignore[arg-type]
    assert session.state.step == 0
