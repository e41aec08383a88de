"""What a model that says what it takes answers for files: names with their scores."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from circle_train.data.opening import SUFFIXES, files_of, unlabelled
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
    """What a model says of one file: a score for each of its classes."""

    path: Path
    classes: tuple[str, ...]
    scores: Array

    def best(self, count: int) -> list[tuple[str, float]]:
        """The likeliest classes."""
        order = np.argsort(-self.scores, kind="stable")[:count]
        return [(self.classes[i], float(self.scores[i])) for i in order]


def answers(
    model: Model,
    paths: Sequence[str | os.PathLike[str]],
    asked: Description | None = None,
    threads: int | None = None,
) -> list[Answer]:
    """Answers for files and for all files in folders, read as the model's file says unless the caller asks otherwise."""
    known = model.description
    kind = known.kind if known is not None and known.kind in SUFFIXES else "image"
    files = files_of(paths, kind)
    tensor = model.module.main.inputs[0]
    samples = unlabelled(files, replace(asked or Description(), kind=kind), model.labels)
    how = samples.describe(tensor, known)
    if how.mean is None:
        raise ConfigError(
            "the model's file does not say what becomes of pixels; say it: --scale 127.5 --offset 127.5 for -1…1, "
            "--scale 255 for 0…1"
        )
    session = InferenceSession(model, threads=threads)
    array = samples.open(tensor, how)
    found = [_first(session(array[at : at + BATCH])) for at in range(0, len(array), BATCH)]
    scales = model.module.main.outputs[0].quantization
    scores = np.concatenate([_real(part, scales).reshape(len(part), -1) for part in found])
    names = model.labels if len(model.labels) == scores.shape[1] else tuple(map(str, range(scores.shape[1])))
    return [Answer(file, names, row) for file, row in zip(files, scores, strict=True)]


def _real(scores: Array, scales: Quantization | None) -> Array:
    """What integers stand for."""
    if scales is None or scores.dtype.kind == "f":
        return np.asarray(scores, np.float32)
    return dequantize(scores, scales)


def _first(outputs: Array | list[Array]) -> Array:
    return outputs[0] if isinstance(outputs, list) else outputs
