"""From a folder of pictures to a file that names them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from picture_net import picture_net
from ramps import ramps

import circle_train as ct
from circle_train.cli.main import main
from circle_train.finetuning.account import Result
from circle_train.finetuning.answers import answers
from circle_train.finetuning.result import Judgement

SHAPES = Path(__file__).parents[1] / "data" / "shapes"

SHARED = Path(__file__).parents[3] / "shared" / "data"

CLIENT = """
import json, sys
from mediapipe import Image
from mediapipe.tasks.python import BaseOptions, vision
client = vision.ImageClassifier.create_from_options(
    vision.ImageClassifierOptions(base_options=BaseOptions(model_asset_path=sys.argv[1])))
for path in sys.argv[2:]:
    (found,) = client.classify(Image.create_from_file(path)).classifications
    print(json.dumps([[category.category_name, category.score] for category in found.categories]))
client.close()
"""


@pytest.fixture(scope="module")
def result() -> Result:
    data = ct.data.images(SHAPES, validation=0.25)
    return ct.finetune(picture_net(), data, verbose=0, learning_rate=0.05)


def test_a_head_is_learned_and_the_samples_held_out_are_judged(result: Result) -> None:
    assert result.held_out == 4
    assert result.metrics["accuracy"] >= 0.75
    assert set(result.metrics) == {"accuracy", "precision", "recall", "f1"}
    assert "2 classes: circle, square" in str(result)


def test_the_export_says_its_classes_and_its_scale(result: Result, tmp_path: Path) -> None:
    for name in ("shapes.tflite", "shapes.circle"):
        result.export(tmp_path / name)
        again = ct.load(tmp_path / name)
        assert again.labels == ("circle", "square")
        assert again.description == result.session.model.description
    assert (tmp_path / "labels.txt").read_text() == "circle\nsquare\n"


def test_the_export_computes_what_the_session_does(result: Result, tmp_path: Path) -> None:
    result.export(tmp_path / "shapes.tflite")
    x = np.random.default_rng(0).normal(size=(3, 32, 32, 3)).astype(np.float32)
    np.testing.assert_allclose(
        ct.InferenceSession(tmp_path / "shapes.tflite")(x), result.session.predict(x), atol=1e-6
    )


def test_integers_are_calibrated_and_judged_on_its_own_samples(result: Result, tmp_path: Path) -> None:
    shipped = result.export(tmp_path / "shapes.tflite", quantize="int8")
    assert shipped is not None and shipped.judged is not None
    assert ct.load(tmp_path / "shapes.tflite").inputs[0].dtype == np.int8
    floats = result.session.predict(SHAPES)
    scores = np.stack([answer.scores for answer in answers(ct.load(tmp_path / "shapes.tflite"), [SHAPES])])
    np.testing.assert_allclose(scores, floats, atol=0.02)
    is_undecided = abs(floats[:, 0] - floats[:, 1]) < 0.04  # where a rounding decides
    assert is_undecided.sum() <= 4
    np.testing.assert_array_equal(
        scores.argmax(1)[~is_undecided],
        floats.argmax(1)[~is_undecided],
        "int8 names otherwise what is no tie",
    )
    before, after = (
        shares["categorical_accuracy"] for shares in (shipped.judged.before, shipped.judged.after)
    )
    assert before == result.metrics["accuracy"] and abs(before - after) <= is_undecided.sum() / 4


def test_the_same_seed_gives_the_same_weights() -> None:
    def weights() -> bytes:
        data = ct.data.images(SHAPES, validation=0.25, augment="all")
        found = ct.finetune(picture_net(), data, verbose=0, epochs=2, seed=7, threads=1)
        return found.session.parameters.flat(trainable_only=False).tobytes()

    assert weights() == weights()


def test_a_second_phase_that_does_not_help_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A phase at a rate that spoils everything is turned back to the bit."""
    data = ct.data.images(SHAPES, validation=0.25)
    head = ct.finetune(picture_net(), data, verbose=0, trainable="none", epochs=3)
    begin = ct.TrainSession.set_trainable
    monkeypatch.setattr(
        ct.TrainSession,
        "set_trainable",
        lambda self, what, *, learning_rate: begin(self, what, learning_rate=9.0),
    )
    both = ct.finetune(picture_net(), data, verbose=0, trainable="all", epochs=3)
    assert len(both.histories) == len(both.best_epochs) == 1
    for name, value in head.session.parameters.items():
        np.testing.assert_array_equal(value, both.session.parameters[name])
    assert both.metrics == head.metrics


