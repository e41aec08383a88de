"""What a session tells about itself on a page: what was trained on what, how, and how well."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import field, fields, is_dataclass
from enum import Enum
from typing import Any

from circle_train.data.dataset import Dataset, Stream
from circle_train.data.opening import open_any
from circle_train.fitting.history import History
from circle_train.ir.tensor_type import Array
from circle_train.losses import CategoricalCrossentropy, SparseCategoricalCrossentropy
from circle_train.record import record
from circle_train.report.confusion import CLASSES, SAMPLES, classes_of, confusion
from circle_train.report.page import Run
from circle_train.session.batches import Batches
from circle_train.session.fit import predict
from circle_train.session.keeping import plan_of


@record
class FinishedFit:
    """A fit that is over, and its data as fit saw them; None where there are none, or only a stream."""

    title: str
    history: History
    seconds: float | None = None
    steps: int | None = None
    train: Dataset | None = None
    validation: Dataset | None = None
    made: Mapping[str, str] = field(default_factory=dict)
    """What repeats the run."""


def account(session: Batches, fit: FinishedFit) -> Run:
    """All there is to say about it."""
    examined = fit.validation or fit.train
    counts = None if examined is None else taken_for(session, examined)
    what = "validation" if fit.validation else "training"
    number = 0 if examined is None else min(len(examined), SAMPLES)
    epochs = len(fit.history.epoch)
    took = "" if fit.seconds is None else f" in {fit.seconds:.1f} s"
    labels = session.model.labels
    return Run(
        title=fit.title,
        summary=f"{epochs} epoch{'s' * (epochs != 1)}{took}, {time.strftime('%d %B %Y, %H:%M')}",
        curves=fit.history.history,
        plan=plan_of(session),
        settings=settings_of(session, epochs),
        data=_data(session, fit),
        confusion=counts,
        examined=f"{number:,} {what} samples, with the weights as they are now",
        classes=labels if counts is not None and len(labels) == len(counts) else (),
        made=fit.made,
    )


def opened(session: Batches, pair: tuple[Any, Any] | None) -> Dataset | Stream | None:
    """Data as fit takes them."""
    if pair is None:
        return None
    program = session.program
    return open_any(*pair, program.inputs, program.targets, session.model.description)


def taken_for(session: Batches, data: Dataset) -> Array | None:
    """What was taken for what; None where a sample has no one class of a few."""
    outputs, loss = session.program.outputs, session.config.loss
    if len(outputs) != 1 or not isinstance(loss, (CategoricalCrossentropy, SparseCategoricalCrossentropy)):
        return None
    classes = outputs[0].shape[-1]
    if len(outputs[0].shape) != 2 or not 2 <= classes <= CLASSES:
        return None
    some = Dataset(*data.take(slice(0, SAMPLES)))
    found = predict(session, some).argmax(axis=-1)
    return confusion(found, classes_of(some.targets[0], len(some)), classes)


def settings_of(session: Batches, epochs: int) -> dict[str, str]:
    """What was trained, and how, in words."""
    config, program = session.config, session.program
    losses = dict.fromkeys(described(loss) for loss in config.losses_on(program.outputs))
    return {
        "loss": ", ".join(losses),
        "optimizer": described(config.optimizer),
        "learning rate": f"{session.learning_rate:g} at the end",
        "batch size": str(config.batch_size),
        "epochs": str(epochs),
        "trainable": _choice(config.trainable),
        "seed": str(session.seed),
    }


def _data(session: Batches, fit: FinishedFit) -> dict[str, str]:
    program = session.program
    found = {"training": _extent(fit.train, fit.steps), "validation": _extent(fit.validation, None)}
    for kind, tensors in (("input", program.inputs), ("label", program.targets)):
        for tensor in tensors:
            sizes = "×".join(map(str, tensor.shape[1:])) or "one"
            found[kind if len(tensors) == 1 else f"{kind} {tensor.name}"] = (
                f"{sizes} {tensor.dtype.name.lower()}"
            )
    return found


def _extent(data: Dataset | None, steps: int | None) -> str:
    batches = "" if steps is None else f"{steps:,} batches an epoch"
    if data is None:
        return batches or "none"
    return f"{len(data):,} samples" + (f", {batches}" if batches else "")


def described(setting: Any) -> str:
    """An object of settings in words, without what is not set."""
    shown = []
    for one in fields(setting):
        value = getattr(setting, one.name)
        value = value.value if isinstance(value, Enum) else described(value) if is_dataclass(value) else value
        if value not in (None, (), 0) or one.name == "learning_rate":
            shown.append(f"{one.name} {value:g}" if isinstance(value, float) else f"{one.name} {value}")
    return f"{type(setting).__name__}: {', '.join(shown)}" if shown else type(setting).__name__


def _choice(trainable: Any) -> str:
    if callable(trainable):
        return "chosen by a function of names"
    if isinstance(trainable, tuple) and trainable[:1] == ("last",):
        return f"the last {trainable[1]} operators"
    return trainable if isinstance(trainable, str) else ", ".join(map(str, trainable))
