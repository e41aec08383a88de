"""What to train: candidates, what speaks for them, trials, and a table."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from circle_train.finetuning.choosing.budget import Budget, budget_of
from circle_train.finetuning.choosing.choice import Choice, Row, settings
from circle_train.finetuning.choosing.contest import Contest
from circle_train.finetuning.choosing.halving import Arm, chosen_of
from circle_train.finetuning.choosing.task import Task, task_of
from circle_train.ir.tensor_type import Array
from circle_train.model import Model, Source, load
from circle_train.settings.config import TrainConfig

FEW = 30
"""Samples held out that decide nothing."""


def choose(  # noqa: PLR0913 -- what there is to say about a choice, each by name
    model: Model | Source,
    data: Any,
    *,
    memory: int | str | None = None,
    seconds: float | None = None,
    seed: int = 0,
    config: TrainConfig | None = None,
    threads: int | None = None,
) -> Choice:
    """Find out what of a model is worth training on these data within a budget.

    Last layers, first layers, blocks, biases, scales and sets that Fisher's information proposes are tried at several
    rates on parts of the data and judged on the others; the better they are, the more often.

    Args:
        model: a path or a loaded model; it gets a new head where its own does not fit the data's classes.
        data: what `ct.data.images` and its like give, or (x, y).
        memory: what a training step may take in all, as "8MB"; None: no limit.
        seconds: of processor time for choosing and training together; None: no limit.
        seed: of splits and order: the same seed makes the same choice.
        config: loss, optimizer, batch size and epochs; None: as the model's file or the labels say.
        threads: how many to use.

    Example:
        >>> import circle_train as ct, numpy as np
        >>> x, y = np.random.default_rng(0).random((40, 6), np.float32), np.arange(40) % 5
        >>> ct.choose("tests/data/mlp.circle", (x, y), seconds=5).chosen.refused
        ''
    """
    budget = budget_of(memory, seconds)
    return choose_for(task_of(load(model), data, config, budget.memory, seed, threads), budget)


def choose_for(task: Task, budget: Budget, start: Mapping[str, Array] | None = None) -> Choice:
    """The same of a task; `start`: the weights of its new head, where they have been trained."""
    began = time.process_time()
    contest = Contest(task, budget, dict(start or {}))
    chosen, doubtful = chosen_of(contest.run(), contest.usual, contest.before)
    rows = contest.rows(chosen)
    before = float(np.mean([score.right for score in contest.before]))
    config = settings(task.config.replace(epochs=contest.schedule.epochs), rows[0], len(task.data))
    model = task.model.with_parameters(contest.start) if contest.start else task.model
    why = reason(
        rows[0],
        before,
        doubtful,
        len(np.unique(np.concatenate([split.held_out for split in contest.splits]))),
        task.labels is not None,
    )
    return Choice(model, config, rows, before, why, len(task.data), time.process_time() - began, budget)


def reason(row: Row, before: float, doubtful: Sequence[Arm], examined: int, of_classes: bool) -> str:
    """In one sentence: what is chosen, how good it was, and how sure that is."""
    found = before + (row.seen or 0.0)
    was = (
        f"right {found:.1%} instead of {before:.1%}"
        if of_classes
        else f"loss {-found:.4g}, before {-before:.4g}"
    )
    what = f"{row.what} ({row.parameters:,} parameters, rate {row.learning_rate:g})"
    others = list(dict.fromkeys(arm.candidate.what for arm in doubtful))
    more = f" and {len(others) - 3} more" if len(others) > 3 else ""
    doubt = f", which do not tell it from {', '.join(others[:3])}{more}" if others else ""
    if examined < FEW:
        doubt = ", too few to decide anything"
    return f"{what}: {was}, on {examined} samples held out{doubt}"
