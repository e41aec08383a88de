"""A course that is stopped goes on as if nothing had happened, from Python and from the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from picture_net import picture_net

import circle_train as ct
from circle_train.cli.main import main
from circle_train.finetuning.stages import Stages

SHAPES = Path(__file__).parents[1] / "data" / "shapes"
EPOCHS = 4


@pytest.fixture(autouse=True)
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    picture_net().save("net.tflite")
    return tmp_path


def finetune(*words: str) -> int:
    course = ["--epochs", str(EPOCHS), "--learning-rate", "0.02", "--validation", "0.25"]
    return main(["finetune", str(SHAPES), "--model", "net.tflite", *course, *words])


def interrupted(monkeypatch: pytest.MonkeyPatch, after: int) -> pytest.MonkeyPatch:
    """Ctrl-C when so many epochs are over, in both phases together."""
    told, listen = [0], ct.callbacks.EarlyStopping.on_epoch_end

    def stop(self: ct.callbacks.EarlyStopping, epoch: int, logs: dict[str, float]) -> None:
        told[0] += 1
        if told[0] > after:
            raise KeyboardInterrupt
        listen(self, epoch, logs)

    monkeypatch.setattr(ct.callbacks.EarlyStopping, "on_epoch_end", stop)
    return monkeypatch


@pytest.mark.parametrize("after", [0, 1, EPOCHS, EPOCHS + 2])
@pytest.mark.parametrize("place", [["--run-dir", "run"], []])
def test_a_stopped_course_ends_in_the_same_file(
    after: int, place: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert finetune("-o", "whole.tflite") == 0
    with monkeypatch.context() as patch:
        interrupted(patch, after)
        assert finetune("-o", "run.tflite", *place) == 130
    assert "to go on: circle-train finetune --resume run" in capsys.readouterr().err
    assert not Path("run.tflite").exists()
    (folder,) = Path().glob("run*")
    assert main(["finetune", "--resume", str(folder)]) == 0
    assert Path("run.tflite").read_bytes() == Path("whole.tflite").read_bytes()
    assert {path.name for path in folder.iterdir()} == {"run.json", "report.html", "metrics.json", "plan.txt"}
    capsys.readouterr()
    assert main(["finetune", "--resume", str(folder)]) == 0
    assert "there is nothing to go on with" in capsys.readouterr().out


@pytest.mark.parametrize("samples", ["12", "3"])  # the second: a checkpoint with the last of four batches
def test_a_killed_course_goes_on_from_its_last_checkpoint(
    samples: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert finetune("-o", "whole.tflite", "--batch-size", samples) == 0

    def vanish(*_: object) -> None:
        raise SystemExit(137)

    with monkeypatch.context() as patch:
        interrupted(patch, 2)
        patch.setattr(Stages, "save", vanish)  # no farewell, as after kill -9
        with pytest.raises(SystemExit):
            finetune(
                "-o", "run.tflite", "--run-dir", "run", "--checkpoint-every", "2", "--batch-size", samples
            )
    assert main(["finetune", "--resume", "run"]) == 0
    assert Path("run.tflite").read_bytes() == Path("whole.tflite").read_bytes()


def test_python_goes_on_in_the_folder_that_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    data = ct.data.images(SHAPES, validation=0.25)
    told = {"epochs": EPOCHS, "learning_rate": 0.02, "verbose": 0}
    whole = ct.finetune("net.tflite", data, **told)
    with monkeypatch.context() as patch:
        interrupted(patch, 3)
        with pytest.raises(KeyboardInterrupt):
            ct.finetune("net.tflite", data, run_dir="run", **told)
    result = ct.finetune("net.tflite", data, run_dir="run", **told)
    assert result.histories[0].history == whole.histories[0].history
    assert not [*Path("run").iterdir()]
    for name, value in whole.session.parameters.items():
        np.testing.assert_array_equal(result.session.parameters[name], value)


@pytest.mark.parametrize(
    "words, message",
    [
        (["--resume", "nowhere"], "give the folder of a run that `circle-train finetune --run-dir` made"),
        (["--resume", "of-train"], "that is a run of `circle-train train`"),
        (["--resume", "of-train", "--seed", "3"], "leave out seed"),
    ],
)
def test_what_is_no_course_is_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("of-train").mkdir()
    Path("of-train/run.json").write_text('{"command": "train", "options": {}}')
    assert main(["finetune", *words]) == 1
    assert message in capsys.readouterr().err


def test_a_damaged_account_of_the_head_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        interrupted(patch, EPOCHS)
        assert finetune("-o", "run.tflite", "--run-dir", "run") == 130
    Path("run/course.json").write_text("[1]")
    capsys.readouterr()
    assert main(["finetune", "--resume", "run"]) == 1
    assert "course.json' is damaged" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, message",
    [
        (["--checkpoint-every", "3"], "--checkpoint-every goes with --run-dir"),
        (["--variants", "3"], "variants is 3, but it takes samples that are varied (augment)"),
        (["--patience", "3", "--validation", "0"], "patience is 3, but it takes samples held out"),
        (["--label-smoothing", "2"], "label_smoothing is 2"),
    ],
)
def test_no_word_is_without_effect(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert finetune("-o", "o.tflite", *words) == 1
    assert message in capsys.readouterr().err
