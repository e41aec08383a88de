"""Sounds, windows, tables and texts as labelled samples."""

from __future__ import annotations

import json
import wave
from pathlib import Path

import numpy as np
import pytest

import circle_train as ct
from circle_train.data.recordings import read_wave, resampled
from circle_train.data.unlabelled import origin_of
from circle_train.format.metadata.description import Description
from circle_train.ir import DType, Tensor, TensorType
from circle_train.ir.tensor_type import Array

RNG = np.random.default_rng(0)


def tensor(*shape: int, kind: DType = DType.FLOAT32) -> Tensor:
    found = Tensor("x", TensorType(kind, tuple(max(size, 1) for size in shape)))
    found.shape_signature = shape
    return found


def write_wave(path: Path, samples: Array, rate: int = 16_000, width: int = 2) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1 if samples.ndim == 1 else samples.shape[1])
        file.setsampwidth(width)
        file.setframerate(rate)
        whole = np.round(samples.reshape(-1) * (2.0 ** (8 * width - 1) - 1)).astype(np.int64)
        if width == 1:
            whole += 128
        file.writeframes(b"".join(int(n).to_bytes(width, "little", signed=width > 1) for n in whole))


def tone(hertz: float, rate: int = 16_000, seconds: float = 0.5) -> Array:
    return 0.5 * np.sin(2 * np.pi * hertz * np.arange(int(rate * seconds)) / rate)


def words(folder: Path) -> Path:
    for name, hertz in (("low", 300), ("high", 900)):
        for number in range(4):
            write_wave(folder / name / f"{number}.wav", tone(hertz + number))
    return folder


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_samples_of_every_width_are_the_same_sound(tmp_path: Path, width: int) -> None:
    sound = tone(440, seconds=0.02)
    write_wave(tmp_path / "a.wav", sound, width=width)
    found, rate = read_wave(tmp_path / "a.wav")
    assert rate == 16_000
    np.testing.assert_allclose(found, sound, atol=2.0 ** (2 - 8 * width) + 1e-6)


def test_channels_are_mixed(tmp_path: Path) -> None:
    left, right = tone(200, seconds=0.02), tone(700, seconds=0.02)
    write_wave(tmp_path / "a.wav", np.stack([left, right], 1))
    np.testing.assert_allclose(read_wave(tmp_path / "a.wav")[0], (left + right) / 2, atol=1e-4)


@pytest.mark.parametrize("rates", [(44_100, 16_000), (8_000, 16_000), (16_000, 16_000)])
def test_a_tone_keeps_its_pitch_at_another_rate(rates: tuple[int, int]) -> None:
    old, new = rates
    found = resampled(tone(440, old).astype(np.float32), old, new)
    assert len(found) == new // 2
    np.testing.assert_allclose(found[100:-100], tone(440, new)[100:-100], atol=0.01)


def test_recordings_become_inputs_of_samples(tmp_path: Path) -> None:
    data = ct.data.sounds(words(tmp_path))
    how = data.describe(tensor(-1, 16_000), None)
    array = data.open(tensor(-1, 16_000), how)
    assert (data.classes, how.sample_rate, array.shape) == (("high", "low"), 16_000, (8, 16_000))
    np.testing.assert_allclose(array[4][:8000], tone(300), atol=1e-4)
    assert not array[4][8000:].any()


def test_windows_of_one_recording_stay_together(tmp_path: Path) -> None:
    data = ct.data.sounds(words(tmp_path), seconds=0.1, validation=0.25)
    assert len(data) == 8 * 5
    train, held_out = data.parts(0)
    assert held_out is not None
    assert not {piece.path for piece in train.items} & {piece.path for piece in held_out.items}


