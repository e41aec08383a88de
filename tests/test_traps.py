"""What people write by mistake: one line that says what they may have meant, or what they meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import circle_train as ct
from circle_train.cli.main import main

MLP = Path(__file__).parent / "data" / "mlp.circle"


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