@pytest.mark.parametrize("seed", [0, 1])
def test_a_second_phase_that_helps_is_kept(tmp_path: Path, seed: int) -> None:
    both = ct.finetune(
        picture_net(),
        ramps(tmp_path, axis=1),
        verbose=0,
        trainable="all",
        epochs=8,
        learning_rate=0.05,
        seed=seed,
    )
    first, second = (history.history["val_loss"] for history in both.histories)
    assert second[-1] < min(first) - 0.01 and both.best_epochs[-1] == 7
    assert both.metrics["accuracy"] == 1 and both.held_out == 12


def test_rare_classes_can_count_as_much(tmp_path: Path) -> None:
    data = ct.data.images(SHAPES, validation=0.0)
    some = data.take(np.array([0, 1, 2, 3, 4, 5, 8, 9]))
    session = ct.finetune(picture_net(), some, verbose=0, epochs=1, class_weights="balanced").session
    loss = session.config.loss
    assert isinstance(loss, ct.losses.CategoricalCrossentropy)
    assert loss.class_weights == (8 / (2 * 6), 8 / (2 * 2))


def test_what_the_recipe_cannot_mean_is_refused() -> None:
    data = ct.data.images(SHAPES)
    wrongs = (
        {"epochs": 0},
        {"patience": 1.5},
        {"class_weights": "yes"},
        {"batch_size": True},
        {"trainable": "last:0"},
    )
    for wrong in wrongs:
        with pytest.raises(ct.ConfigError, match=next(iter(wrong))):
            ct.finetune(picture_net(), data, **wrong)
    with pytest.raises(ct.DataError, match=r"ct\.data\.images"):
        ct.finetune(picture_net(), SHAPES)  # type: ignore[arg-type]


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture_net().save(tmp_path / "net.tflite")
    out = tmp_path / "shapes.tflite"
    words = [
        "finetune",
        str(SHAPES),
        "--model",
        str(tmp_path / "net.tflite"),
        "-o",
        str(out),
        "--learning-rate",
        "0.05",
    ]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "16 samples, circle 8, square 8" in said
    assert "labels.txt" in said and f"circle-train predict {out}" in said
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["classes"] == ["circle", "square"]


def test_a_disk_that_is_full_in_the_end_costs_no_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    picture_net().save(tmp_path / "net.tflite")
    (tmp_path / "full").mkdir()
    write = Result.export

    def export(self: Result, path: str, **options: object) -> object:
        if "full" in str(path):
            raise ct.ConfigError(f"{path}: cannot be written (No space left on device); choose another place")
        return write(self, path, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Result, "export", export)
    words = [
        "--model",
        str(tmp_path / "net.tflite"),
        "-o",
        str(tmp_path / "full" / "o.tflite"),
        "--epochs",
        "1",
    ]
    assert main(["finetune", str(SHAPES), *words]) == 1
    said = re.search(r"No space left .*; what was learned is in (.*)\n", capsys.readouterr().err)
    assert said and ct.load(said[1]).labels == ("circle", "square")
    shutil.rmtree(Path(said[1]).parent)


