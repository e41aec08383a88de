"""Texts from the command line: a table whose columns have names of their own, trained, asked and judged; LiteRT agrees."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from networks import finish, make, new_input, weight

import circle_train as ct
from circle_train.cli.main import main
from circle_train.ir import DType, Graph
from circle_train.ir.graph import constant

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "fine", "bad", "dull", "film", "a", "very"]
ROWS = [f"a very {word} film,{verdict}" for word, verdict in zip(WORDS[4:8], "++--", strict=True)] * 6


def words(folder: Path) -> Path:
    """The mean of what eight tokens mean, and a classifier of it."""
    x = new_input("tokens", 1, 8, dtype=DType.INT32)
    graph = Graph("words", [x])
    meant = graph.emit(make("GATHER", axis=0), weight("meanings", len(WORDS), 16), x, name="meant")
    mean = graph.emit(make("MEAN"), meant, constant(np.array([1], np.int32), "axes"), name="mean")
    scores = graph.emit(make("FULLY_CONNECTED"), mean, weight("w", 4, 16), weight("b", 4), name="scores")
    finish(graph, graph.emit(make("SOFTMAX", beta=1.0), scores, name="y")).save(folder / "net.tflite")
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    (folder / "said.csv").write_text("\n".join(["review,verdict", *ROWS]))
    return folder


def test_a_table_of_texts_keeps_the_names_of_its_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    tokenizers = pytest.importorskip("tokenizers")
    monkeypatch.chdir(words(tmp_path))
    course = "finetune said.csv --kind text --tokenizer vocab.txt --label verdict --columns review --learning-rate 0.1"
    assert main([*course.split(), "--model", "net.tflite", "-o", "out.tflite"]) == 0
    model = ct.load("out.tflite")
    assert model.description is not None
    assert model.description.details == {"tokens": 8, "columns": ["review"], "targets": ["verdict"]}
    capsys.readouterr()
    assert main(["eval", "out.tflite", "said.csv", "--tokenizer", "vocab.txt"]) == 0
    assert "on 24 samples: accuracy 1.000" in capsys.readouterr().out
    Path("one.txt").write_text("A dull film")
    words_ = [
        "predict",
        "out.tflite",
        "said.csv",
        "one.txt",
        "--tokenizer",
        "vocab.txt",
        "--json",
        "--top",
        "2",
    ]
    assert main(words_) == 0
    said = json.loads(capsys.readouterr().out)
    assert [row["file"] for row in said] == [*(f"said.csv:{line}" for line in range(2, 26)), "one.txt"]
    cut = tokenizers.BertWordPieceTokenizer("vocab.txt", lowercase=True)
    runner = litert.Interpreter("out.tflite")
    runner.allocate_tensors()
    for row, text in zip(said, [*(row.partition(",")[0] for row in ROWS), "A dull film"], strict=True):
        ids = cut.encode(text).ids
        runner.set_tensor(
            runner.get_input_details()[0]["index"], np.array([ids + [0] * (8 - len(ids))], np.int32)
        )
        runner.invoke()
        scores = runner.get_tensor(runner.get_output_details()[0]["index"])[0]
        np.testing.assert_allclose([row[name] for name in model.labels], scores, atol=1e-5)


def test_a_column_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(words(tmp_path))
    course = (
        "finetune said.csv --kind text --tokenizer vocab.txt --label verdict --model net.tflite -o out.tflite"
    )
    assert main(course.split()) == 1
    assert "has no column 'text', its columns are review, verdict" in capsys.readouterr().err


def test_the_only_column_of_a_table_holds_the_texts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tokenizers")
    monkeypatch.chdir(words(tmp_path))
    for number, row in enumerate(ROWS):
        text, _, verdict = row.partition(",")
        folder = Path("mails", {"+": "good", "-": "bad"}[verdict])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.txt").write_text(text)
    course = "finetune mails --tokenizer vocab.txt --learning-rate 0.1 --model net.tflite -o out.tflite"
    assert main(course.split()) == 0
    Path("new.csv").write_text("remark\na very fine film\na very dull film\n")
    capsys.readouterr()
    assert main(["predict", "out.tflite", "new.csv", "--tokenizer", "vocab.txt", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [(row.pop("file"), *row) for row in said] == [("new.csv:2", "good"), ("new.csv:3", "bad")]
    Path("both.csv").write_text("remark,day\na dull film,Monday\n")
    assert main(["predict", "out.tflite", "both.csv", "--tokenizer", "vocab.txt"]) == 1
    assert "'both.csv' has no column 'text', its columns are remark, day; name one" in capsys.readouterr().err
