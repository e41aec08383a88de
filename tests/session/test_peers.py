"""An exported file is run in the runtime that is installed for it."""

from __future__ import annotations

from pathlib import Path

import pytest

import circle_train as ct
from circle_train.cli.main import main
from circle_train.session import peers

MLP = "tests/data/mlp.circle"


def test_litert_runs_an_exported_file_and_agrees(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="LiteRT (ai-edge-litert) is not installed")
    ct.load(MLP).save(tmp_path / "net.tflite")
    agreement = peers.compare(tmp_path / "net.tflite")
    assert agreement is not None and agreement.runtime == "LiteRT"
    assert len(agreement.differences) == 1 and max(agreement.differences.values()) < 1e-5


def test_a_file_for_which_there_is_no_runtime_is_not_compared(tmp_path: Path) -> None:
    assert peers.compare(MLP) is None


def test_a_runtime_that_disagrees_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    session = ct.TrainSession(MLP, ct.TrainConfig(loss="mse", batch_size=1))
    session.save_checkpoint(tmp_path / "c.safetensors")
    command = [
        "export",
        MLP,
        "--checkpoint",
        str(tmp_path / "c.safetensors"),
        str(tmp_path / "o.tflite"),
        "--verify",
    ]
    for difference, status in ((0.0, 0), (0.5, 1)):
        monkeypatch.setattr(peers, "compare", lambda path, d=difference: peers.Agreement("LiteRT", {"y": d}))
        assert main(command) == status
        printed = capsys.readouterr()
        assert "LiteRT runs it" in printed.out + printed.err
