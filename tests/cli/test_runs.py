"""Runs that are gone on with, and files that are in nobody's way."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import numpy as np
import pytest

import circle_train as ct
from circle_train.cli.main import main
from circle_train.cli.runs.places import unused
from circle_train.cli.settings import config_of
from circle_train.cli.train import add_arguments
from circle_train.fitting.saving import CSVLogger

MLP = Path(__file__).parents[1] / "data" / "mlp.circle"
WORDS = [
    "--input",
    "d.npz",
    "--loss",
    "categorical_crossentropy",
    "--epochs",
    "3",
    "--validation-split",
    "0.25",
]


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.savez("d.npz", x=rng.normal(size=(40, 6)).astype("f"), y=np.eye(5, dtype="f")[rng.integers(0, 5, 40)])
    return tmp_path


def train(*words: str) -> int:
    return main(["train", str(MLP), *WORDS, "--batch-size", "8", *words])


def interrupt(monkeypatch: pytest.MonkeyPatch, epoch: int) -> None:
    """Ctrl-C while an epoch's row is written."""
    write = CSVLogger.on_epoch_end

    def or_stop(self: CSVLogger, number: int, logs: dict[str, float]) -> None:
        if number == epoch:
            raise KeyboardInterrupt
        write(self, number, logs)

    monkeypatch.setattr(CSVLogger, "on_epoch_end", or_stop)


def test_a_stopped_run_goes_on_to_the_same_files(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train("--run-dir", "whole", "--checkpoint-every", "2") == 0
    with monkeypatch.context() as patch:
        interrupt(patch, 1)
        assert train("--run-dir", "run", "--checkpoint-every", "2") == 130
    assert "to go on: circle-train train --resume run" in capsys.readouterr().err
    os.chdir("/")
    assert main(["train", "--resume", str(data / "run")]) == 0
    assert "epochs are done" in capsys.readouterr().out
    for name in ("model.circle", "metrics.json", "best.safetensors", "log.csv"):
        assert (data / "run" / name).read_bytes() == (data / "whole" / name).read_bytes(), name


def test_a_finished_run_says_so_and_may_go_further(capsys: pytest.CaptureFixture[str]) -> None:
    assert train("--run-dir", "run") == 0
    assert "wrote run/model.circle and run/report.html; next: circle-train" in capsys.readouterr().out
    before = Path("run/model.circle").read_bytes()
    assert main(["train", "--resume", "run"]) == 0
    assert "all 3 epochs are done, there is nothing to go on with" in capsys.readouterr().out
    assert Path("run/model.circle").read_bytes() == before
    assert main(["train", "--resume", "run", "--epochs", "5"]) == 0
    assert len(Path("run/log.csv").read_text().splitlines()) == 1 + 5


def test_runs_number_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    assert train("--run-dir", "run") == train("--run-dir", "run") == 0
    assert Path("run-2/report.html").exists()
    assert "wrote run-2/model.circle" in capsys.readouterr().out


def test_a_run_that_a_checkpoint_comes_from_goes_on_in_its_place() -> None:
    assert train("--run-dir", "run") == train("--run-dir", "other") == 0
    assert train("--run-dir", "run", "--checkpoint", "run/last.safetensors", "--epochs", "4") == 0
    assert not Path("run-2").exists()
    assert train("--run-dir", "run", "--checkpoint", "other/last.safetensors", "--epochs", "4") == 0
    assert Path("run-2/report.html").exists()


@pytest.mark.parametrize(
    "words, optimizer, rate", [("--optimizer sgd", "SGD", 0.001), ("--learning-rate 0.5", "Adam", 0.5)]
)
def test_an_optimizer_or_a_rate_alone_is_taken(words: str, optimizer: str, rate: float) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    config = config_of(parser.parse_args([str(MLP), "--loss", "mse", *words.split()]), ct.load(MLP))
    assert (type(config.rule).__name__, config.rule.base_learning_rate) == (optimizer, rate)


def test_what_was_learned_is_written_though_nobody_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert train() == train() == 0
    assert "wrote mlp-trained.circle" in capsys.readouterr().out
    assert ct.load("mlp-trained-2.circle").outputs


def test_a_stop_without_a_folder_keeps_a_checkpoint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ct.callbacks.EarlyStopping, "on_epoch_end", stop)
        assert train() == 130
    said = capsys.readouterr().err
    assert "wrote mlp-stopped.safetensors; to go on: circle-train" in said
    assert train("--checkpoint", "mlp-stopped.safetensors") == 0


