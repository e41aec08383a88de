"""The command line: what it prints, writes and returns."""

from __future__ import annotations

import json
import pathlib

import numpy as np
import pytest
from networks import mlp

import circle_train as ct
from circle_train.cli import export
from circle_train.cli.main import COMMANDS, main, parser
from circle_train.session.peers import Agreement

CONTRACT = {"demo", "info", "check", "convert", "plus", "data", "train", "eval", "predict", "export"}


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """A model and data for it."""
    mlp().save(tmp_path / "net.circle")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 6)).astype(np.float32)
    labels = x[:, :4].argmax(1)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", np.eye(4, dtype=np.float32)[labels])
    np.save(tmp_path / "labels.npy", labels)
    return tmp_path


def run(*words: object) -> int:
    return main([str(word) for word in words])


def test_every_command_of_the_contract_is_there_and_explains_itself() -> None:
    commands = next(
        a for a in parser()._actions if a.dest == "==SUPPRESS==" or (hasattr(a, "choices") and a.choices)
    )
    assert set(commands.choices) >= CONTRACT
    assert list(commands.choices) == list(COMMANDS)
    for command in commands.choices.values():
        for action in command._actions:
            assert action.help, f"{command.prog} {action.dest} has no help"


def test_train_writes_what_was_asked_for(folder: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "trained.tflite"
    status = run(
        "train", folder / "net.circle", "--input", folder / "x.npy", "--expected", folder / "y.npy",
        "--loss", "categorical_crossentropy", "--optimizer", "adam", "--learning-rate", "0.05", "--batch-size", "8",
        "--epochs", "6", "--metric", "categorical_accuracy", "--validation-split", "0.25", "--trainable", "last:2",
        "--export", out, "--export-circleplus", folder / "plus.circle", "--export-checkpoint", folder / "c.safetensors",
        "--run-dir", folder / "run", "--backend", "reference", "--json",
    )  # fmt: skip
    assert status == 0
    history = json.loads(capsys.readouterr().out)["history"]
    assert history["val_loss"][-1] < history["val_loss"][0]
    names = {p.name for p in (folder / "run").iterdir()}
    assert names >= {
        "plan.txt",
        "log.csv",
        "metrics.json",
        "report.html",
        "last.safetensors",
        "best.safetensors",
        "model.circle",
    }
    assert ct.load(folder / "plus.circle").training.batch_size == 8
    x = np.load(folder / "x.npy")
    assert not np.allclose(ct.InferenceSession(out)(x), ct.InferenceSession(folder / "net.circle")(x))
    expected = ct.InferenceSession(out)(x)
    for model, checkpoint in (("net", "c"), ("plus", "c"), ("net", "run/last")):
        files = (folder / f"{model}.circle", "--checkpoint", folder / f"{checkpoint}.safetensors")
        assert run("export", *files, folder / "again.tflite") == 0
        np.testing.assert_array_equal(ct.InferenceSession(folder / "again.tflite")(x), expected)
    words = ("--input", folder / "x.npy", "--checkpoint", folder / "c.safetensors")
    assert run("predict", folder / "net.circle", *words, "--output", folder / "p.npy") == 0
    np.testing.assert_allclose(np.load(folder / "p.npy"), expected, atol=1e-6)
    assert run("eval", folder / "net.circle", *words, "--expected", folder / "y.npy") == 0


def test_a_circleplus_file_needs_no_settings(
    folder: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    config = ct.TrainConfig(loss="categorical_crossentropy", optimizer="adam", batch_size=4, epochs=2)
    ct.load(folder / "net.circle").with_training(config).save(folder / "plus.circle")
    status = run(
        "train", folder / "plus.circle", "--input", folder / "x.npy", "--expected", folder / "y.npy", "--json"
    )
    assert status == 0
    said = json.loads(capsys.readouterr().out)
    assert len(said["history"]["loss"]) == 2
    assert said["written"] == ["plus-trained.circle"] and (folder / "plus-trained.circle").exists()


def test_eval_and_predict_agree_with_the_session(
    folder: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--input", folder / "x.npy", "--expected", folder / "labels.npy", "--json")
    loss = "sparse_categorical_crossentropy"
    assert (
        run("eval", folder / "net.circle", *words, "--loss", loss, "--metric", "sparse_categorical_accuracy")
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    session = ct.TrainSession(folder / "net.circle", ct.TrainConfig(loss=loss))
    expected = session.evaluate(np.load(folder / "x.npy"), np.load(folder / "labels.npy"))
    assert found["loss"] == pytest.approx(expected["loss"])
    assert (
        run("predict", folder / "net.circle", "--input", folder / "x.npy", "--output", folder / "out.npy")
        == 0
    )
    np.testing.assert_allclose(
        np.load(folder / "out.npy"), session.predict(np.load(folder / "x.npy")), atol=1e-6
    )


def test_info_and_check_speak_to_machines_and_people(
    folder: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("info", folder / "net.circle", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert [op["name"] for op in facts["operators"]] == ["FULLY_CONNECTED", "FULLY_CONNECTED", "SOFTMAX"]
    assert facts["inputs"] == [{"name": "x", "shape": [-1, 6], "dtype": "float32"}]
    assert run("info", folder / "net.circle") == 0
    assert "FULLY_CONNECTED 2" in capsys.readouterr().out
    assert run("check", folder / "net.circle", "--json", "--batch-size", 4) == 0
    choices = json.loads(capsys.readouterr().out)["choices"]
    assert [(c["trainable"], c["parameters"]) for c in choices] == [("last:2", 36), ("last:3", 92)]
    assert choices[0]["arena_bytes"] <= choices[1]["arena_bytes"]
    assert run("check", folder / "net.circle") == 0
    assert "last:3" in capsys.readouterr().out


def test_names_that_were_joined_are_shown_by_their_ends(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = mlp()
    weights = model.module.main.nodes[0].inputs[1]
    assert weights is not None
    weights.name = "model/dense/MatMul;" * 20 + "model/relu"
    model.save(tmp_path / "net.tflite")
    assert run("check", tmp_path / "net.tflite") == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) < 200 and "model/dense/MatMul;mode…" in shown
    assert run("check", tmp_path / "net.tflite", "--json") == 0
    assert weights.name in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ("info", "missing.circle"),
        ("train", "net.circle", "--input", "x.npy", "--expected", "y.npy"),
        ("train", "net.circle", "--input", "x.npy", "--expected", "x.npy", "--loss", "mse"),
        (
            "train",
            "net.circle",
            "--input",
            "x.npy",
            "--expected",
            "y.npy",
            "--loss",
            "mse",
            "--trainable",
            "last:x",
        ),
        ("train", "net.circle", "--input", "no.npy", "--expected", "y.npy", "--loss", "mse"),
        (
            "train",
            "net.circle",
            "--input",
            "x.npy",
            "--expected",
            "y.npy",
            "--loss",
            "mse",
            "--export",
            "no/where.circle",
        ),
        ("export", "net.circle", "--checkpoint", "no.ckpt", "out.circle"),
        ("predict", "net.circle", "--input", "x.npy", "--output", "out.txt"),
        ("info", "net.circle", "--shape", "x=2x7"),
        ("convert", "open.onnx", "out.circle", "--shape", "x=2by6"),
    ],
)
def test_a_users_error_is_one_line_and_status_1(
    folder: pathlib.Path,
    words: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    assert run(*words) == 1
    lines = capsys.readouterr().err.splitlines()
    (shown,) = [line for line in lines if not line.startswith("warning: ")]  # of a missing native engine
    assert shown.startswith("error: ")


def test_wrong_usage_is_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ((), ("nonsense",), ("train", "--epochs", "three")):
        with pytest.raises(SystemExit) as stop:
            main(list(words))
        assert stop.value.code == 2
    capsys.readouterr()


def test_the_demo_learns_the_other_digits(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("demo", "--out", tmp_path / "demo") == 0
    shown = capsys.readouterr().out
    before, after = (float(word.rstrip("%,")) for word in shown.split() if word.rstrip(",").endswith("%"))
    assert before < 60
    assert after > 90
    assert (tmp_path / "demo" / "report.html").exists()


@pytest.mark.parametrize("word", ["--learning-rate", "--optimizer", "--trainable", "--activations"])
def test_eval_knows_no_words_of_training(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["eval", "net.tflite", "--input", "x.npy", word, "1"])
    assert ended.value.code == 2 and f"unrecognized arguments: {word}" in capsys.readouterr().err


def test_one_output_that_differs_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where another runtime computes all but one of the outputs as we do."""
    found = Agreement("LiteRT", {"same": 0.0, "other": 0.5})
    monkeypatch.setattr(export.peers, "compare", lambda path: found)
    with pytest.raises(ct.ConversionError, match=r"out.tflite: LiteRT .* 5\.0e-01"):
        export.verify("out.tflite")


def test_who_asks_for_nothing_is_shown_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([])
    shown = capsys.readouterr()
    assert "finetune" in shown.err and "predict" in shown.err and not shown.out


@pytest.mark.parametrize("words", [["train", "net.circle"], ["--help"], []])
def test_ctrl_c_while_a_command_is_found_ends_it_quietly(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("circle_train.cli.main.Parser.add_subparsers", stop)
    assert main(words) == 130
    assert capsys.readouterr().err == "interrupted\n"
