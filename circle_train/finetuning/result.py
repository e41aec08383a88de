"""What a fine-tuning gave: the model, how good it is, and what to do next."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from circle_train.data.dataset import Dataset
from circle_train.data.labelled import Labelled
from circle_train.data.opening import Folder
from circle_train.finetuning.choosing.choice import Choice, as_data
from circle_train.fitting.history import History
from circle_train.format.atomic import write_text
from circle_train.format.metadata.description import Description
from circle_train.ir.tensor_type import Array
from circle_train.printable import lines
from circle_train.record import record
from circle_train.report.confusion import classes_of
from circle_train.session import TrainSession
from circle_train.session.shipping.ship import Shipped, as_settings
from circle_train.settings.quantization import Int8


@record
class Judgement:
    """Scores of samples that were judged, and the answers that were right."""

    found: Array
    truth: Array
    classes: tuple[str, ...]

    @property
    def metrics(self) -> dict[str, float]:
        if not self.classes:
            error = self.found - self.truth
            return {
                "mean_absolute_error": float(np.abs(error).mean()),
                "root_mean_squared_error": float(np.sqrt((error**2).mean())),
            }
        precision, recall = self.by_class
        f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
        counts = (self.truth + self._chosen).sum(0) > 0
        if self.is_single:
            accuracy = float((self.found.argmax(1) == self.truth.argmax(1)).mean())
        else:
            accuracy = float(((self.found > 0.5) == (self.truth > 0.5)).mean())
        return {
            "accuracy": accuracy,
            "precision": float(precision[counts].mean()),
            "recall": float(recall[counts].mean()),
            "f1": float(f1[counts].mean()),
        }

    @property
    def is_single(self) -> bool:
        """Whether every sample is of one class."""
        return bool((self.truth.sum(1) == 1).all() and np.allclose(self.found.sum(1), 1, atol=1e-3))

    @property
    def confusion(self) -> Array:
        """How many samples of each class (row) were taken for each (column)."""
        count = len(self.classes)
        table = np.zeros((count, count), np.int64)
        np.add.at(table, (self.truth.argmax(1), self.found.argmax(1)), 1)
        return table

    @property
    def by_class(self) -> tuple[Array, Array]:
        """Precision and recall of each class."""
        chosen = self._chosen
        hits = (chosen * self.truth).sum(0)
        return hits / np.maximum(chosen.sum(0), 1), hits / np.maximum(self.truth.sum(0), 1)

    @property
    def _chosen(self) -> Array:
        """Ones for the classes that were named."""
        best: Array = np.eye(len(self.classes))[self.found.argmax(1)]
        return best if self.is_single else (self.found > 0.5).astype(float)

    def lines(self, where: str) -> list[str]:
        """How good the answers are, in all and class by class; `where` says for which samples."""
        numbers = ", ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in self.metrics.items())
        if not self.classes:
            return [f"on {where}: {numbers}"]
        precision, recall = self.by_class
        width = max(map(len, self.classes))
        rows = zip(self.classes, precision, recall, self.truth.sum(0), strict=True)
        return [
            f"on {where}: {numbers}",
            *(
                f"  {name:{width}}  " + (f"precision {p:.2f}  recall {r:.2f}" if known else "there is none")
                for name, p, r, known in rows
            ),
            *self._doubts(),
        ]

    def _doubts(self) -> list[str]:
        """A model that has learned nothing is not left to speak for itself."""
        shares = self.truth.mean(0)
        if not self.is_single or shares.max() == 1 or self.metrics["accuracy"] > shares.max() + 1e-6:
            return []
        often = self.classes[int(shares.argmax())]
        return [
            f"that is no better than answering {often} to everything: begin with a model that was made for such samples, "
            "or look at the scale in which it gets them"
        ]


def examined(session: TrainSession, data: Dataset) -> Judgement | None:
    """The session's answers for a folder by class; None where they are no classes."""
    if not isinstance(data, Folder):
        return None
    found = session.predict(data)
    scores = np.asarray(found[0] if isinstance(found, list) else found, np.float32)
    if data.source.scores != "softmax":
        truth = data.source.targets()
        return Judgement(scores.reshape(truth.shape), truth, data.source.classes)
    known = session.model.labels
    classes = known if set(data.source.classes) <= set(known) else data.source.classes
    if scores.ndim != 2 or scores.shape[1] != len(classes):
        return None
    numbers = classes_of(data.targets[0], len(scores))
    return Judgement(_shares(scores), np.eye(len(classes), dtype=np.float32)[numbers], classes)


