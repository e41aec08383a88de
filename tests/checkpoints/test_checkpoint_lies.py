"""Checkpoints whose checksum is right and whose content is none: a sentence each, and nothing has changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onert_files import BY_NAME, everything, session_of, trained

import circle_train as ct
from circle_train.checkpoints import onert_file, safetensors
from circle_train.checkpoints.by_suffix import stored_config

GOOD = BY_NAME["mlp_softmax__cce_mean_adam"]
Arrays, Texts = dict[str, np.ndarray], dict[str, str]


def progress(**changes: Any) -> Callable[[Arrays, Texts], None]:
    def lie(arrays: Arrays, texts: Texts) -> None:
        texts["progress"] = json.dumps({**json.loads(texts["progress"]), **changes})

    return lie


def text(name: str, value: str) -> Callable[[Arrays, Texts], None]:
    return lambda arrays, texts: texts.update({name: value})


LIES: dict[str, tuple[Callable[[Arrays, Texts], Any], str]] = {
    "another format": (text("format", "theirs/2"), r"its format is 'theirs/2', expected"),
    "a name of no kind": (lambda a, t: a.update(w=np.ones(1, np.float32)), r"names like 'value/w'"),
    "progress that is no JSON": (text("progress", "{"), "its progress cannot be read"),
    "progress that is a list": (text("progress", "[]"), "its progress cannot be read"),
    "a counter below 0": (progress(step=-1), "its progress is"),
    "a counter that is no integer": (progress(epoch=1.5), "its progress is"),
    "passes of words": (progress(passes="a"), "its progress is"),
    "a counter beyond all counting": (progress(step=1 << 70), "its progress is"),
    "progress within progress": (text("progress", "[" * 100_000), "its progress cannot be read"),
    "a fit within fits": (text("fit", "[" * 100_000), "its fit cannot be read"),
    "properties within properties": (text("properties", "[" * 100_000), "its properties cannot be read"),
    "scales within scales": (text("rounding", "[" * 100_000), "the scales that it rounds to cannot be read"),
    "a learning rate that is no number": (progress(learning_rate="nan"), "its progress is"),
    "an infinite learning rate": (progress(learning_rate="inf"), "its progress is"),
    "a learning rate below 0": (progress(learning_rate="-0x1p-3"), "its progress is"),
    "a learning rate that is a number": (progress(learning_rate=0.5), "its progress cannot be read"),
    "properties that are no JSON": (text("properties", "{"), "its properties cannot be read"),
    "properties that are a list": (text("properties", "[1]"), "its properties are"),
    "properties of lists": (text("properties", '{"a": [1]}'), "its properties are"),
    "a fit of nothing": (text("fit", "{}"), "its fit cannot be read"),
    "scales of nothing": (text("rounding", "[]"), "the scales that it rounds to cannot be read"),
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("lies") / "a.safetensors"
    trained(GOOD, 1).save_checkpoint(path)
    return path.read_bytes()


@pytest.mark.parametrize("name", LIES)
def test_a_lie_is_told_by_its_name(name: str, written: bytes, tmp_path: Path) -> None:
    lie, message = LIES[name]
    arrays, texts = safetensors.decode(written, "a")
    lie(arrays, texts)
    path = tmp_path / "a.safetensors"
    path.write_bytes(safetensors.encode(arrays, texts))
    session = session_of(GOOD)
    before = everything(session)
    with pytest.raises(ct.CheckpointError, match=message):
        session.load_checkpoint(path)
    assert everything(session) == before


def framed(header: Any, payload: bytes = b"") -> bytes:
    content = json.dumps(header).encode()
    return safetensors.LENGTH.pack(len(content)) + content + payload


ENTRY = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
FRAMES: dict[str, tuple[bytes, str]] = {
    "a header that is a list": (framed([1]), "not a JSON object"),
    "metadata of numbers": (framed({"__metadata__": {"a": 1}}), "metadata are not strings"),
    "metadata that are a list": (framed({"__metadata__": []}), "metadata are not strings"),
    "bytes of nobody": (framed({"a": ENTRY}, bytes(8)), "4 bytes at its end belong to no array"),
    "an unknown type": (framed({"a": {**ENTRY, "dtype": "F8"}}, bytes(4)), "array 'a' is described by"),
    "an entry that is a number": (framed({"a": 1}), "array 'a' is described by 1"),
    "a size below 0": (framed({"a": {**ENTRY, "shape": [-1]}}, bytes(4)), "array 'a' is described by"),
    "a place below 0": (framed({"a": {**ENTRY, "data_offsets": [-4, 0]}}), "array 'a' is described by"),
    "a hole": (framed({"a": {**ENTRY, "data_offsets": [4, 8]}}, bytes(8)), "is said to lie at 4 to 8 of 8"),
}


@pytest.mark.parametrize("name", FRAMES)
def test_a_header_that_contradicts_itself_is_refused(name: str) -> None:
    data, message = FRAMES[name]
    with pytest.raises(ct.CheckpointError, match=message):
        safetensors.decode(data, "a.safetensors")


def test_settings_are_read_without_a_session(written: bytes, tmp_path: Path) -> None:
    """Of our own file all, of ONERT's the kind of optimizer, of settings that only Python can hold nothing."""
    ours, theirs, odd = (tmp_path / name for name in ("a.safetensors", "a.ckpt", "odd.safetensors"))
    session = trained(GOOD, 1)
    ours.write_bytes(written)
    session.save_checkpoint(theirs)
    arrays, texts = safetensors.decode(written, "a")
    odd.write_bytes(safetensors.encode(arrays, {**texts, "config": "TrainConfig(loss=<mine>)"}))
    found = stored_config(ours)
    assert found is not None and type(found.optimizer) is type(session.config.optimizer)
    found = stored_config(theirs)
    assert found is not None and type(found.optimizer) is ct.optimizers.Adam
    assert stored_config(odd) is None


