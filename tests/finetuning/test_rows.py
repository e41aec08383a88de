"""Tables and windows from the command line: trained, asked and judged by what the model's file says of their columns."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import circle_train as ct
from circle_train.cli.main import main
from circle_train.finetuning.answers import answers
from circle_train.format.metadata.description import Description

MLP = Path(__file__).parents[1] / "data" / "mlp.circle"
RNG = np.random.default_rng(3)
NAMES = [*"abcdef"]


def table(path: Path, **targets: list[object]) -> Path:
    """Six columns of numbers with others behind them, of which some are words."""
    rows = RNG.normal(size=(len(next(iter(targets.values()))), 6)).round(4)
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*NAMES, *targets])
        writer.writerows([*row, *more] for row, *more in zip(rows, *targets.values(), strict=True))
    return path


def course(source: Path, *words: str) -> Path:
    """The file that `finetune` writes."""
    out = source.with_suffix(".tflite")
    assert main(["finetune", str(source), "--model", str(MLP), "-o", str(out), "--epochs", "2", *words]) == 0
    return out


def test_a_price_is_foreseen_asked_for_and_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = table(tmp_path / "houses.csv", price=[0.25 + i for i in range(40)])
    out = course(source, "--label", "price")
    assert "houses.csv: 40 samples\n" in capsys.readouterr().out
    assert main(["predict", str(out), str(source), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [*said[0]] == ["file", "price"] and said[0]["file"] == f"{source}:2"
    foreseen = np.array([row["price"] for row in said])
    wanted = np.array([0.25 + i for i in range(40)])
    assert main(["eval", str(out), str(source), "--json"]) == 0
    judged = json.loads(capsys.readouterr().out)
    assert judged["mean_absolute_error"] == pytest.approx(np.abs(foreseen - wanted).mean(), rel=1e-4)


def test_whole_numbers_are_values_for_a_model_of_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = course(table(tmp_path / "houses.csv", price=[0.5 + i for i in range(40)]), "--label", "price")
    others = table(tmp_path / "others.csv", price=[*range(10)])
    capsys.readouterr()
    assert main(["eval", str(out), str(others)]) == 0
    assert "on 10 samples: mean absolute error" in capsys.readouterr().out


def test_several_labels_are_asked_for_and_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = table(tmp_path / "days.csv", sunny=[i % 2 for i in range(40)], warm=[i // 20 for i in range(40)])
    out = course(source, "--label", "sunny,warm")
    capsys.readouterr()
    assert main(["predict", str(out), str(source), "--output", str(tmp_path / "said.csv"), "--top", "2"]) == 0
    with open(tmp_path / "said.csv") as file:
        said = [*csv.DictReader(file)]
    assert len(said) == 80 and {row["class"] for row in said} == {"sunny", "warm"}
    assert main(["eval", str(out), str(source)]) == 0
    assert "  sunny  precision" in capsys.readouterr().out


def test_the_columns_that_were_trained_are_read_wherever_they_stand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = table(tmp_path / "t.csv", name=[f"n{i}" for i in range(20)], kind=[*"xy" * 10])
    words = [
        "finetune",
        str(source),
        "--model",
        str(MLP),
        "-o",
        str(tmp_path / "o.tflite"),
        "--label",
        "kind",
    ]
    assert main(words) == 1
    assert "--columns" in capsys.readouterr().err
    out = course(source, "--label", "kind", "--columns", ",".join(NAMES))
    with open(source) as file:
        rows = [*csv.DictReader(file)]
    with open(tmp_path / "turned.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, [*reversed(NAMES)], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    capsys.readouterr()
    said = []
    for name in ("t.csv", "turned.csv"):
        assert main(["predict", str(out), str(tmp_path / name), "--top", "2", "--json"]) == 0
        said.append([{**row, "file": ""} for row in json.loads(capsys.readouterr().out)])
    assert said[0] == said[1]


def test_windows_are_cut_as_they_were_trained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"{u},{RNG.normal():.3f},{'still' if k < 12 else 'move'}" for u in "pq" for k in range(24)]
    source = tmp_path / "walk.csv"
    source.write_text("\n".join(["user,x,label", *lines]))
    out = course(source, "--kind", "windows", "--length", "6", "--group", "user", "--validation", "0.5")
    capsys.readouterr()
    assert main(["predict", str(out), str(source)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in said] == [f"{source}:{2 + 6 * i}" for i in range(8)]
    assert main(["eval", str(out), str(source)]) == 0
    assert "on 8 samples: accuracy" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words, message",
    [
        (["predict", "OUT", "photo.jpg"], "the model reads numbers, expected .csv or .npz"),
        (["predict", "OUT", "other.csv"], "has no column 'a', its columns are u, v"),
        (["predict", "OUT", "t.csv", "--size", "8"], "--size is for pictures, but the model reads numbers"),
        (["predict", "OUT", "t.csv", "--tokenizer", "v.txt"], "--tokenizer is for texts"),
        (["predict", "OUT", "--input", "x.npy", "--top", "3"], "--top goes with files to name"),
        (["eval", "OUT", "t.csv", "--crop", "pad"], "--crop is for pictures, but the model reads numbers"),
        (["eval", str(MLP), "t.csv"], "is no folder"),
    ],
)
def test_mistakes_are_told(
    words: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.csv").write_text("u,v\n1,2\n")
    out = course(table(tmp_path / "t.csv", kind=[*"xy" * 10]), "--label", "kind")
    loss = ["--loss", "mse"] if words[:2] == ["eval", str(MLP)] else []
    capsys.readouterr()
    assert main([str(out) if word == "OUT" else word for word in words] + loss) == 1
    assert message in capsys.readouterr().err


def test_damage_in_what_a_file_says_of_its_columns_is_told(tmp_path: Path) -> None:
    out = course(table(tmp_path / "t.csv", kind=[*"xy" * 10]), "--label", "kind")
    model = ct.load(out)
    known = model.description
    assert known is not None
    broken = model.described(replace(known, details={"columns": 7, "length": -3}))
    with pytest.raises(ct.ConfigError, match="says of its samples is damaged"):
        answers(broken, [tmp_path / "t.csv"])


def test_numbers_of_any_size_are_learned_alike(tmp_path: Path) -> None:
    x = RNG.normal(size=(60, 6)).astype(np.float32)
    small = x @ np.array([3, -2, 1, 0, 0, 1], np.float32)
    small = (small - small.mean()) / small.std()

    def foreseen(prices: np.ndarray) -> np.ndarray:
        path = tmp_path / "houses.csv"
        lines = [",".join(map(repr, map(float, (*row, y)))) for row, y in zip(x, prices, strict=True)]
        path.write_text("\n".join(["a,b,c,d,e,f,price", *lines]))
        data = ct.data.table(path, label="price", validation=0.0)
        result = ct.finetune(MLP, data, trainable="none", epochs=200, verbose=0, seed=2)
        assert result.metrics["mean_absolute_error"] < 0.85 * abs(prices - prices.mean()).mean()
        return result.session.predict(result.examined.open(result.session.program.inputs[0], result.how)[:])

    np.testing.assert_allclose(
        foreseen(300_000 + 50_000 * small), 300_000 + 50_000 * foreseen(small), rtol=1e-3
    )


def test_an_option_of_another_command_is_told_whose_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["predict", "walk.tflite", "walk.csv", "--length", "16"])
    assert "--length 16; it is an option of finetune" in capsys.readouterr().err


def test_many_columns_are_counted_not_listed() -> None:
    many = Description(mean=(0.25,) * 8 + (0.5,), std=(1.0,) * 9)
    assert str(many) == "values of 9 columns, each less its mean and by its deviation"
