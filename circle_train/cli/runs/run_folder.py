"""A folder with everything about one training run."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from circle_train.data.dataset import Dataset
from circle_train.fitting.callbacks import Callback
from circle_train.fitting.history import History
from circle_train.fitting.saving import CSVLogger, ModelCheckpoint
from circle_train.format.atomic import make_folder, sweep, write_text
from circle_train.report.curves import draw_png
from circle_train.report.page import page
from circle_train.session import TrainSession
from circle_train.session.account import FinishedFit, account, opened

RECORD, LAST, BEST, REPORT = "run.json", "last.safetensors", "best.safetensors", "report.html"
WRITTEN = (RECORD, "plan.txt", "log.csv", LAST, BEST, "metrics.json", "curves.png", REPORT)
"""In a run's folder, besides the model. What a killed run left half of them is removed when the next begins."""


class Clock(Callback):
    """How long the fit took, and how many batches an epoch has."""

    def on_train_begin(self) -> None:
        self.started, self.seconds = time.perf_counter(), 0.0

    def on_epoch_end(self, epoch: int, logs: Any) -> None:
        self.seconds = time.perf_counter() - self.started


class RunFolder:
    """plan.txt, log.csv, metrics.json, curves.png (with the [plot] extra), report.html, last and best checkpoint, the model."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        session: TrainSession,
        model_path: str,
        monitor: str = "loss",
        every: int | None = None,
    ) -> None:
        self.monitor, self.every = monitor, every
        self.path, self.session, self.model_path = Path(path), session, Path(model_path)
        self.clock = Clock()
        names = (*WRITTEN, self.model_name)
        make_folder(self.path, "run folder", (*names, f"{self.model_name}.data"))
        for name in names:
            sweep(os.path.realpath(self.path / name))
        write_text(self.path / "plan.txt", f"{session.plan}\n")

    @property
    def callbacks(self) -> list[Callback]:
        """What `fit` needs to keep the folder up to date."""
        return [
            self.clock,
            CSVLogger(path=self.path / "log.csv"),
            ModelCheckpoint(path=self.path / LAST, every=self.every),
            ModelCheckpoint(path=self.path / BEST, monitor=self.monitor, save_best_only=True),
        ]

    def finish(
        self, history: History, data: Any = None, validation_split: float = 0.0, validation_data: Any = None
    ) -> None:
        """The model, then what is told of it, the report last: it stands for a folder that is whole.

        Data are pairs (x, y), of what fit takes.
        """
        self.session.export(self.path / self.model_name)
        last = {name: values[-1] for name, values in history.history.items() if values}
        write_text(self.path / "metrics.json", json.dumps(last, indent=2) + "\n")
        draw_png(history.history, self.path / "curves.png")
        parts = self._parts(data, validation_split, validation_data)
        fit = FinishedFit(self.model_path.name, history, self.clock.seconds, self.clock.steps, *parts)
        write_text(self.path / REPORT, page(account(self.session, fit)))

    @property
    def model_name(self) -> str:
        """Of the file that the trained model becomes."""
        suffix = self.model_path.suffix
        return f"model{suffix if suffix in ('.circle', '.tflite', '.onnx') else '.circle'}"

    def _parts(self, data: Any, split: float, validation_data: Any) -> tuple[Dataset | None, Dataset | None]:
        """Training and validation data as fit saw them."""
        train, other = opened(self.session, data), opened(self.session, validation_data)
        if isinstance(train, Dataset) and other is None:
            train, other = train.split(split)
        return train if isinstance(train, Dataset) else None, other if isinstance(other, Dataset) else None