def test_varied_sounds_stay_within_bounds_and_differ(tmp_path: Path) -> None:
    data = ct.data.sounds(words(tmp_path), augment="all")
    array = data.open(tensor(-1, 8000), data.describe(tensor(-1, 8000), None), variants=3)
    assert np.abs(array[:]).max() <= 1
    assert not np.array_equal(array[0], array[1])


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    words(tmp_path)
    (tmp_path / "low" / "x.wav").write_bytes(b"RIFF no")
    with pytest.raises(ct.DataError, match=r"x\.wav' cannot be read as a recording"):
        ct.data.sounds(tmp_path, seconds=1.0)
    (tmp_path / "low" / "x.wav").unlink()
    with pytest.raises(ct.ConfigError, match="seconds is 0"):
        ct.data.sounds(tmp_path, seconds=0)
    with pytest.raises(ct.ConfigError, match="batch × samples"):
        ct.data.sounds(tmp_path).describe(tensor(1, 40, 32), None)


def test_windows_of_an_archive_are_split_by_person(tmp_path: Path) -> None:
    x, person = RNG.normal(3, 2, (40, 16, 3)).astype(np.float32), np.repeat(np.arange(8), 5)
    np.savez(tmp_path / "w.npz", x=x, label=np.array(["walk", "sit"])[np.arange(40) % 2], person=person)
    data = ct.data.windows(tmp_path / "w.npz", group="person", validation=0.25)
    train, held_out = data.parts(0)
    assert held_out is not None and train.groups is not None and held_out.groups is not None
    assert data.classes == ("sit", "walk")
    assert len(set(held_out.groups)) == 2 and not set(held_out.groups) & set(train.groups)
    how = data.describe(tensor(-1, 16, 3), None)
    known = np.stack(train.items).reshape(-1, 3)
    np.testing.assert_allclose(how.mean, known.mean(0), rtol=1e-5)
    normal = train.open(tensor(-1, 16, 3), how)[:]
    np.testing.assert_allclose([normal.mean(), normal.std()], [0, 1], atol=1e-3)


def test_windows_of_a_table_hold_one_label_each(tmp_path: Path) -> None:
    rows = [f"{i},{2 * i},{'ab'[i // 10 % 2]}" for i in range(35)]
    (tmp_path / "w.csv").write_text("\n".join(["ax,ay,label", *rows]))
    data = ct.data.windows(tmp_path / "w.csv", length=4, step=3, normalise=False)
    assert data.columns == ("ax", "ay")
    assert [int(item[0, 0]) for item in data.items] == [0, 3, 6, 10, 13, 16, 20, 23, 26, 30]
    assert data.labels.tolist() == [0, 0, 0, 1, 1, 1, 0, 0, 0, 1]
    with pytest.raises(ct.ConfigError, match="length is None"):
        ct.data.windows(tmp_path / "w.csv")
    with pytest.raises(ct.DataError, match="no stretch of one label has 11 rows"):
        ct.data.windows(tmp_path / "w.csv", length=11)


def test_a_column_of_words_is_classes_and_one_of_fractions_values(tmp_path: Path) -> None:
    (tmp_path / "u.csv").write_text("a,b,kind\n" + "\n".join(f"{i},{i % 3},{'xy'[i % 2]}" for i in range(12)))
    data = ct.data.table(tmp_path / "u.csv", label="kind")
    assert (data.classes, data.scores, data.outputs, data.columns) == (("x", "y"), "softmax", 2, ("a", "b"))
    (tmp_path / "v.csv").write_text("a,b,price\n" + "\n".join(f"{i},{i % 3},{i / 4}" for i in range(12)))
    prices = ct.data.table(tmp_path / "v.csv", label="price")
    assert (prices.classes, prices.scores, prices.outputs) == ((), "values", 1)
    several = ct.data.table(tmp_path / "v.csv", label=["a", "price"])
    assert (several.scores, several.outputs) == ("values", 2)


