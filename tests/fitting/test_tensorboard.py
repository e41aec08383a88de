"""What the TensorBoard callback writes, and what it says where its package is missing."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import circle_train as ct

MODEL = Path(__file__).parents[1] / "data" / "mlp.circle"


def fit(callback: ct.callbacks.Callback) -> dict[str, list[float]]:
    session = ct.TrainSession(MODEL, ct.TrainConfig(loss="mse", batch_size=4), backend="reference")
    x, y = np.ones((8, 6), np.float32), np.eye(8, 5, dtype=np.float32)
    return session.fit(x, y, epochs=2, validation_split=0.5, callbacks=callback, verbose=0).history


def test_training_and_validation_are_curves_of_one_chart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    written: dict[tuple[str, str], list[tuple[int, float]]] = {}

    class SummaryWriter:
        def __init__(self, folder: str) -> None:
            self.part = Path(folder).relative_to(tmp_path).as_posix()

        def add_scalar(self, name: str, value: float, step: int) -> None:
            written.setdefault((self.part, name), []).append((step, value))

        def flush(self) -> None:
            """Nothing waits."""

        close = flush

    module = ModuleType("tensorboardX")
    module.SummaryWriter = SummaryWriter  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tensorboardX", module)
    history = fit(ct.callbacks.TensorBoard(tmp_path))
    assert written["train", "loss"] == list(zip([1, 2], history["loss"], strict=True))
    assert written["validation", "loss"] == list(zip([1, 2], history["val_loss"], strict=True))
    assert ("train", "learning_rate") in written


def test_a_missing_package_is_said_before_anything_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ct.ConfigError, match=r"circle-train\[tensorboard\]"):
        fit(ct.callbacks.TensorBoard())