def test_a_class_of_which_none_is_held_out_is_not_judged() -> None:
    found = np.array([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0]], np.float32)
    one = Judgement(found, np.eye(3, dtype=np.float32)[[0, 1]], ("a", "b", "c"))
    assert one.metrics == {"accuracy": 1, "precision": 1, "recall": 1, "f1": 1}
    assert one.lines("2 held out")[-1] == "  c  there is none"


def test_photographs_are_named(result: Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = str(tmp_path / "shapes.tflite")
    result.export(net)
    (one, *_) = [answer.best(1)[0][0] for answer in answers(ct.load(net), [SHAPES / "circle" / "0.png"])]
    assert main(["predict", net, str(SHAPES / "circle" / "0.png")]) == 0
    assert re.fullmatch(rf"{one} \d+ %\n", capsys.readouterr().out)
    assert main(["predict", net, str(SHAPES), "--top", "2", "--output", str(tmp_path / "all.csv")]) == 0
    assert capsys.readouterr().out == f"wrote {tmp_path / 'all.csv'}: 16 samples\n"
    rows = (tmp_path / "all.csv").read_text().splitlines()
    assert rows[0] == "file,class,score" and len(rows) == 1 + 2 * 16
    assert main(["predict", net, str(SHAPES), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 16


@pytest.mark.slow
def test_animals_are_named_by_media_pipe(tmp_path: Path) -> None:
    python = os.environ.get("MEDIAPIPE_PYTHON")
    if not python or not SHARED.exists():
        pytest.skip("MEDIAPIPE_PYTHON names no interpreter with mediapipe, or ../shared is not there")
    data = ct.data.images(SHARED / "animals", validation=0.25)
    result = ct.finetune(SHARED / "models" / "mobilenet_v1_1.0_224_f32.tflite", data, verbose=0)
    assert result.metrics["accuracy"] >= 0.95
    result.export(tmp_path / "animals.tflite")
    photos = [str(SHARED / "animals" / name / f"{name}01.jpeg") for name in data.classes]
    command = [python, "-c", CLIENT, str(tmp_path / "animals.tflite"), *photos]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert [max(answer, key=lambda one: one[1])[0] for answer in answers] == list(data.classes)


def test_a_table_and_a_folder_of_sounds_are_kinds_by_themselves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 6))
    lines = [",".join([*map(str, row), "up" if row[0] > 0 else "down"]) for row in rows]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,c,d,e,f,trend", *lines]))
    net = Path(__file__).parents[1] / "data" / "mlp.circle"
    words = ["finetune", str(tmp_path / "t.csv"), "--model", str(net), "-o", str(tmp_path / "o.circle")]
    assert main([*words, "--label", "trend", "--epochs", "3"]) == 0
    assert "2 classes: down, up" in capsys.readouterr().out
    for wrong, message in (
        (["--label", "trend", "--seconds", "1"], "--seconds is for sounds, but"),
        (["--label", "trend", "--scale", "2"], "--scale is for images, but"),
        (["--label", "trend", "--augment", "all"], "--augment is for images and sounds"),
        (["--label", "trend", "--kind", "text"], "--tokenizer"),
        (["--label", "trend", "--validation", "x"], "expected a fraction"),
    ):
        assert main([*words, *wrong]) == 1
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "right, doubted", [([0, 0, 0, 0, 0, 0], True), ([0, 0, 0, 1, 0, 0], False), ([0, 1, 1, 0, 1, 0], True)]
)
def test_answers_no_better_than_one_for_all_are_doubted(right: list[int], doubted: bool) -> None:
    truth = np.eye(2)[[0, 0, 0, 1, 1, 1]]
    lines = Judgement(np.eye(2)[right], truth, ("cat", "dog")).lines("6 held out")
    assert any("no better than answering cat to everything" in line for line in lines) == doubted


def test_samples_of_one_class_are_no_reason_for_doubt() -> None:
    truth = np.eye(2)[[1, 1, 1]]
    assert len(Judgement(truth, truth, ("cat", "dog")).lines("3 held out")) == 3
