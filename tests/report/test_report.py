"""The run folder's page: well-formed, complete, alone."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import circle_train as ct
from circle_train.cli.runs.run_folder import RunFolder
from circle_train.data.dataset import Dataset
from circle_train.report.curves import draw_png, families, svg, text_chart, ticks
from circle_train.session.account import described, taken_for

MODEL = Path(__file__).parents[1] / "data" / "mlp.circle"
VOID = {"meta", "circle", "path"}


class Balance(HTMLParser):
    """Every tag that opens closes, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in VOID or tag == "circle":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        """Nothing opens."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> in {self.open}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.text += data + " "


def read(html: str) -> str:
    """The text of a page that is well-formed."""
    found = Balance()
    found.feed(re.sub(r"<(meta|!doctype)[^>]*>", "", html))
    assert not found.open
    return found.text


def data(samples: int = 40) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(samples, 6)).astype(np.float32)
    return x, np.arange(samples, dtype=np.int32) % 5


def session(**changes: object) -> ct.TrainSession:
    settings = {
        "loss": "sparse_categorical_crossentropy",
        "batch_size": 8,
        "trainable": ("last", 2),
        **changes,
    }
    return ct.TrainSession(MODEL, ct.TrainConfig(**settings), seed=7)


def test_the_report_stands_for_a_folder_that_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model comes first, the report last: what stops in between leaves none."""
    trained, (x, y) = session(), data()
    folder = RunFolder(tmp_path, trained, "net.circle")
    history = trained.fit(x, y, epochs=1, callbacks=folder.callbacks, verbose=0)

    def full(path: Path, text: str) -> None:
        assert (tmp_path / "model.circle").exists()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("circle_train.cli.runs.run_folder.write_text", full)
    with pytest.raises(OSError, match="No space"):
        folder.finish(history, (x, y))
    assert ct.load(tmp_path / "model.circle").operators
    assert not (tmp_path / "report.html").exists()


def test_page_says_what_was_trained_on_what_and_how(tmp_path: Path) -> None:
    trained, (x, y) = session(metrics=["sparse_categorical_accuracy"]), data()
    folder = RunFolder(tmp_path / "run", trained, "<net>.circle")
    history = trained.fit(x, y, epochs=3, validation_split=0.25, callbacks=folder.callbacks, verbose=0)
    folder.finish(history, (x, y), 0.25)
    html = (tmp_path / "run" / "report.html").read_text()
    text = read(html)
    for expected in (
        "<net>.circle", "3 epochs", "30 samples, 4 batches an epoch", "10 samples", "the last 2 operators", "Adam",
        "10 validation samples", "FULLY_CONNECTED", f"{history.history['val_loss'][-1]:.4g}", "one int32",
    ):  # fmt: skip
        assert re.sub(r"\s+", " ", expected) in re.sub(r"\s+", " ", text).replace(
            "label a number", "label"
        ), expected
    assert "http" not in html and "src=" not in html and "url(" not in html


@pytest.mark.parametrize("labels", ["numbers", "one-hot"])
def test_confusion_counts_every_sample_once_in_its_row(labels: str) -> None:
    x, y = data()
    loss = "sparse_categorical_crossentropy" if labels == "numbers" else "categorical_crossentropy"
    trained = session(loss=loss)
    counts = taken_for(trained, Dataset([x], [y if labels == "numbers" else np.eye(5, dtype=np.float32)[y]]))
    assert counts is not None
    best = trained.predict(x).argmax(axis=1)
    assert counts.tolist() == [[int(((y == i) & (best == j)).sum()) for j in range(5)] for i in range(5)]


def test_no_confusion_where_there_are_no_classes(tmp_path: Path) -> None:
    x, y = data()
    trained = session(loss="mse")
    folder = RunFolder(tmp_path, trained, "net.tflite")
    folder.finish(trained.fit(x, np.eye(5, dtype=np.float32)[y], verbose=0, callbacks=folder.callbacks))
    assert "taken for" not in read((tmp_path / "report.html").read_text())
    assert (tmp_path / "model.tflite").exists()


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 1.0), (0.3, 0.3), (-2.0, 7.0), (1e-9, 3e-9), (95.0, 1234.0), (0.0, 0.0)]
)
def test_ticks_enclose_and_are_few(low: float, high: float) -> None:
    found = ticks(low, high)
    assert found[0] <= low + 1e-12 and found[-1] >= high - 1e-12
    assert 2 <= len(found) <= 7 and found == sorted(set(found))


def test_chart_of_numbers_that_are_not_finite() -> None:
    assert svg("loss", {"loss": [float("nan")]}) == ""
    read(svg("loss", {"loss": [1.0, float("inf"), 0.5]}))
    assert list(families({"loss": [1.0], "val_loss": [2.0], "acc": [1.0]})) == ["loss", "acc"]


def test_settings_in_words() -> None:
    assert described(ct.optimizers.SGD(learning_rate=0.1)).startswith("SGD: learning_rate 0.1")
    assert "None" not in described(ct.optimizers.Adam()) and "False" not in described(ct.optimizers.SGD())


def test_a_chart_of_text_reaches_from_the_least_to_the_largest() -> None:
    _, top, *_, bottom, _ = lines = text_chart([0.25, 0.75, 0.5], "accuracy")
    assert lines[0] == "accuracy" and top == "   0.750 ┤  ██  " and bottom == "   0.250 ┤██████"


@pytest.mark.parametrize("name", ["$\\frac{$", "half \udcff", "_hidden", "$"])
def test_a_name_is_no_formula(name: str, tmp_path: Path) -> None:
    """Outputs name their losses; matplotlib reads what stands between dollars."""
    pytest.importorskip("matplotlib")
    assert draw_png({name: [1.0, 0.5], f"val_{name}": [1.0, 0.6]}, tmp_path / "c.png")
    assert (tmp_path / "c.png").read_bytes()[:4] == b"\x89PNG"


def test_a_picture_of_many_quantities_can_be_drawn(tmp_path: Path) -> None:
    """Two hundred outputs were more pixels than a picture may have, which was said after training."""
    pytest.importorskip("matplotlib")
    assert draw_png({f"y{i}_loss": [1.0, 0.5] for i in range(200)}, tmp_path / "c.png")
