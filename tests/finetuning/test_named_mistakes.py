"""Mistakes are named, before training and before predictions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from picture_net import picture_net

import circle_train as ct
from circle_train.cli.main import main
from circle_train.finetuning.answers import answers
from circle_train.format.metadata.description import Description

SHAPES = Path(__file__).parents[1] / "data" / "shapes"


@pytest.mark.parametrize(
    "words, message",
    [
        (["-o", "x.h5"], r"suffix is '\.h5'"),
        (["-o", "x.onnx"], r"only a model that came from \.onnx"),
        (["-o", "nowhere/x.tflite"], "there is no folder"),
        (["-o", "x.tflite", "--classes", "3"], "--classes is 3, but there are 2 folders: circle, square"),
        (["-o", "x.tflite", "--size", "16x16"], "takes 32×32 pictures"),
        (["-o", "x.tflite", "--scale", "0"], "scale is 0"),
        (["-o", "x.tflite", "--augment", "spin"], "'spin' is unknown"),
        (["-o", "x.tflite", "--validation", "1.5"], "validation is 1.5"),
    ],
)
def test_mistakes_are_named_before_training(
    words: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    picture_net().save("net.tflite")
    assert main(["finetune", str(SHAPES), "--model", "net.tflite", *words]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ") and said.count("\n") == 1
    assert re.search(message, said), said


@pytest.mark.parametrize(
    "words, message",
    [
        ([], "give the files to name"),
        (["nowhere.png"], "there is no such file"),
        (["net.tflite"], "cannot be read as a picture"),
        ([str(SHAPES), "--output", "x.npy"], r"expected one of \.csv, \.json"),
    ],
)
def test_mistakes_of_predict_are_named(
    words: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    picture_net().described(Description(kind="image", mean=(0.0,), std=(255.0,))).save("net.tflite")
    assert main(["predict", "net.tflite", *words]) == 1
    assert re.search(message, capsys.readouterr().err)


def test_a_model_that_does_not_say_what_pixels_become_is_not_guessed_at(tmp_path: Path) -> None:
    with pytest.raises(ct.ConfigError, match=r"--scale 127\.5 --offset 127\.5"):
        answers(picture_net(), [SHAPES])