# ONERT's form


def small(**changes: int) -> tuple[bytes, list[int]]:
    """One constant of eight bytes with Adam's moments; numbers of the header that lie."""
    slot = np.arange(8, dtype=np.uint8)
    raw = onert_file.encode(onert_file.OnertCheckpoint((slot,), ((slot,), (slot,)), 3))
    names = ("magic", "version", "unused", "first", "second", "footer", "count")
    head = dict(zip(names, onert_file.HEADER.unpack_from(raw), strict=True)) | changes
    return onert_file.HEADER.pack(*head.values()) + raw[onert_file.HEADER.size :], [8]


def test_a_checkpoint_of_nothing_is_the_shortest() -> None:
    raw = onert_file.encode(onert_file.OnertCheckpoint((), None, 3))
    assert len(raw) == onert_file.HEADER.size + onert_file.FOOTER.size
    assert onert_file.decode(raw, [], "x").step == 3
    with pytest.raises(ct.CheckpointError, match="bytes long, the shortest has"):
        onert_file.decode(raw[:-1], [], "x")


@pytest.mark.parametrize("first", [1, 8, onert_file.HEADER.size - 4, onert_file.HEADER.size])
def test_moments_do_not_lie_upon_the_header(first: int) -> None:
    """Nor upon the values: sections that begin early end too soon for what stands there."""
    raw, sizes = small(first=first)
    with pytest.raises(
        ct.CheckpointError, match=r"cannot hold the offsets|is said to start at|has \d+ bytes"
    ):
        onert_file.decode(raw, sizes, "x")
    assert onert_file.decode(*small(), "x").step == 3


@pytest.mark.parametrize("step", [onert_file.LIMIT + 1, 1 << 40])
def test_a_step_beyond_what_onert_counts_is_not_written(step: int) -> None:
    with pytest.raises(ct.CheckpointError, match="counts bytes and steps in 32 bits"):
        onert_file.encode(onert_file.OnertCheckpoint((np.zeros(4, np.uint8),), None, step))
