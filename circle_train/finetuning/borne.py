"""Variations that change nothing of what samples are: found out by those that are held out."""

from __future__ import annotations

import logging
from dataclasses import replace

from circle_train.data.dataset import Dataset
from circle_train.data.labelled import Labelled
from circle_train.data.pictures import Images
from circle_train.finetuning.result import judged
from circle_train.format.metadata.description import Description
from circle_train.session import TrainSession

LOG = logging.getLogger(__name__)
LOST = {"flip": 0.05, "crop": 0.1}
"""Of the right answers; what turns samples into others, as mirrors do letters, loses far more. Cuts are new to a head that has
seen whole pictures only: it loses some of them though they are learned well."""


def borne(
    session: TrainSession, train: Labelled, held_out: Labelled | None, how: Description, seed: int
) -> Labelled:
    """What trains, varied in those ways that were to be tried and in which a trained head still names those held out."""
    if not isinstance(train, Images) or not isinstance(held_out, Images):
        return train

    def right(*names: str) -> float:
        varied = replace(held_out, augmentation=names)
        rows = varied.open(session.program.inputs[0], how, len(names), seed)
        return judged(session, Dataset([rows], [varied.targets()]), varied).metrics["accuracy"]

    usual = right() if train.tried else 0.0
    found = tuple(name for name in train.tried if right(name) >= usual * (1 - LOST[name]))
    if found:
        LOG.info(
            "varied by %s, in which those held out are named as well; --augment says otherwise",
            " and ".join(found),
        )
    return replace(train, augmentation=found or train.augmentation)
