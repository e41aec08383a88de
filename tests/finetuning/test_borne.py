"""Which variations pictures bear is found out by the pictures held out."""

from __future__ import annotations

from pathlib import Path

import pytest
from picture_net import picture_net
from ramps import ramps

import circle_train as ct
from circle_train.data.pictures import Images
from circle_train.finetuning.borne import borne


@pytest.mark.parametrize("axis, names", [(0, ("flip", "crop")), (1, ("crop",))])
def test_what_a_mirror_makes_another_thing_is_not_mirrored(
    tmp_path: Path, axis: int, names: tuple[str, ...]
) -> None:
    data = ramps(tmp_path, axis)
    result = ct.finetune(picture_net(), data, trainable="all", epochs=30, verbose=0, learning_rate=0.05)
    assert result.metrics["accuracy"] == 1
    train, held_out = data.parts(seed=0)
    found = borne(result.session, train, held_out, result.how, seed=0)
    assert isinstance(found, Images) and found.augmentation == names
    asked = ct.data.images(tmp_path, augment="none")
    assert not asked.tried and borne(result.session, asked, held_out, result.how, seed=0) == asked
