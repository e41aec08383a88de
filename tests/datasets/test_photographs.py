"""Folders of photographs as data: classes, splits, sizes, scales, damage."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from picture_net import picture_net
from PIL import Image

import circle_train as ct
from circle_train.data.augment import SMALLEST_CROP, vary_image
from circle_train.data.dataset import Dataset
from circle_train.data.labelled import mixture
from circle_train.data.pictures import Images, read_image
from circle_train.finetuning import look
from circle_train.format.metadata.description import Description

SHAPES = Path(__file__).parents[1] / "data" / "shapes"
INPUT = picture_net().module.main.inputs[0]


def photographs(folder: Path, **counts: int) -> Path:
    for name, count in counts.items():
        (folder / name).mkdir(parents=True)
        for number in range(count):
            shade = (40 * number, 100, 200)
            Image.new("RGB", (20, 10), shade).save(folder / name / f"{number}.png")
    return folder


def test_hidden_folders_and_folders_without_pictures_are_no_classes(tmp_path: Path) -> None:
    photographs(tmp_path, cat=2, dog=2)
    for name in (".ipynb_checkpoints", "__pycache__", "notes"):
        (tmp_path / name).mkdir()
    shutil.copy(tmp_path / "cat" / "0.png", tmp_path / ".ipynb_checkpoints" / "0.png")
    (tmp_path / "cat" / ".0.png").write_bytes(b"no picture")
    data = ct.data.images(tmp_path)
    assert data.classes == ("cat", "dog")
    assert len(data) == 4


def test_every_class_validates_by_its_share(tmp_path: Path) -> None:
    data = ct.data.images(photographs(tmp_path, a=10, b=5, c=20), validation=0.2)
    train, held_out = data.parts(seed=0)
    assert held_out is not None
    assert held_out.counts().tolist() == [2, 1, 4]
    assert train.counts().tolist() == [8, 4, 16]
    assert not set(train.items) & set(held_out.items)
    assert data.parts(seed=1)[1].items != held_out.items  # type: ignore[union-attr]


def test_groups_train_or_validate_as_a_whole() -> None:
    items, labels = [SHAPES / "circle" / "0.png"] * 12, np.arange(12) % 2
    data = Images(
        items, labels.astype(np.int32), ("a", "b"), groups=np.repeat(["x", "y", "z", "w"], 3), validation=0.25
    )
    train, held_out = data.parts(seed=0)
    assert held_out is not None and train.groups is not None and held_out.groups is not None
    assert len(held_out) == 3
    assert not set(train.groups) & set(held_out.groups)


def test_another_folder_may_validate(tmp_path: Path) -> None:
    train = photographs(tmp_path / "train", a=3, b=3)
    other = photographs(tmp_path / "other", a=1, b=2)
    assert len(ct.data.images(train, validation=other).parts(0)[1]) == 3  # type: ignore[arg-type]
    photographs(tmp_path / "wrong", a=1, z=2)
    with pytest.raises(ct.DataError, match=r"has the classes a, z, expected a, b"):
        ct.data.images(train, validation=tmp_path / "wrong")


def test_damaged_pictures_are_named_together_or_skipped(tmp_path: Path) -> None:
    photographs(tmp_path, a=3, b=3)
    (tmp_path / "a" / "x.png").write_bytes(b"no picture")
    (tmp_path / "b" / "y.jpg").write_bytes(b"")
    with pytest.raises(ct.DataError, match=r"2 of 8 pictures cannot be read: .*x\.png.*y\.jpg"):
        ct.data.images(tmp_path)
    data = ct.data.images(tmp_path, skip_damaged=True)
    assert len(data) == 6 and len(data.skipped) == 2


@pytest.mark.parametrize("suffix", ["jpg", "png", "gif", "bmp", "webp"])
def test_halves_of_pictures_are_damaged_before_anything_is_trained(tmp_path: Path, suffix: str) -> None:
    photographs(tmp_path, a=2, b=2)
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)
    whole = tmp_path / "a" / f"x.{suffix}"
    Image.fromarray(noise).save(whole)
    assert len(ct.data.images(tmp_path)) == 5
    whole.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    with pytest.raises(ct.DataError, match=rf"1 of 5 pictures cannot be read: .*x\.{suffix}"):
        ct.data.images(tmp_path)
    assert len(ct.data.images(tmp_path, skip_damaged=True)) == 4


def test_bytes_behind_a_pictures_end_are_no_damage(tmp_path: Path) -> None:
    photographs(tmp_path, a=2, b=2)
    Image.new("RGB", (32, 32)).save(tmp_path / "a" / "x.jpg")
    with open(tmp_path / "a" / "x.jpg", "ab") as file:
        file.write(b"a camera's own notes" * 1000)
    assert len(ct.data.images(tmp_path)) == 5


def test_a_picture_is_turned_as_its_camera_says(tmp_path: Path) -> None:
    pixels = np.zeros((8, 16, 3), np.uint8)
    pixels[:, :8] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90° clockwise
    Image.fromarray(pixels).save(tmp_path / "turned.png", exif=exif)
    how = Description(kind="image", size=(16, 8), details={"crop": "squash"})
    seen = read_image(tmp_path / "turned.png", how)
    assert seen[:6].min() == 255 and seen[-6:].max() == 0


def test_16_bits_a_pixel_are_no_white(tmp_path: Path) -> None:
    """Microscopes, depth cameras and X-ray machines write such files."""
    photographs(tmp_path, a=2, b=2)
    grey = np.linspace(0, 65535, 64).reshape(8, 8)
    how = Description(kind="image", size=(8, 8), channels=1)
    for name in ("a/deep.png", "b/deep.tiff"):
        Image.fromarray(grey.astype(np.uint16)).save(tmp_path / name)
        np.testing.assert_array_equal(read_image(tmp_path / name, how)[..., 0], grey.astype(int) >> 8)
    assert len(ct.data.images(tmp_path)) == 6
    Image.fromarray((grey / 65535).astype(np.float32)).save(tmp_path / "a" / "share.tiff")
    Image.fromarray(grey.astype(np.int32)).save(tmp_path / "b" / "wide.tiff")
    with pytest.raises(
        ct.DataError, match=r"2 of 8 pictures .*share\.tiff' has 32 bits a pixel, expected 8 or 16"
    ):
        ct.data.images(tmp_path)


def test_pictures_are_cut_not_squashed_unless_asked(tmp_path: Path) -> None:
    pixels = np.zeros((10, 30, 3), np.uint8)
    pixels[:, :10] = 255  # white on the left, which the middle does not show
    Image.fromarray(pixels).save(tmp_path / "wide.png")

    def seen(crop: str) -> np.ndarray:
        return read_image(
            tmp_path / "wide.png", Description(kind="image", size=(10, 10), details={"crop": crop})
        )

    assert seen("center").max() == 0
    assert 0.2 < (seen("squash") > 128).mean() < 0.45
    assert seen("pad")[0].max() == 0 and seen("pad")[5, 0].max() == 255


def test_pixels_become_what_the_description_says() -> None:
    data = ct.data.images(SHAPES, offset=127.5, scale=127.5, crop="squash")
    how = data.describe(INPUT, None)
    array = data.open(INPUT, how)
    expected = (
        np.asarray(Image.open(data.items[0]).resize((32, 32), Image.Resampling.BILINEAR), np.float32) / 127.5
        - 1
    )
    np.testing.assert_allclose(array[0], expected, atol=1e-6)
    assert array.shape == (16, 32, 32, 3)
    assert how.range == "pixels -1…1"


def test_the_models_file_decides_unless_the_caller_does() -> None:
    known = Description(kind="image", mean=(1.0,), std=(2.0,))
    assert ct.data.images(SHAPES).describe(INPUT, known).mean == (1.0,)
    assert ct.data.images(SHAPES, scale=255).describe(INPUT, known).mean == (0.0,)


def test_variants_differ_but_are_the_same_at_every_access() -> None:
    data = ct.data.images(SHAPES, augment="all", scale=255)
    array = data.open(INPUT, data.describe(INPUT, None), variants=3, seed=5)
    assert len(array) == 48 and array.is_lasting
    np.testing.assert_array_equal(array[:6], array[np.arange(6)])
    assert not np.array_equal(array[0], array[1])
    live = data.open(INPUT, data.describe(INPUT, None), variants=-1, seed=5)
    first = live[:2]
    live.epoch = 1
    assert not live.is_lasting and not np.array_equal(first, live[:2])


def test_batches_are_decoded_ahead_in_their_order() -> None:
    data = ct.data.images(SHAPES, scale=255)
    array = data.open(INPUT, data.describe(INPUT, None))
    order = np.random.default_rng(0).permutation(16)
    found = list(Dataset([array], [data.targets()]).batches(5, order, start=1))
    assert [len(x[0]) for x, _ in found] == [5, 5, 1]
    np.testing.assert_array_equal(found[0][0][0], array[order[5:10]])
    np.testing.assert_array_equal(found[0][1][0], data.targets()[order[5:10]])


def test_a_model_that_takes_no_pictures_is_refused() -> None:
    mlp = ct.load(Path(__file__).parents[1] / "data" / "mlp.circle")
    with pytest.raises(ct.ConfigError, match="expected one for pictures"):
        ct.data.images(SHAPES).describe(mlp.module.main.inputs[0], None)


def test_a_folder_of_one_class_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ct.DataError, match="pictures only in 'a'"):
        ct.data.images(photographs(tmp_path, a=2))
    with pytest.raises(ct.DataError, match="is no folder"):
        ct.data.images(tmp_path / "nothing")


def test_integers_get_the_pixels_themselves() -> None:
    from circle_train.ir import DType, Quantization, Tensor, TensorType

    tensor = Tensor("x", TensorType(DType.INT8, (1, 32, 32, 3)), quantization=Quantization((0.5,), (-3,)))
    data = ct.data.images(SHAPES, crop="squash")
    how = replace(data.describe(tensor, None))
    expected = (
        np.asarray(Image.open(data.items[0]).resize((32, 32), Image.Resampling.BILINEAR), np.int16) - 128
    )
    np.testing.assert_array_equal(data.open(tensor, how)[0], expected)


def test_mixed_pictures_are_sums_of_two_and_so_are_their_labels() -> None:
    data = ct.data.images(SHAPES, augment="mixup")
    tensor = picture_net().module.main.inputs[0]
    how = replace(data.describe(tensor, None), mean=(0.0,), std=(255.0,))
    plain, mixed = data.open(tensor, how)[:], data.open(tensor, how, 2, seed=3)
    targets = data.targets(2, seed=3)
    assert len(mixed) == len(targets) == 2 * len(data)
    np.testing.assert_allclose(targets.sum(1), 1, rtol=1e-6)
    partner, share = mixture(5, len(data), 3)
    np.testing.assert_allclose(mixed[5], share * plain[2] + (1 - share) * plain[partner], atol=1e-5)
    assert targets[5, data.labels[2]] >= share - 1e-6
    np.testing.assert_array_equal(mixed[4:7], mixed[4:7])
    assert "mixup" not in ct.data.images(SHAPES, augment="all").augmentation
    found = ct.finetune(picture_net(), data, epochs=1, verbose=0, class_weights="balanced")
    assert np.isfinite(found.histories[0].history["loss"][0])


def test_a_cut_is_what_pillow_makes_of_the_same_part() -> None:
    small = np.random.default_rng(3).integers(0, 256, (30, 40, 3), np.uint8)
    pixels = np.asarray(Image.fromarray(small).resize((160, 120), Image.Resampling.BICUBIC))
    random, box = np.random.default_rng(8), []
    for size in pixels.shape[:2]:
        part = random.uniform(SMALLEST_CROP, 1) * size
        start = random.uniform(0, size - part)
        box.append((start, start + part))
    (top, bottom), (left, right) = box
    whole = Image.fromarray(pixels).resize(
        (160, 120), Image.Resampling.BILINEAR, box=(left, top, right, bottom)
    )
    cut = vary_image(pixels, ("crop",), np.random.default_rng(8))
    inner = np.s_[2:-2, 2:-2]  # Pillow's edges end at the box, ours at the picture's
    np.testing.assert_allclose(cut[inner], np.asarray(whole, np.float32)[inner], atol=1)


def test_a_scale_is_another_only_where_that_is_clearly_better(monkeypatch: pytest.MonkeyPatch) -> None:
    data = ct.data.images(SHAPES)
    for gains, mean in (([0.62, 0.7, 0.6, 0.2], (127.5,)), ([0.5, 0.7, 0.6, 0.2], (0.0,))):
        monkeypatch.setattr(look, "_separations", lambda *_, gains=gains: gains)
        assert look.settle(picture_net(), data, seed=0)[0].mean == mean


def test_a_small_picture_is_enlarged_as_sharp_as_can_be(tmp_path: Path) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (8, 8, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "small.png")
    found = read_image(tmp_path / "small.png", Description(kind="image", size=(56, 56)))
    sharp = Image.fromarray(pixels).resize((56, 56), Image.Resampling.LANCZOS)
    np.testing.assert_array_equal(found, np.asarray(sharp))