def _shares(scores: Array) -> Array:
    """Scores that sum to one; of a model that ends in logits their softmax."""
    if np.allclose(scores.sum(1), 1, atol=1e-3) and (scores >= 0).all():
        return scores
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares: Array = powers / powers.sum(axis=1, keepdims=True)
    return shares


def judged(session: TrainSession, data: Dataset, source: Labelled) -> Judgement:
    """The session's answers for all of the data."""
    found = session.predict(data)
    first = found[0] if isinstance(found, list) else found
    return Judgement(np.asarray(first).reshape(len(source), -1), source.targets(), source.classes)


@record
class Outcome:
    """A trained model and how good it is."""

    session: TrainSession
    data: Labelled
    how: Description
    why: str
    histories: tuple[History, ...]
    judgement: Judgement
    seconds: float
    """Of processor time."""
    held_out: int | None
    """How many samples that were not trained were judged; None: those that were."""
    examined: Labelled
    """What was judged."""
    best_epochs: tuple[int, ...]
    """Of each phase the epoch, from 0, whose weights stayed."""
    phases: tuple[str, ...]
    """What each of them trained."""
    choice: Choice | None = None
    """What was tried to find out what to train, where there was a budget."""

    @property
    def metrics(self) -> dict[str, float]:
        """How good the answers for the samples held out are."""
        return self.judgement.metrics

    def export(self, path: str | os.PathLike[str], *, quantize: Int8 | str | None = None) -> Shipped | None:
        """Write the inference model; labels and normalisation are in it, the labels also in labels.txt beside it.

        `quantize` ships it in integers (`ct.Int8`, or a scheme's name), calibrated on these samples and judged on those held
        out unless the settings bring others; what it became is returned.
        """
        settings = None if quantize is None else self._settings(as_settings(quantize))
        shipped = self.session.export(path, quantize=settings)
        if self.data.classes:
            write_text(Path(path).with_name("labels.txt"), f"{lines(self.data.classes)}\n")
        return shipped

    def _settings(self, wish: Int8) -> Int8:
        """With samples, where none were given."""
        if wish.calibration is None and wish.needs_samples:
            wish = replace(wish, calibration=self._opened(self.data))
        if wish.validation is None and self.held_out:
            wish = replace(wish, validation=self._opened(self.examined))
        return wish

    def _opened(self, source: Labelled) -> Dataset:
        return Dataset([source.open(self.session.program.inputs[0], self.how)], [source.targets()])

    def __str__(self) -> str:
        where = f"{self.held_out} held out" if self.held_out else "those trained on"
        lines = [
            f"{self.how}",
            *([] if self.choice is None else [self.choice.reason]),
            *self.judgement.lines(where),
        ]
        epochs = " and ".join(str(len(history.epoch)) for history in self.histories)
        best = " and ".join(str(epoch + 1) for epoch in self.best_epochs)
        lines.append(
            f"{epochs} epochs, the weights of epoch {best} stay; {self.seconds:.1f} s of processor time"
        )
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Result: {', '.join(f'{name} {value:.3f}' for name, value in self.metrics.items())}>"


def summary(result: Outcome) -> dict[str, Any]:
    """For machines."""
    found = {"metrics": result.metrics, "classes": list(result.data.classes), "seconds": result.seconds}
    return found if result.choice is None else {**found, "choice": as_data(result.choice)}
