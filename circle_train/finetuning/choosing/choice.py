"""What was found: a table that a person can read and overrule, and the settings of what was chosen."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Any

from circle_train.errors import ConfigError
from circle_train.finetuning.choosing.budget import Budget
from circle_train.finetuning.choosing.trial import falling
from circle_train.likeness import likeness
from circle_train.model import Model
from circle_train.printable import as_table, lines
from circle_train.record import record
from circle_train.report.plan import size, table
from circle_train.settings.config import TrainConfig


@record
class Row:
    """One candidate at its best rate."""

    what: str
    names: tuple[str, ...]
    """Of the parameters that it trains."""
    learning_rate: float = 0.0
    parameters: int = 0
    nbytes: int = 0
    """That a step takes, weights and engine included."""
    seconds: float | None = None
    """Of processor time, that training it on all samples will take."""
    foreseen: float = 0.0
    """Its share of the Fisher information of all that can be trained."""
    seen: float | None = None
    """What it gained on samples held out: of right answers, or of the loss."""
    skill: float = 0.0
    """By what it was decided (see trial.Score)."""
    splits: int = 0
    """That it was tried on."""
    refused: str = ""
    """Why it was not tried."""


@record
class Choice:
    """What to train, and why; `print` shows all that was tried.

    Example:
        >>> import circle_train as ct, numpy as np
        >>> x, y = np.random.default_rng(0).random((40, 6), np.float32), np.arange(40) % 5
        >>> choice = ct.choose("tests/data/mlp.circle", (x, y), seconds=5)
        >>> session = ct.TrainSession(choice.model, choice.config)
        >>> history = session.fit(x, y, verbose=0)
    """

    model: Model
    """With a head for the data's classes, trained if it is a new one."""
    config: TrainConfig
    """Of what was chosen; its epochs too."""
    rows: tuple[Row, ...]
    """The chosen one first, then by how good they were."""
    before: float
    """Right answers of samples held out, before; of other tasks the loss, negative."""
    reason: str
    """In one sentence."""
    samples: int
    """That can be trained on."""
    seconds: float
    """Of processor time that choosing took."""
    budget: Budget

    @property
    def chosen(self) -> Row:
        return self.rows[0]

    def of(self, what: str) -> TrainConfig:
        """The settings of another row, by the name in the table."""
        row = next((row for row in self.rows if row.what == what), None)
        if row is None:
            known = [row.what for row in self.rows]
            raise ConfigError(
                f"'{what}' was no candidate, expected one of {', '.join(known)}{likeness(what, known)}"
            )
        if row.refused:
            raise ConfigError(f"'{what}' cannot be trained within the budget: {row.refused}")
        return settings(self.config, row, self.samples)

    def _repr_html_(self) -> str:
        return as_table(str(self))

    def __repr__(self) -> str:
        return f"<Choice: {self.reason}>"

    def __str__(self) -> str:
        heads = ("", "what", "parameters", "memory", "seconds", "rate", "foreseen", "seen", "splits")
        rows = [_cells(row, "→" if row is self.chosen else "") for row in self.rows]
        refused = [f"not tried: {row.what}: {row.refused}" for row in self.rows if row.refused]
        return lines([*table([heads, *rows]), "", *refused, self.reason])


def settings(base: TrainConfig, row: Row, samples: int) -> TrainConfig:
    """Of a row of the table, for a course over so many samples."""
    updates = (base.epochs or 1) * ceil(samples / base.batch_size)
    rule = replace(base.rule, learning_rate=falling(row.learning_rate, updates))
    return base.replace(trainable=row.names, optimizer=rule)


def _cells(row: Row, mark: str) -> tuple[str, ...]:
    if row.refused:
        return (mark, row.what, *"-------")
    return (
        mark,
        row.what,
        f"{row.parameters:,}",
        size(row.nbytes),
        "-" if row.seconds is None else f"{row.seconds:.1f}",
        f"{row.learning_rate:g}",
        f"{row.foreseen:.1%}",
        "-" if row.seen is None else f"{row.seen:+.3f}",
        str(row.splits),
    )


def as_data(choice: Choice) -> dict[str, Any]:
    """For machines."""
    names = (
        "what",
        "parameters",
        "nbytes",
        "seconds",
        "learning_rate",
        "foreseen",
        "seen",
        "splits",
        "refused",
    )
    rows = [{name: getattr(row, name) for name in names} for row in choice.rows]
    return {"reason": choice.reason, "before": choice.before, "seconds": choice.seconds, "rows": rows}
