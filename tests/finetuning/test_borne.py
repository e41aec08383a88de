"""Which variations pictures bear, and how their pixels are read, is found out unless it is said."""

from __future__ import annotations

from pathlib import Path

import pytest
from picture_net import picture_net
from ramps import ramps

import circle_train as ct
from circle_train.data.pictures import Images
from circle_train.finetuning.borne import borne
from circle_train.finetuning.look import settle
from circle_train.format.metadata.description import Description

SHAPES = Path(__file__).parents[1] / "data" / "shapes"


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


@pytest.mark.parametrize("given", [{"scale": 100.0}, {"offset": 3.0}])
def test_a_scale_or_an_offset_that_is_given_settles_how_pixels_are_read(given: dict[str, float]) -> None:
    said = picture_net().described(Description(kind="image", mean=(9.0,), std=(9.0,)))
    how, known = settle(said, ct.data.images(SHAPES, **given), 0)
    assert known == "as given"
    assert (how.mean, how.std) != ((9.0,), (9.0,))
    assert settle(said, ct.data.images(SHAPES), 0)[1] == "as the model's file says"
