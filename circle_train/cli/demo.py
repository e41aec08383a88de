"""`circle-train demo`: train, validate, export, reload and compare, on data that come with the package."""

from __future__ import annotations

import argparse
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from circle_train import optimizers
from circle_train.cli.runs.run_folder import REPORT, RunFolder
from circle_train.format.atomic import write_text
from circle_train.model import load
from circle_train.report.curves import text_chart
from circle_train.session import InferenceSession, TrainSession
from circle_train.settings.config import TrainConfig

MODEL = files("circle_train.cli") / "demo_data" / "digits_0_to_4.circle"
TRAINED_OPERATORS = 3
EPOCHS = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__
    parser.add_argument(
        "--out", default="circle-train-demo", metavar="DIR", help="where to write (default: %(default)s)"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    samples, labels = digits()
    held_out = len(samples) // 5
    x, y, test_x, test_y = samples[held_out:], labels[held_out:], samples[:held_out], labels[:held_out]
    model = load(MODEL.read_bytes())
    config = TrainConfig(
        loss="sparse_categorical_crossentropy",
        optimizer=optimizers.Adam(learning_rate=5e-3),
        batch_size=32,
        trainable=("last", TRAINED_OPERATORS),
        metrics=["sparse_categorical_accuracy"],
    )
    session = TrainSession(model, config, seed=1)
    print("A small network has learned to read the digits 0 to 4. Its last operators now learn all ten.\n")
    print(session.plan, "\n")
    before = session.evaluate(test_x, test_y)["sparse_categorical_accuracy"]
    folder = RunFolder(options.out, session, "digits.circle", monitor="val_loss")
    write_text(Path(options.out) / ".gitignore", "*\n")  # a clone in which this is tried stays as it was
    history = session.fit(
        x, y, epochs=EPOCHS, validation_data=(test_x, test_y), callbacks=folder.callbacks, verbose="auto"
    )
    folder.finish(history, (x, y), validation_data=(test_x, test_y))
    after = session.evaluate(test_x, test_y)["sparse_categorical_accuracy"]
    print("\n".join(["", *text_chart(history.history["val_sparse_categorical_accuracy"], label="accuracy")]))
    print(
        f"\naccuracy on {held_out} digits that it was not trained on: {before:.1%} before, {after:.1%} after\n"
    )
    compare_exports(session, test_x, Path(options.out))
    page = (Path(options.out) / REPORT).resolve()
    print(f"\nto look at: {page.as_uri()}\nthen try: circle-train check YOUR_MODEL.tflite")
    return 0


def compare_exports(session: TrainSession, x: np.ndarray[Any, Any], folder: Path) -> None:
    """Write both formats, load them again, and compare their outputs with the session's."""
    expected = session.predict(x)
    for name in ("digits_trained.circle", "digits_trained.tflite"):
        session.export(folder / name)
        difference = np.abs(InferenceSession(folder / name)(x) - expected).max()
        print(f"wrote {folder / name}, loaded it again: largest difference {difference:.1e}")


def digits() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """1,797 scanned digits of 8 × 8 grey values, scaled to 0 … 1, and what they are."""
    with (
        (files("circle_train.cli") / "demo_data" / "digits.npz").open("rb") as file,
        np.load(file) as archive,
    ):
        return (archive["x"].astype(np.float32) / 16)[..., None], archive["y"].astype(np.int32)
