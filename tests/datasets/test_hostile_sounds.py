"""Recordings and vocabularies that are damaged, or made to do harm."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

import circle_train as ct
from circle_train.data.recordings import read_wave
from circle_train.data.texts.tokenizer import GROWTH, Tokenizer

# Recordings


def recording(path: Path, width: int = 2, channels: int = 1, size: int = 600) -> None:
    block = width * channels
    head = struct.pack("<IHHIIHH", 16, 1, channels, 8000, 8000 * block, block, 8 * width)
    path.parent.mkdir(parents=True, exist_ok=True)
    samples = struct.pack("<I", size) + bytes(size)
    path.write_bytes(b"RIFF" + struct.pack("<I", 36 + size) + b"WAVEfmt " + head + b"data" + samples)


@pytest.mark.parametrize("width", [5, 8, 9, 200])
def test_samples_of_odd_widths_are_no_recording(tmp_path: Path, width: int) -> None:
    recording(tmp_path / "low" / "0.wav")
    recording(tmp_path / "high" / "0.wav", width)
    with pytest.raises(ct.DataError, match=rf"samples of {width} bytes"):
        ct.data.sounds(tmp_path)


def test_a_recording_that_ends_within_a_sample_is_read_up_to_there(tmp_path: Path) -> None:
    recording(tmp_path / "0.wav", width=4, size=600)
    (tmp_path / "0.wav").write_bytes((tmp_path / "0.wav").read_bytes()[:-3])
    assert len(read_wave(tmp_path / "0.wav")[0]) == 149


def test_a_recording_has_no_more_windows_than_bytes(tmp_path: Path) -> None:
    """644 bytes that said to be an hour of sound were half a million windows of silence, each of them decoded."""
    for name in ("low", "high"):
        recording(tmp_path / name / "0.wav", size=600)
    raw = bytearray((tmp_path / "low" / "0.wav").read_bytes())
    raw[40:44] = (8000 * 2 * 3600).to_bytes(4, "little")
    (tmp_path / "low" / "0.wav").write_bytes(raw)
    assert len(ct.data.sounds(tmp_path, seconds=0.01)) < 10


def test_a_window_of_a_recording_holds_a_sample(tmp_path: Path) -> None:
    """164 bytes that say 1 Hz last a minute: as windows of a hundredth they took seconds of work."""
    for name in ("low", "high"):
        recording(tmp_path / name / "0.wav", size=120)
    raw = bytearray((tmp_path / "low" / "0.wav").read_bytes())
    struct.pack_into("<I", raw, 24, 1)
    (tmp_path / "low" / "0.wav").write_bytes(raw)
    with pytest.raises(ct.DataError, match=r"1 samples a second, of which 0\.01 seconds hold none"):
        ct.data.sounds(tmp_path, seconds=0.01)
    assert len(ct.data.sounds(tmp_path, seconds=1).items) < 130


def test_a_part_of_a_recording_that_reaches_beyond_it_is_damage(tmp_path: Path) -> None:
    """The package's own reader moves by what it is told and raises a bare RuntimeError."""
    recording(tmp_path / "0.wav")
    raw = bytearray((tmp_path / "0.wav").read_bytes())
    raw[4:8] = (44).to_bytes(4, "little")
    (tmp_path / "0.wav").write_bytes(raw)
    with pytest.raises(ct.DataError, match="cannot be read as a recording"):
        read_wave(tmp_path / "0.wav", 0.03)


# Texts


def vocabulary(folder: Path, **changes: Any) -> Path:
    words = {"[UNK]": 0, "good": 1, "bad": 2}
    said = {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"}} | dict.fromkeys(
        ("truncation", "padding", "normalizer", "post_processor", "decoder")
    )
    model = {"type": "WordLevel", "vocab": words, "unk_token": "[UNK]"}
    (folder / "tokenizer.json").write_text(json.dumps(said | {"model": model} | changes))
    return folder / "tokenizer.json"


PADDING: dict[str, Any] = {
    "strategy": "BatchLongest",
    "direction": "Right",
    "pad_to_multiple_of": None,
    "pad_id": 0,
    "pad_type_id": 0,
    "pad_token": "",
}

REPLACED = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 9}

CLS = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}],
    "pair": [],
    "special_tokens": {},
}


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"padding": PADDING | {"strategy": {"Fixed": 1 << 60}}}, "padding is 1,152,921,504,606,846,976"),
        ({"padding": PADDING | {"pad_to_multiple_of": 1 << 62}}, "padding is 4,611,686,018,427,387,904"),
        ({"normalizer": {"type": "Sequence", "normalizers": [REPLACED] * 9}}, f"at most {GROWTH}"),
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA/////w=="}}, "is cut off"),
        ({"model": {"type": "WordPiece", "max_input_chars_per_word": 1 << 40}}, "max_input_chars_per_word is"),
        ({"post_processor": CLS}, "does not take a text"),
        ({"model": {"type": "WordLevel", "vocab": {"good": 1}, "unk_token": "[X]"}}, "does not take a text .*UNK"),
        ({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a a"]}}, "cannot be read as a tokenizer"),
        ({"model": [1]}, "cannot be read as a tokenizer"),
    ],
)  # fmt: skip
def test_a_tokenizer_that_would_end_the_process_is_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    """The package aborts where memory is not to be had, and what its panics raise is no Exception."""
    pytest.importorskip("tokenizers")
    with pytest.raises(ct.DataError, match=message):
        Tokenizer(vocabulary(tmp_path, **changes))("good a bad thing")


def test_a_vocabulary_without_a_word_for_others_is_refused_where_it_lacks(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    (tmp_path / "vocab.txt").write_text("[CLS]\n[SEP]\ngood\n")
    assert Tokenizer(tmp_path / "vocab.txt")("good") == [0, 2, 1]
    with pytest.raises(ct.DataError, match=r"does not take a text .*UNK"):
        Tokenizer(tmp_path / "vocab.txt")("bad")
