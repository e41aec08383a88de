"""Where a course leaves what it has learned, phase by phase, so that a stopped one goes on as if nothing had happened."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from circle_train.errors import FOREIGN, CheckpointError
from circle_train.fitting.callbacks import Callback
from circle_train.fitting.history import History
from circle_train.fitting.saving import ModelCheckpoint
from circle_train.format.atomic import make_folder, write_text
from circle_train.ir.mapped import require_file
from circle_train.session import TrainSession

HEAD, DEEPER, DONE = "head.safetensors", "deeper.safetensors", "course.json"
FILES = (HEAD, DEEPER, DONE)
TOLD = ("run.json", "report.html", "metrics.json", "plan.txt")
"""What a command writes beside them."""


class Stages:
    """A folder with the checkpoint of each phase; course.json says that the head's is over, and how it went."""

    def __init__(
        self, folder: str | os.PathLike[str], every: int | None = None, is_kept: bool = True
    ) -> None:
        self.folder, self.every, self.is_kept = Path(folder), every, is_kept
        make_folder(self.folder, "run folder", (*FILES, *TOLD))

    def callbacks(self, name: str) -> list[Callback]:
        """What keeps a phase's checkpoint up to date; none where only its end is of interest."""
        return [ModelCheckpoint(path=self.folder / name, every=self.every)] if self.is_kept else []

    def take_up(self, session: TrainSession, name: str) -> bool:
        """Whether the phase was begun here; the session then goes on from there."""
        is_begun = (self.folder / name).exists()
        if is_begun:
            session.load_checkpoint(self.folder / name)
        return is_begun

    def save(self, session: TrainSession, name: str) -> None:
        """In the middle of a phase, or at its end."""
        session.save_checkpoint(self.folder / name)

    def end_head(self, session: TrainSession, history: History, best: int) -> None:
        """The weights first, then the word that they are whole."""
        self.save(session, HEAD)
        told = {"history": dict(history.history), "epoch": list(history.epoch), "best": best}
        write_text(self.folder / DONE, json.dumps(told) + "\n")

    def head(self) -> tuple[History, int] | None:
        """How the head's phase went, if it is over."""
        path = self.folder / DONE
        if not path.exists():
            return None
        try:
            require_file(path)
            told: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            history = History()
            history.history = {str(name): [*map(float, row)] for name, row in told["history"].items()}
            history.epoch = [*map(int, told["epoch"])]
            return history, int(told["best"])
        except (OSError, *FOREIGN):
            raise CheckpointError(
                f"'{path}' is damaged; remove it, and the head is trained to its end again"
            ) from None

    def clear(self) -> None:
        """A course that is over is not gone on with."""
        for name in FILES:
            (self.folder / name).unlink(missing_ok=True)
