"""A folder with everything about one training run."""

from __future__ import annotations

import json
import os
from pathlib import Path

from circle_train.errors import ConfigError
from circle_train.report.curves import draw_png
from circle_train.report.page import page
from circle_train.session import TrainSession
from circle_train.train.callbacks import Callback, CSVLogger, ModelCheckpoint
from circle_train.train.history import History


class RunFolder:
    """plan.txt, log.csv, metrics.json, curves.png (with the [plot] extra), report.html, last and best checkpoint, the model."""

    def __init__(
        self, path: str | os.PathLike[str], session: TrainSession, model_path: str, monitor: str = "loss"
    ) -> None:
        self.monitor = monitor
        self.path, self.session, self.model_path = Path(path), session, Path(model_path)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"run folder {self.path} cannot be made: {error.strerror}") from None
        (self.path / "plan.txt").write_text(f"{session.plan}\n", encoding="utf-8")

    @property
    def callbacks(self) -> list[Callback]:
        """What `fit` needs to keep the folder up to date."""
        return [
            CSVLogger(path=self.path / "log.csv"),
            ModelCheckpoint(path=self.path / "last.safetensors"),
            ModelCheckpoint(path=self.path / "best.safetensors", monitor=self.monitor, save_best_only=True),
        ]

    def finish(self, history: History) -> None:
        """The pictures, the page, the numbers and the model."""
        last = {name: values[-1] for name, values in history.history.items() if values}
        (self.path / "metrics.json").write_text(json.dumps(last, indent=2) + "\n", encoding="utf-8")
        draw_png(history.history, self.path / "curves.png")
        html = page(self.model_path.name, history.history, str(self.session.plan))
        (self.path / "report.html").write_text(html, encoding="utf-8")
        suffix = (
            self.model_path.suffix if self.model_path.suffix in (".circle", ".tflite", ".onnx") else ".circle"
        )
        self.session.export(self.path / f"model{suffix}")