@pytest.mark.parametrize(
    "words, message",
    [
        (["--resume", "nowhere"], "run.json cannot be read"),
        (["--resume", "run", "--seed", "3"], "takes everything else from the run; leave out seed"),
        (["--resume", "damaged"], "run.json is damaged"),
    ],
)
def test_what_cannot_be_gone_on_with(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("damaged").mkdir()
    Path("damaged/run.json").write_text("[]")
    assert main(["train", *words]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "word, value",
    [
        ("model", ["a"]), ("input", {"a": 1}), ("input", "a\0b"), ("input", "\ud800"), ("shape", [[1]]), ("shape", "x=1"),
        ("epochs", "3"), ("epochs", True), ("batch_size", 2.5), ("learning_rate", "0.1"), ("seed", None),
        ("checkpoint_every", 0), ("loss", "no such loss"), ("metric", ["no such metric"]), ("no_shuffle", 1),
        ("scale", {"a": 1}), ("new", 1), ("run", "x"),
    ],
)  # fmt: skip
def test_a_record_says_what_a_command_line_could_say(
    word: str, value: object, capsys: pytest.CaptureFixture[str]
) -> None:
    """Anybody may have written it: each of these ended in an exception of Python's."""
    assert train("--run-dir", "run") == 0
    Path("run/report.html").unlink()
    told = json.loads(Path("run/run.json").read_text())
    told["options"][word] = value
    Path("run/run.json").write_text(json.dumps(told))
    capsys.readouterr()
    assert main(["train", "--resume", "run"]) == 1
    assert f"run.json has {word} = " in capsys.readouterr().err


def test_words_that_a_record_lacks_are_those_of_who_says_nothing() -> None:
    assert train("--run-dir", "run") == 0
    told = json.loads(Path("run/run.json").read_text())
    for word in ("keep", "scale", "seed", "no_shuffle", "export_checkpoint"):
        del told["options"][word]
    Path("run/run.json").write_text(json.dumps(told))
    assert main(["train", "--resume", "run", "--epochs", "4"]) == 0


@pytest.mark.parametrize(
    "words",
    [
        ["train", "no.circle", "--input", "d.npz", "--export", "x.h5"],
        ["export", "no.circle", "--checkpoint", "c", "x.h5"],
        ["convert", "no.circle", "nowhere/x.tflite"],
        ["predict", "no.circle", "--input", "x.npy", "--output", "nowhere/x.npy"],
        ["plus", "no.circle", "s.json", "x.h5"],
        ["finetune", "photos", "--model", "no.tflite", "-o", "x.h5"],
    ],
)
def test_bad_places_are_refused_before_the_model_is_opened(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 1
    assert "no such file" not in capsys.readouterr().err


def test_a_training_of_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for nothing in ("none", "last:0", "last:1"):
        assert train("--trainable", nothing) == 1
        assert "nothing would be trained" in capsys.readouterr().err
    assert train("--trainable", "last:99") == 0
    assert "warning: trainable is 'last:99', but the model has 3 operators" in capsys.readouterr().err


def test_numbers_are_free() -> None:
    Path("a.tflite").touch()
    Path("a-2.tflite").touch()
    Path("empty").mkdir()
    assert [str(unused(name)) for name in ("a.tflite", "b.tflite", "empty")] == [
        "a-3.tflite",
        "b.tflite",
        "empty",
    ]


def test_a_record_is_complete() -> None:
    assert train("--run-dir", "run", "--metric", "accuracy") == 0
    words = json.loads(Path("run/run.json").read_text())["options"]
    assert words["metric"] == ["accuracy"] and words["model"] == str(MLP) and os.path.isabs(words["input"])