def test_several_columns_of_zeros_and_ones_are_labels(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,red,big\n" + "\n".join(f"{i},{i % 2},{int(i > 5)}" for i in range(12)))
    data = ct.data.table(tmp_path / "t.csv", label=["red", "big"])
    assert (data.classes, data.scores) == (("red", "big"), "sigmoid")
    assert data.targets()[7].tolist() == [1, 1]


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "cannot be read as a table"),
        ("a,b\n", "there are no rows"),
        ("a,kind\n1,x\n2\n", "row 3 has other columns"),
        ("a,kind\nhello,x\n", "could not convert string to float"),
        ("a,b\n1,2\n", "no column 'kind', its columns are a, b"),
        ("a,kind\nnan,x\n1,y\n", "numbers that are none"),
    ],
)
def test_damaged_tables_are_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ct.DataError, match=message):
        ct.data.table(tmp_path / "t.csv", label="kind")


def test_a_table_trains_a_net_and_its_scale_is_exported(tmp_path: Path) -> None:
    x = RNG.normal(50, 20, (200, 6))
    lines = [",".join([*map(str, row), "up" if row[0] > 50 else "down"]) for row in x]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,c,d,e,f,trend", *lines]))
    data = ct.data.table(tmp_path / "t.csv", label="trend")
    net = Path(__file__).parents[1] / "data" / "mlp.circle"
    result = ct.finetune(net, data, verbose=0, trainable="all", learning_rate=0.05)
    assert result.metrics["accuracy"] >= 0.8
    result.export(tmp_path / "trend.circle")
    described = ct.load(tmp_path / "trend.circle").description
    assert described is not None and described.labels == ("down", "up")
    assert described.mean is not None and len(described.mean) == 6


def test_values_are_foreseen(tmp_path: Path) -> None:
    x = RNG.normal(size=(80, 6))
    lines = [",".join(map(str, [*row, row[0] - 0.5 * row[1]])) for row in x]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,c,d,e,f,y", *lines]))
    net = Path(__file__).parents[1] / "data" / "mlp.circle"
    result = ct.finetune(
        net,
        ct.data.table(tmp_path / "t.csv", label="y"),
        verbose=0,
        trainable="all",
        learning_rate=0.05,
        epochs=80,
    )
    assert result.metrics["mean_absolute_error"] < 0.6
    assert "mean absolute error" in str(result)


def test_texts_become_tokens_of_the_models_vocabulary(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    (tmp_path / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "film", "##s"])
    )
    (tmp_path / "t.csv").write_text("text,label\ngood films,pos\nbad film,neg\n")
    data = ct.data.text(tmp_path / "t.csv", tokenizer=tmp_path / "vocab.txt", validation=0.0)
    take = tensor(-1, 6, kind=DType.INT32)
    array = data.open(take, data.describe(take, None))
    assert array[:].tolist() == [[2, 4, 6, 7, 3, 0], [2, 5, 6, 3, 0, 0]]
    assert array.dtype == np.int32 and data.classes == ("neg", "pos")
    (tmp_path / "bad.json").write_text(json.dumps({"model": 3}))
    with pytest.raises(ct.DataError, match="cannot be read as a tokenizer"):
        ct.data.text(tmp_path / "t.csv", tokenizer=tmp_path / "bad.json")


def test_damaged_recordings_are_named_together_or_skipped(tmp_path: Path) -> None:
    for name in ("yes", "no"):
        (tmp_path / name).mkdir()
        for i in range(3):
            write_wave(tmp_path / name / f"{i}.wav", np.zeros(160))
    for bad in ("yes/0.wav", "no/1.wav"):
        (tmp_path / bad).write_bytes(b"RIFF of nothing")
    with pytest.raises(
        ct.DataError, match=r"2 of 6 recordings cannot be read.*no/1\.wav.*yes/0\.wav.*skip_damaged"
    ):
        ct.data.sounds(tmp_path)
    data = ct.data.sounds(tmp_path, skip_damaged=True)
    assert len(data) == 4 and len(data.skipped) == 2


@pytest.mark.parametrize(
    "said",
    [{"columns": [1, 2]}, {"columns": "ab"}, {"targets": 3}, {"group": 3}, {"length": 0}, {"length": True}],
    ids=str,
)
def test_what_a_file_says_of_rows_is_judged(said: dict) -> None:
    with pytest.raises(ct.ConfigError, match="says of its samples is damaged; give arrays"):
        origin_of(Description(details=said))
