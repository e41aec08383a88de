"""The page of a fine-tuning: whole, alone, with names instead of numbers."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
from picture_net import picture_net

import circle_train as ct
from circle_train.cli.main import main
from circle_train.finetuning.account import Result, best_epochs, class_rows, mistakes, untrained
from circle_train.finetuning.result import _shares

SHAPES = Path(__file__).parents[1] / "data" / "shapes"


@pytest.fixture(scope="module")
def result() -> Result:
    """One epoch: it still errs."""
    data = ct.data.images(SHAPES, validation=0.5)
    return ct.finetune(picture_net(), data, epochs=1, learning_rate=1e-5, verbose=0, trainable="none")


def test_rows_are_the_judgement(result: Result) -> None:
    counts = result.judgement.confusion
    for place, row in enumerate(class_rows(result)):
        assert (row.name, row.samples) == (result.data.classes[place], counts[place].sum())
        assert row.recall == counts[place, place] / counts[place].sum()


def test_mistakes_are_those_samples_and_the_worst_comes_first(result: Result) -> None:
    found = mistakes(result)
    assert len(found) == result.judgement.confusion.sum() - result.judgement.confusion.trace() > 0
    assert all(mistake.truth != mistake.taken for mistake in found)
    assert all(mistake.picture.startswith("data:image/jpeg;base64,") for mistake in found)
    scores = [mistake.score for mistake in found]
    assert scores == sorted(scores, reverse=True)
    names = {file.name for file in (SHAPES / found[0].truth).iterdir()}
    assert found[0].name in names


def test_before_is_the_head_as_it_was_made(result: Result) -> None:
    session = ct.TrainSession(result.session.model, result.session.config)
    pictures = result.examined.open(session.program.inputs[0], result.how)
    np.testing.assert_allclose(untrained(result).found, session.predict(pictures[:]), atol=1e-6)


def test_the_page_stands_alone(result: Result, tmp_path: Path) -> None:
    model = tmp_path / "shapes.tflite"
    result.export(model)
    result.report(tmp_path / "report.html", "circle-train finetune <b>", [model])
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"(src|href)=\"(?!data:)", text)
    assert hashlib.sha256(model.read_bytes()).hexdigest() in text
    assert "finetune &lt;b&gt;" in text
    for words in (
        "Class by class",
        "Before and after",
        "Worst mistakes",
        "<th>circle</th>",
        best_epochs(result),
        f"<td>{result.session.backend.name}, ",
        f"<b>{result.metrics['accuracy']:.1%}</b>",
    ):
        assert words in text


def test_the_page_says_what_the_shipped_model_is_worth(result: Result, tmp_path: Path) -> None:
    shipped = result.export(tmp_path / "shapes.tflite", quantize="int8")
    assert shipped is not None and shipped.judged is not None
    result.report(tmp_path / "report.html", shipped=shipped)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<th>as shipped</th>" in text
    assert f"As shipped: int8, judged by {shipped.judged.runtime}." in text
    name, value = next(iter(shipped.judged.after.items()))
    row = f"<td>{name.replace('_', ' ')}</td><td></td><td>{shipped.judged.before[name]:.3f}</td><td>{value:.3f}</td>"
    assert row in text


def test_the_command_fills_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net, out, folder = tmp_path / "net.tflite", tmp_path / "out.tflite", tmp_path / "run"
    picture_net().save(net)
    words = ["--model", str(net), "-o", str(out), "--epochs", "1", "--run-dir", str(folder)]
    assert main(["finetune", str(SHAPES), *words]) == 0
    assert f"{folder}/report.html" in capsys.readouterr().out
    assert sorted(file.name for file in folder.iterdir()) == [
        "metrics.json",
        "plan.txt",
        "report.html",
        "run.json",
    ]
    assert json.loads((folder / "metrics.json").read_text())["classes"] == ["circle", "square"]
    (tmp_path / "taken").write_text("")
    assert main(["finetune", str(SHAPES), *words[:-1], str(tmp_path / "taken")]) == 1
    assert "run folder" in capsys.readouterr().err


def test_scores_are_shares_whether_a_model_ends_in_logits_or_not() -> None:
    logits = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    shares = np.exp(logits) / np.exp(logits).sum(1)[:, None]
    for scores in (logits, shares, logits - 100):
        np.testing.assert_allclose(_shares(scores), shares, rtol=1e-5)
