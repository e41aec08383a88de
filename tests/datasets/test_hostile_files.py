"""Data that somebody made on purpose: pictures, recordings, texts, tables and archives, and what models say of samples."""

from __future__ import annotations

import gzip
import io
import json
import os
import struct
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from picture_net import picture_net

import circle_train as ct
from circle_train.cli.main import main
from circle_train.data import pictures, stored
from circle_train.data.files import read_csv, read_idx
from circle_train.data.lazy import normalised
from circle_train.data.prepare import Preparation, Source, prepare
from circle_train.format.metadata.description import OURS, Description
from circle_train.format.metadata.training_info import put

LETTER = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n%%EOF\n"


def picture(path: Path) -> Path:
    image = pytest.importorskip("PIL.Image")
    path.parent.mkdir(parents=True, exist_ok=True)
    image.new("RGB", (9, 9)).save(path)
    return path


# Pictures


@pytest.mark.skipif(os.name != "posix", reason="the stand-in for Ghostscript is a shell script")
def test_a_picture_starts_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow hands PostScript to Ghostscript, whatever the file's name ends in."""
    program = tmp_path / "bin" / "gs"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch '{tmp_path}/started'\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    folder = picture(tmp_path / "photos" / "cat" / "0.png").parents[1]
    (picture(folder / "dog" / "0.png").parent / "1.png").write_bytes(LETTER)
    with pytest.raises(ct.DataError, match=r"1 of 3 pictures cannot be read: .*1\.png"):
        ct.data.images(folder)
    assert not (tmp_path / "started").exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
def test_a_picture_of_too_many_pixels_is_refused_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = picture(tmp_path / "cat" / "0.png").parents[1]
    picture(folder / "dog" / "0.png")
    assert len(ct.data.images(folder)) == 2
    monkeypatch.setattr(pictures, "LARGEST", 80)
    with pytest.raises(ct.DataError, match="has 9×9 pixels, expected at most 80"):
        ct.data.images(folder)


