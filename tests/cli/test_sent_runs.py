"""A run's folder that somebody sent says neither where to write nor under which name."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import circle_train as ct
from circle_train.cli.main import main

DATA = Path(__file__).parents[1] / "data"

X, Y = np.ones((4, 6), np.float32), np.ones((4, 5), np.float32)


# Folders


def unpacked_run(folder: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> Path:
    """A run as somebody sends it: its files are the same, the folder is another."""
    monkeypatch.chdir(folder)
    np.savez("d.npz", x=X, y=Y)
    words = ("train", str(DATA / "mlp.circle"), "--input", "d.npz", "--loss", "mse", "--epochs", "1", *words)
    assert main([*words, "--run-dir", "sent"]) == 0
    shutil.copytree("sent", "run")
    return folder / "run"


NAMES = ("log.csv", "plan.txt", "last.safetensors", "best.safetensors", "metrics.json", "curves.png", "report.html",
         "run.json", "model.circle")  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_links_in_a_run_overwrite_nothing_outside(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A checkpoint says what a log begins with: behind a link it stood in somebody's start file."""
    run = unpacked_run(tmp_path, monkeypatch)
    victim = tmp_path / "victim"
    victim.write_bytes((run / name).read_bytes())
    before = victim.read_bytes()
    (run / name).unlink()
    (run / name).symlink_to(victim)
    assert main(["train", "--resume", "run", "--epochs", "2"]) == 1
    assert f"'{name}' is a link to '{victim}'" in capsys.readouterr().err
    assert victim.read_bytes() == before


@pytest.mark.parametrize("what", ["package", "course", "fleet", "missing target"])
def test_links_in_other_folders_of_ours_neither(what: str, tmp_path: Path) -> None:
    from circle_train.finetuning.stages import Stages

    victim, folder = tmp_path / "victim", tmp_path / "folder"
    folder.mkdir()
    if what != "missing target":
        victim.write_text("mine")
    config = ct.TrainConfig(loss="mse", batch_size=4)
    name = {"package": "training.circle", "course": "head.safetensors", "fleet": "run.safetensors"}.get(what)
    (folder / (name or "checkpoint.safetensors")).symlink_to(victim)
    with pytest.raises(ct.ConfigError, match="is a link to"):
        if what == "course":
            Stages(folder)
        elif what == "fleet":
            pytest.importorskip("flwr")
            from circle_train.federated.server.app import RunSettings, Server

            Server(DATA / "mlp.circle", None, config, RunSettings())._begun(RunSettings(run_dir=folder))
        else:
            ct.make_artifacts(DATA / "mlp.circle", folder, config)
    assert not victim.exists() if what == "missing target" else victim.read_text() == "mine"


def test_a_run_that_was_sent_does_not_say_where_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine.tflite"
    unpacked_run(tmp_path, monkeypatch, "--export", str(mine))
    mine.write_text("mine")
    resume = ["train", "--resume", "run", "--epochs", "2"]
    assert main(resume) == 1
    assert f"would write {mine}; say where to with --export" in capsys.readouterr().err
    assert mine.read_text() == "mine"
    assert main([*resume, "--export", "own.tflite"]) == 0
    assert mine.read_text() == "mine" and ct.load("own.tflite").outputs
    assert main(["train", "--resume", "sent", "--epochs", "2"]) == 0, "where it began it may"
    assert ct.load(mine).outputs


@pytest.mark.parametrize("name", ["a\0b", "half \ud800"])
def test_names_that_no_file_can_have_are_ours_to_refuse(name: str, tmp_path: Path) -> None:
    session = ct.TrainSession(DATA / "mlp.circle", ct.TrainConfig(loss="mse", batch_size=4))
    place = f"{tmp_path}/{name}"
    writers = (
        lambda: session.export(f"{place}.tflite"),
        lambda: session.save_checkpoint(f"{place}.ckpt"),
        lambda: session.report(f"{place}.html"),
        lambda: ct.make_artifacts(DATA / "mlp.circle", place, session.config),
    )
    for write in writers:
        with pytest.raises(ct.ConfigError, match="no file can have this name"):
            write()
