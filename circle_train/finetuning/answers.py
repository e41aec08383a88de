"""What a model that says what it takes answers for files: names with their scores."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from circle_train.data.labelled import Labelled
from circle_train.data.unlabelled import files_of, origin_of, rows_in, texts_in, unlabelled
from circle_train.errors import ConfigError
from circle_train.format.metadata.description import Description
from circle_train.ir import Quantization
from circle_train.ir.tensor_type import Array
from circle_train.model import Model
from circle_train.ops.numeric.quantize import dequantize
from circle_train.record import record
from circle_train.session import InferenceSession

BATCH = 16


@record
class Answer:
    """What a model says of one sample: a score for each of its classes, or numbers."""

    name: str
    classes: tuple[str, ...]
    scores: Array
    meaning: str = "softmax"
    """What the scores are: "softmax", "sigmoid" or "values"."""

    def best(self, count: int | None = None) -> list[tuple[str, float]]:
        """The likeliest classes; unless told how many, one, or all that are likelier than not where several may be; numbers
        in their order."""
        order = np.argsort(-self.scores, kind="stable")
        if self.meaning == "values":
            order = np.arange(len(self.scores))
        elif count is None and self.meaning == "sigmoid":
            order = order[: max(int((self.scores > 0.5).sum()), 1)]
        else:
            order = order[: count or 1]
        return [(self.classes[i], float(self.scores[i])) for i in order]


@record
class Question:
    """What is asked of a model: samples, and how they are read."""

    asked: Description = field(default_factory=Description)
    tokenizer: str | None = None
    batch_size: int = BATCH
    threads: int | None = None
    backend: str = "auto"


def answers(
    model: Model, paths: Sequence[str | os.PathLike[str]], question: Question | None = None
) -> list[Answer]:
    """Answers for files, for all files in folders and for rows of tables, read as the model's file says unless the caller
    asks otherwise."""
    question = question or Question()
    known = model.description
    tensor = model.module.main.inputs[0]
    names, samples = _samples(model, paths, question)
    how = samples.describe(tensor, known)
    if how.mean is None and how.kind == "image":
        raise ConfigError(
            "the model's file does not say what becomes of pixels; say it: --scale 127.5 --offset 127.5 for -1…1, "
            "--scale 255 for 0…1"
        )
    session = InferenceSession(model, threads=question.threads, backend=question.backend)
    array, size = samples.open(tensor, how), question.batch_size
    found = [_first(session(array[at : at + size])) for at in range(0, len(array), size)]
    scales = model.module.main.outputs[0].quantization
    scores = np.concatenate([_real(part, scales).reshape(len(part), -1) for part in found])
    classes = _classes(model, scores.shape[1])
    meaning = "softmax" if known is None else known.scores
    return [Answer(name, classes, row, meaning) for name, row in zip(names, scores, strict=True)]


def _samples(
    model: Model, paths: Sequence[str | os.PathLike[str]], question: Question
) -> tuple[list[str], Labelled]:
    """A name for each, and what is read."""
    known = model.description
    if known is not None and known.kind == "features":
        return rows_in(paths, known)
    kind = "image" if known is None else known.kind
    asked = replace(question.asked, kind=kind)
    items: Sequence[Any]
    if known is not None and kind == "text":
        names, items = texts_in(paths, known)
    else:
        items = files_of(paths, kind)
        names = list(map(str, items))
    return names, unlabelled(items, asked, model.labels, question.tokenizer)


def _classes(model: Model, count: int) -> tuple[str, ...]:
    """Names of the outputs, as far as the file knows them."""
    known = model.description
    targets = () if known is None or model.labels else origin_of(known).targets
    for names in (model.labels, targets):
        if len(names) == count:
            return names
    return tuple(map(str, range(count)))


def _real(scores: Array, scales: Quantization | None) -> Array:
    """What integers stand for."""
    if scales is None or scores.dtype.kind == "f":
        return np.asarray(scores, np.float32)
    return dequantize(scores, scales)


def _first(outputs: Array | list[Array]) -> Array:
    return outputs[0] if isinstance(outputs, list) else outputs