class Payload:
    """What a pickle does when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("kind", ["npy", "npz", "windows"])
def test_nothing_in_an_array_file_is_executed(kind: str, tmp_path: Path) -> None:
    objects = np.array([Payload(tmp_path / "executed")] * 4, object)
    np.save(tmp_path / "x.npy", objects, allow_pickle=True)
    np.savez(tmp_path / "x.npz", x=objects, y=np.zeros((4, 5), np.float32))
    with pytest.raises(ct.DataError):
        if kind == "windows":
            ct.data.windows(tmp_path / "x.npz")
        else:
            stored.read(tmp_path / f"x.{kind}", [])
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_nothing_is_executed_where_data_are_prepared(kind: str, tmp_path: Path) -> None:
    objects = np.array([Payload(tmp_path / "executed")] * 4, object)
    np.save(tmp_path / "x.npy", objects, allow_pickle=True)
    np.savez(tmp_path / "x.npz", x=objects, y=np.zeros((4, 5), np.float32))
    assert main(["data", str(tmp_path / f"x.{kind}"), "--out", str(tmp_path / "made")]) == 1
    assert not (tmp_path / "executed").exists()


def test_a_picture_of_endless_scans_is_refused(tmp_path: Path) -> None:
    """A third of a megabyte took six seconds, and a megabyte three times as long: each scan goes over all pixels."""
    image = pytest.importorskip("PIL.Image")
    content = io.BytesIO()
    image.new("L", (64, 64), 128).save(content, "JPEG", progressive=True)
    raw = content.getvalue()
    scan = raw[raw.rindex(b"\xff\xda") : -2]
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "good.jpg").write_bytes(raw)
    assert len(ct.data.images(tmp_path, validation=0)) == 2
    (tmp_path / "a" / "bad.jpg").write_bytes(raw[:-2] + scan * 100 + raw[-2:])
    with pytest.raises(ct.DataError, match=r"is made of \d+ scans, expected at most 64"):
        ct.data.images(tmp_path, validation=0)


def test_a_pipe_among_pictures_is_not_waited_for(tmp_path: Path) -> None:
    folder = picture(tmp_path / "cat" / "0.png").parents[1]
    os.mkfifo(picture(folder / "dog" / "0.png").parent / "1.png")
    assert len(ct.data.images(folder)) == 2


# Tables and archives


@pytest.fixture
def little_memory() -> Any:
    """Two gigabytes more than the process has."""
    if not Path("/proc/self/statm").exists():
        pytest.skip("what the process has is not known")
    resource = pytest.importorskip("resource")
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size + (2 << 30), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.usefixtures("little_memory")
def test_one_long_word_does_not_make_all_words_long(tmp_path: Path) -> None:
    """500 kB of a table, of which an array of texts would take 40 GB."""
    path = tmp_path / "x.csv"
    path.write_text("a,label,group\n" + f"1,{'x' * 100_000},{'y' * 100_000}\n" + "2,b,c\n3,a,d\n" * 50_000)
    data = ct.data.table(path, label="label", columns=["a"], group="group")
    assert data.classes[:2] == ("a", "b") and data.labels[:3].tolist() == [2, 1, 0]
    path.write_text("a,label\n" + f"1,{'x' * 100_000}\n" + "2,b\n3,a\n" * 50_000)
    numbers, labels, names = read_csv(path, "label")
    assert numbers.shape == (100_001, 1) and labels is not None
    assert labels[:3].tolist() == [2, 1, 0] and names[:2] == ["a", "b"]


def test_what_unpacks_to_more_than_there_is_is_refused_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 kB each."""
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros((50, 1 << 19), np.float32), y=np.zeros(50))
    head = b"\0\0\x08\x02" + struct.pack(">2I", 100, 1 << 20)
    (tmp_path / "x.gz").write_bytes(gzip.compress(head + bytes(100 << 20)))
    assert ct.data.windows(tmp_path / "x.npz", normalise=False).items[0].shape == (1 << 19,)
    assert read_idx(tmp_path / "x.gz").shape == (100, 1 << 20)
    monkeypatch.setattr(stored, "available_bytes", lambda: 70 << 20)
    with pytest.raises(
        ct.DataError, match=r"'x' in the archive unpacks to 104,857,\d+ bytes, 73,400,320 are left"
    ):
        ct.data.windows(tmp_path / "x.npz")
    with pytest.raises(ct.DataError, match=r"x\.gz' unpacks to 104,857,\d+ bytes"):
        read_idx(tmp_path / "x.gz")


ROWS = np.zeros((3, 2), np.float32)


@pytest.mark.parametrize(
    "arrays, message",
    [
        ({"x": np.float32(1), "y": np.float32(1)}, r"samples have shape \(\)"),
        ({"x": np.zeros(3), "y": np.zeros(3)}, r"samples have shape \(3,\)"),
        ({"x": np.zeros((3, 0)), "y": np.zeros(3)}, r"samples have shape \(3, 0\)"),
        ({"x": np.full((3, 2), 1e300), "y": np.zeros(3)}, "expected finite numbers"),
        ({"x": ROWS, "y": np.zeros((3, 2, 2))}, "labels hold float64 of shape"),
        ({"x": ROWS, "y": np.zeros(3, complex)}, "labels hold complex128"),
        ({"x": ROWS, "y": np.zeros(3, "M8[s]")}, "labels hold datetime64"),
        ({"x": ROWS, "y": np.zeros(3, "V4")}, "labels hold "),
        ({"x": ROWS, "y": np.array([1e300, 0, 1])}, "labels reach 1e"),
        ({"x": ROWS, "y": np.zeros(3), "who": np.zeros(7)}, "3 samples and 7 groups"),
        ({"x": ROWS, "y": np.zeros(3), "who": np.float32(0)}, "groups hold float32"),
    ],
)
def test_arrays_that_are_no_samples_are_refused(tmp_path: Path, arrays: Any, message: str) -> None:
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(ct.DataError, match=message):
        ct.data.windows(tmp_path / "x.npz", group="who" if "who" in arrays else None)


