"""What there is to learn: a model whose head fits the data, the settings that all candidates share, and the samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from circle_train.data.dataset import Dataset
from circle_train.data.labelled import Labelled
from circle_train.data.opening import open_any
from circle_train.errors import ConfigError, DataError
from circle_train.finetuning.look import settle
from circle_train.format.metadata.description import Description
from circle_train.ir.tensor_type import Array
from circle_train.kinds import require_seed
from circle_train.losses import (
    BinaryCrossentropy,
    CategoricalCrossentropy,
    Loss,
    MeanSquaredError,
    SparseCategoricalCrossentropy,
)
from circle_train.model import Model
from circle_train.optimizers import Adam
from circle_train.record import record
from circle_train.report.confusion import classes_of
from circle_train.session import TrainSession
from circle_train.settings.config import TrainConfig

BATCH = 16
HEAD = "head/"
"""What the names of a new head's parameters begin with."""
FEWEST = 8
"""Samples from which something can be chosen."""


@record
class Task:
    """A course that is to be planned."""

    model: Model
    config: TrainConfig
    data: Dataset
    labels: Array | None
    """Class numbers, where the samples are of classes."""
    groups: Array | None
    """Samples of one group train or validate together."""
    has_new_head: bool
    seed: int
    threads: int | None

    def session(self, trainable: Any, rate: float, start: Mapping[str, Array], seed: int = 0) -> TrainSession:
        """One that begins with these weights."""
        rule = replace(self.config.rule, learning_rate=rate)
        config = self.config.replace(trainable=trainable, optimizer=rule, epochs=0)
        session = TrainSession(self.model, config, seed=self.seed + seed, threads=self.threads)
        for name, value in start.items():
            session.parameters[name] = value
        return session


def task_of(
    model: Model, data: Any, config: TrainConfig | None, memory: int | None, seed: int, threads: int | None
) -> Task:
    """The model gets a head for the data's classes unless its own fits them."""
    require_seed(seed)
    if isinstance(data, Labelled):
        return _of_labelled(model, data, config, memory, seed, threads)
    x, y = data if isinstance(data, tuple) and len(data) == 2 else (data, None)
    chosen = config or model.training or TrainConfig(loss=_loss(model, y), optimizer=Adam(), batch_size=BATCH)
    chosen = _within(chosen, memory)
    program = TrainSession(model, chosen.replace(memory_budget=None), threads=threads).program
    opened = open_any(x, y, program.inputs, program.targets, model.description)
    if not isinstance(opened, Dataset):
        raise DataError(
            "choose: data is a stream of batches; give arrays, which can be split again and again"
        )
    labels, is_new = _labels(chosen, opened), has_empty_head(model)
    return _checked(Task(model, chosen, opened, labels, None, is_new, seed, threads))


def _of_labelled(
    model: Model, data: Labelled, config: TrainConfig | None, memory: int | None, seed: int, threads: int | None
) -> Task:  # fmt: skip
    how, _ = settle(model, data, seed)
    train, _ = data.parts(seed)
    fits = is_known(model, data)
    if not fits:
        headed = model.with_head(data.classes or data.outputs, scores=data.scores)
        model = headed.described(replace(how, labels=data.classes, scores=data.scores))
    chosen = _within(
        config or TrainConfig(loss=LOSSES[data.scores], optimizer=Adam(), batch_size=BATCH), memory
    )
    return task_of_course(model, train, how, chosen, seed=seed, threads=threads, has_new_head=not fits)


def task_of_course(  # noqa: PLR0913 -- what a Task is made of
    model: Model, train: Labelled, how: Description, config: TrainConfig, *, seed: int, threads: int | None,
    has_new_head: bool = True,
) -> Task:  # fmt: skip
    """Of samples all of which train."""
    opened = Dataset([train.open(model.module.main.inputs[0], how)], [train.targets()])
    labels = train.labels if train.scores == "softmax" else None
    return _checked(Task(model, config, opened, labels, train.groups, has_new_head, seed, threads))


LOSSES: dict[str, Loss] = {
    "softmax": CategoricalCrossentropy(),
    "sigmoid": BinaryCrossentropy(),
    "values": MeanSquaredError(),
}


def has_empty_head(model: Model) -> bool:
    """Whether it came from `with_head` and was never trained."""
    head = [t for t in model.module.main.all_tensors() if t.is_constant and t.name == f"{HEAD}weights"]
    return bool(head) and not any(t.data.any() for t in head)


def is_known(model: Model, data: Labelled) -> bool:
    """Whether the model answers in these classes already."""
    outputs = model.module.main.outputs
    if len(outputs) != 1 or not outputs[0].dtype.is_float or outputs[0].shape[-1:] != (data.outputs,):
        return False
    return not model.labels or not data.classes or tuple(model.labels) == tuple(data.classes)


def _loss(model: Model, y: Any) -> Loss:
    """What labels of this kind are trained on."""
    labels = np.asarray(y) if isinstance(y, (np.ndarray, list)) else None
    if labels is None:
        raise ConfigError(
            "choose: nothing says what the loss is; give config=ct.TrainConfig(loss=…) or (x, y)"
        )
    if labels.dtype.kind in "iu" and labels.size == len(labels):
        return SparseCategoricalCrossentropy()
    rows = labels.reshape(len(labels), -1)
    is_one_hot = rows.shape[1] > 1 and ((rows == 0) | (rows == 1)).all() and (rows.sum(1) == 1).all()
    return CategoricalCrossentropy() if is_one_hot else MeanSquaredError()


def _within(config: TrainConfig, memory: int | None) -> TrainConfig:
    return config if memory is None else config.replace(memory_budget=memory)


def _labels(config: TrainConfig, data: Dataset) -> Array | None:
    is_sorted = isinstance(config.loss, (CategoricalCrossentropy, SparseCategoricalCrossentropy))
    return classes_of(data.targets[0][:], len(data)) if is_sorted and len(data.targets) == 1 else None


def _checked(task: Task) -> Task:
    if len(task.data) < FEWEST:
        raise DataError(f"choose: there are {len(task.data)} samples to train on, expected at least {FEWEST}")
    batch = min(task.config.batch_size, max(len(task.data) // 4, 1))
    return replace(task, config=task.config.replace(batch_size=batch, metrics=()))
