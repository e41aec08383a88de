"""How pixels become the input of a model whose file does not say so: measured by what tells the classes apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from circle_train.data.labelled import Labelled
from circle_train.format.metadata.description import Description
from circle_train.ir.tensor_type import Array
from circle_train.model import Model
from circle_train.passes.heads.new_head import features_of
from circle_train.runtime.module import with_outputs
from circle_train.session import InferenceSession

USUAL: tuple[tuple[tuple[float, ...], tuple[float, ...]], ...] = (
    ((127.5,), (127.5,)),
    ((0.0,), (255.0,)),
    ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375)),
    ((0.0,), (1.0,)),
)
"""Mean and deviation: -1…1, 0…1, ImageNet's, pixels as they are. The first of those that do about as well is taken."""
SAMPLES, BATCH = 48, 16
NOISE = 0.1
"""By which choices differ though none is better: two standard errors of so many samples."""


def settle(model: Model, data: Labelled, seed: int) -> tuple[Description, str]:
    """The description of the model's input, and how its scale is known."""
    (tensor, *_) = model.module.main.inputs
    known = model.description
    how = data.describe(tensor, known)
    if how.kind != "image":
        return how, ""
    if data.asked.mean is not None or data.asked.std is not None:
        return how, "as given"
    if how.mean is not None:
        return how, "as the model's file says"
    if how.channels == 1:
        return replace(how, mean=(0.0,), std=(255.0,)), "as usual for one channel"
    choices = [replace(how, mean=mean, std=std) for mean, std in USUAL if len(mean) in (1, how.channels)]
    gains = _separations(model, data, choices, seed)
    best = next(place for place, gain in enumerate(gains) if gain >= max(gains) - NOISE)
    return choices[best], "which tells these classes apart best; --scale and --offset overrule it"


def _separations(model: Model, data: Labelled, choices: list[Description], seed: int) -> list[float]:
    """For each choice, how much further apart pictures of different classes lie than those of one, in the last features."""
    features, _, _ = features_of(model.module.main)
    body = InferenceSession(Model(with_outputs(model.module, [features.name]), model.provenance))
    places = np.random.default_rng(seed).permutation(len(data))[:SAMPLES]
    some = data.take(np.sort(places))
    return [round(_separation(_features(body, some, how), some.labels), 3) for how in choices]


def _features(body: InferenceSession, data: Labelled, how: Description) -> Array:
    """A row for each sample, of length 1."""
    pictures = data.open(body.model.module.main.inputs[0], how)
    rows = []
    for start in range(0, len(pictures), BATCH):
        found = body(pictures[start : start + BATCH])
        rows.append(np.asarray(found, np.float32).reshape(len(found), -1))
    features = np.concatenate(rows)
    lengths: Array = np.linalg.norm(features, axis=1, keepdims=True)
    return features / np.maximum(lengths, 1e-12)


def _separation(rows: Array, labels: Array) -> float:
    """The share of samples whose nearest neighbour is of their own class, less what ties it: the mean likeness to others."""
    if not np.isfinite(rows).all():
        return -1.0
    likeness = rows @ rows.T
    np.fill_diagonal(likeness, -np.inf)
    nearest = float((labels[likeness.argmax(1)] == labels).mean())
    same = labels[:, None] == labels[None, :]
    np.fill_diagonal(likeness, np.nan)
    within, between = np.nanmean(likeness[same]), np.nanmean(likeness[~same])
    return nearest + 0.5 * float(within - between)
