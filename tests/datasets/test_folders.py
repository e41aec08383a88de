"""Folders of any number of files: their order, what does not count, and the memory that they take."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import circle_train as ct
from circle_train.data.folders.by_class import files_by_class
from circle_train.data.folders.listing import Listing


def test_files_come_in_the_order_of_their_paths(tmp_path: Path) -> None:
    names = [
        "b/2.jpg",
        "b/10.jpg",
        "a/deep/er/1.JPG",
        "a/deep.jpg",
        "a/ä ö.jpg",
        "a/.x.jpg",
        "a/__y/1.jpg",
        "a/n.txt",
    ]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "b" / "folder.jpg").mkdir()
    files, labels, classes = files_by_class(tmp_path, (".jpg",), "pictures")
    visible = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix.lower() == ".jpg"]
    expected = sorted(path for path in visible if not {".x.jpg", "__y"} & set(path.parts))
    assert list(files) == expected and len(expected) == 5
    assert classes == ("a", "b") and labels.tolist() == [0, 0, 0, 1, 1]
    assert list(files[3:]) == expected[3:] and files[-1] == expected[-1]
    assert list(files.take(np.array([4, 0]))) == [expected[4], expected[0]]


@pytest.mark.skipif(sys.platform != "linux", reason="names that are no text are Linux's")
def test_names_that_are_no_text_are_names(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        with open(os.fsencode(tmp_path / folder) + b"/\xff.jpg", "wb"):
            pass
    files, _, _ = files_by_class(tmp_path, (".jpg",), "pictures")
    assert all(file.exists() for file in files)


def test_a_link_that_leads_back_is_not_followed(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.jpg").touch()
    (tmp_path / "a" / "again").symlink_to(tmp_path, target_is_directory=True)
    files, _, _ = files_by_class(tmp_path, (".jpg",), "pictures")
    assert len(files) == 2


@pytest.mark.parametrize(
    "names, told",
    [
        (
            ["photos/cat/1.jpg", "photos/dog/1.jpg"],
            r"only in 'photos', where cat and dog lie; give '.*photos'",
        ),
        (["1.jpg", "2.jpg"], "holds 2 pictures beside each other; put those of each class into a folder"),
        (
            ["test/cat/1.jpg", "train/cat/1.jpg"],
            r"test and train, which are parts .* give one of them, '.*/train'",
        ),
        (
            ["cat/1.jpg", "dog/1.txt"],
            "only in 'cat'; expected a folder for each of two or more classes with .jpg",
        ),
        (["dog/1.txt"], "holds no pictures; expected a folder"),
    ],
)
def test_what_lies_there_instead_of_classes_is_said(tmp_path: Path, names: list[str], told: str) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(ct.DataError, match=told):
        files_by_class(tmp_path, (".jpg",), "pictures")


def test_photographs_in_other_formats_are_named_instead_of_left_out(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (8, 8)).save(tmp_path / name / "1.jfif", "JPEG")
    assert len(ct.data.images(tmp_path)) == 2
    (tmp_path / "a" / "IMG_1.HEIC").touch()
    with pytest.raises(
        ct.DataError, match=r"1 of 3 pictures .*IMG_1.HEIC' is .HEIC, which is not read; save it as"
    ):
        ct.data.images(tmp_path)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="nothing is closed to an administrator")
def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "b").chmod(0)
    with pytest.raises(ct.DataError, match=r"b' cannot be read \(Permission denied\)"):
        files_by_class(tmp_path, (".jpg",), "pictures")


def test_a_hundred_thousand_names_take_a_few_megabytes() -> None:
    listing = Listing(Path("photographs"), (f"class{n % 4}/{n:06}.jpg" for n in range(100_000)))
    held = sum(map(sys.getsizeof, (listing.block, listing.starts, listing.ends))) + listing.starts.base.nbytes  # type: ignore[union-attr]
    assert held < 5_000_000
    assert listing[99_999] == Path("photographs/class3/099999.jpg")