@pytest.mark.parametrize(
    "label, message",
    [
        (np.nan, "the largest is nan"),
        (np.inf, "the largest is inf"),
        (2**31 - 1, "go up to 2147483647"),
        (2**62, "go up to 4.6"),
        (1e300, "go up to 1e"),
        (0.5, "label 0.5 at position 1"),
    ],
)
def test_rows_of_classes_are_written_of_classes_alone(tmp_path: Path, label: float, message: str) -> None:
    """The largest label says how long they are: one of 2³¹ - 1 made a file of 17 GB."""
    with pytest.raises(ct.DataError, match=message):
        prepare(Source(ROWS[:2], np.array([0, label])), Preparation(classes=0), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_words_of_bytes_are_words(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=ROWS, y=np.array([b"cat", b"dog", b"cat"]))
    data = ct.data.windows(tmp_path / "x.npz")
    assert data.classes == ("cat", "dog") and data.labels.tolist() == [0, 1, 0]


# What a model's file says of samples

SAID = asdict(Description(kind="image", size=(8, 8), mean=(0.0,), std=(1.0,), labels=("a", "b")))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"kind": "bogus"}, "kind is 'bogus'"),
        ({"kind": [1]}, r"kind is \[1\]"),
        ({"size": [8]}, r"size is \(8,\)"),
        ({"size": [-1, 8]}, "size is"),
        ({"size": [1 << 30, 8]}, "size is"),
        ({"size": ["8", "8"]}, "size is"),
        ({"channels": 0}, "channels is 0"),
        ({"channels": True}, "channels is True"),
        ({"sample_rate": -5}, "sample_rate is -5"),
        ({"sample_rate": 1 << 40}, "sample_rate is"),
        ({"mean": ["x"]}, "mean is"),
        ({"mean": [float("nan")]}, "mean is"),
        ({"mean": []}, "mean is"),
        ({"std": [0.0]}, "std is"),
        ({"std": [1.0, 1.0]}, "std is"),
        ({"labels": [{}, []]}, "labels is"),
        ({"labels": ["x"] * 100_001}, "labels is"),
        ({"scores": [1]}, "scores is"),
        ({"details": {"tokens": 1 << 50}}, "details is"),
        ({"details": {"crop": [1]}}, "details is"),
        ({"details": [1]}, "is damaged"),
        ({"details": "x"}, "is damaged"),
        ({"surplus": 1}, "is damaged"),
    ],
)
def test_what_no_sample_can_be_made_of_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    raw = json.dumps(SAID | changes).encode()
    with pytest.raises(ct.ModelError, match=rf"metadata '{OURS}'.*{message}|metadata '{OURS}' {message}"):
        _ = ct.Model(put(picture_net().module, OURS, raw)).description


def test_other_programs_say_no_more_than_can_be_made() -> None:
    """TFLite's metadata hold 32 bits for what becomes an array's size."""
    vast = picture_net().described(Description(kind="audio", sample_rate=1 << 31))
    with pytest.raises(ct.ModelError, match=r"metadata 'TFLITE_METADATA': sample_rate is 2147483648"):
        _ = ct.Model(put(vast.module, OURS, None)).description


def test_as_many_means_as_channels_or_one() -> None:
    how = Description(kind="image", mean=(0.0,) * 7, std=(1.0,) * 7)
    with pytest.raises(ct.DataError, match="normalised by 7 numbers, but have 3 channels"):
        normalised(np.zeros((8, 8, 3), np.uint8), how)
    three = replace(how, mean=(1.0,) * 3, std=(2.0,) * 3)
    np.testing.assert_array_equal(normalised(np.full((1, 1, 3), 5, np.uint8), three), np.full((1, 1, 3), 2.0))
