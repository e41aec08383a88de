"""Which variations pictures bear is found out by the pictures held out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from picture_net import picture_net
from PIL import Image

import circle_train as ct
from circle_train.data.pictures import Images
from circle_train.finetuning.borne import borne


def ramps(folder: Path, axis: int) -> Images:
    """Pictures that grow lighter one way or the other."""
    random = np.random.default_rng(0)
    for name in ("there", "back"):
        (folder / name).mkdir()
        for number in range(12):
            ramp = np.linspace(*random.uniform([20, 150], [100, 235]), 32)[:: 1 if name == "there" else -1]
            pixels = np.broadcast_to(ramp[:, None] if axis == 0 else ramp, (32, 32))
            Image.fromarray(pixels.astype(np.uint8)).convert("RGB").save(folder / name / f"{number}.png")
    return ct.data.images(folder, validation=0.5, scale=255.0)


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
