"""Files that are written while a fit runs."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from string import Formatter
from typing import Any

from circle_train.errors import ConfigError
from circle_train.fitting.callback import Callback, Logs
from circle_train.fitting.watcher import Watcher
from circle_train.format.atomic import write_text

CHECKPOINTS = (".ckpt", ".safetensors")
MODELS = (".circle", ".tflite", ".onnx")


@dataclass
class ModelCheckpoint(Watcher):
    """Saves after each epoch, or with `save_best_only` after the best so far.

    `path` may hold {epoch} (from 1) and the names of measured numbers: "run-{epoch:03d}-{val_loss:.3f}.ckpt".
    The suffix decides what is saved: .safetensors or .ckpt a checkpoint, .circle, .tflite or .onnx a model.
    With `every` it saves after so many batches too, so that a long epoch is not lost.
    With `keep_last` only so many of the files that this object wrote remain; what a checkpoint says of them counts only
    for files that this path could name.
    """

    remembers = ("best", "written")

    monitor: str = field(default="val_loss", kw_only=True)
    """Which number of an epoch decides what is best."""
    mode: str = field(default="auto", kw_only=True)
    """ "min", "max" or "auto"."""
    min_delta: float = field(default=0.0, kw_only=True)
    """What a change must exceed to be a gain."""
    path: str | os.PathLike[str] = "checkpoint.safetensors"
    """Where to, with places for epoch and numbers."""
    save_best_only: bool = False
    """Whether only what is better than before is saved."""
    keep_last: int | None = None
    """How many of the files remain; None: all."""
    every: int | None = None
    """Batches after which it saves too; None: after epochs alone."""

    def __post_init__(self) -> None:
        super().__post_init__()
        suffix = Path(self.path).suffix.lower()
        self._require(
            "path", suffix in CHECKPOINTS + MODELS, f"a name ending in {', '.join(CHECKPOINTS + MODELS)}"
        )
        self._require("keep_last", self.keep_last is None or self.keep_last >= 1, "a count from 1 or None")
        self._require("every", self.every is None or self.every >= 1, "a count of batches from 1 or None")
        self._require("every", self.every is None or not self.save_best_only, "None with save_best_only")

    @property
    def hears_batches(self) -> bool:
        return self.every is not None

    def on_train_begin(self) -> None:
        super().on_train_begin()
        self.written: list[str] = []
        self.epoch = 0

    def on_epoch_begin(self, epoch: int) -> None:
        self.epoch = epoch

    def on_batch_end(self, batch: int, logs: Logs) -> None:
        if self.every is not None and (batch + 1) % self.every == 0:
            self._save(self.epoch, logs)

    def restore(self, remembered: Mapping[str, Any]) -> None:
        super().restore(remembered)
        said = remembered.get("written", ())
        self.written = [name for name in said if self._could_name(name)] if isinstance(said, list) else []
        self._remove_old()

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        if self.save_best_only and not self.improves(self.value(logs)):
            return
        self._save(epoch, logs)

    def _save(self, epoch: int, logs: Logs) -> None:
        path = self._path_of(epoch, logs)
        save = self.session.save_checkpoint if path.suffix.lower() in CHECKPOINTS else self.session.export
        name = path.relative_to(self._folder).as_posix()
        self.written = [*(other for other in self.written if other != name), name]
        save(path)
        self._remove_old()

    def _remove_old(self) -> None:
        while self.keep_last is not None and len(self.written) > self.keep_last:
            (self._folder / self.written.pop(0)).unlink(missing_ok=True)

    @property
    def _folder(self) -> Path:
        """The part of the path that is the same for every file."""
        fixed = takewhile(lambda part: not set("{}") & set(part), Path(self.path).parent.parts)
        return Path(*fixed)

    def _could_name(self, name: Any) -> bool:
        """Whether it is a file's name below the folder that the path gives for some epoch."""
        try:
            parts = list(Formatter().parse(Path(self.path).relative_to(self._folder).as_posix()))
        except ValueError:  # the next save will say so
            return False
        pattern = "".join(
            re.escape(text) + (r"[^/\\]+" if field is not None else "") for text, field, _, _ in parts
        )
        return (
            isinstance(name, str) and ".." not in name.split("/") and re.fullmatch(pattern, name) is not None
        )

    def _path_of(self, epoch: int, logs: Logs) -> Path:
        try:
            return Path(os.fspath(self.path).format(**{**logs, "epoch": epoch + 1}))
        except (KeyError, IndexError, ValueError) as error:
            known = ", ".join(["epoch", *logs])
            place = f"ModelCheckpoint: path '{self.path}'"
            raise ConfigError(
                f"{place} cannot be filled in ({error}), expected names among {known}"
            ) from None


@dataclass
class CSVLogger(Callback):
    """Writes a row of numbers for each epoch; with `append` below what the file holds already."""

    remembers = ("text", "columns")

    path: str | os.PathLike[str] = "log.csv"
    """The file."""
    append: bool = False
    """Whether rows go below what the file holds."""

    def on_train_begin(self) -> None:
        before = Path(self.path)
        self.text = before.read_text(encoding="utf-8") if self.append and before.exists() else ""
        self.columns = self.text.splitlines()[0].split(",") if self.text else []

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        row: dict[str, Any] = {"epoch": epoch + 1, **logs, "learning_rate": self.session.learning_rate}
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if not self.columns:
            self.columns = list(row)
            writer.writerow(self.columns)
        writer.writerow([row.get(column, "") for column in self.columns])
        self.text += text.getvalue()
        write_text(self.path, self.text)
