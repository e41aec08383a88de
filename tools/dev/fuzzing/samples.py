"""What the fuzzer feeds where samples and what is said of them are read: recordings, texts, tables, descriptions, records."""

from __future__ import annotations

import io
import json
import struct
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import networks
import numpy as np
from picture_net import picture_net

import circle_train as ct
from circle_train import format
from circle_train.data.labelled import Labelled
from circle_train.finetuning.answers import answers
from circle_train.format.flatbuffer.decode import decode
from circle_train.format.flatbuffer.encode import encode
from circle_train.format.metadata import description
from circle_train.format.metadata.description import Description
from circle_train.format.metadata.training_info import find, put
from circle_train.ir import DType, Tensor, TensorType
from circle_train.session.shipping.ship import ship
from fuzzing.damage import Rng, changed_field, damaged_bytes, damaged_json, damaged_tree, pick
from fuzzing.models import Large, guard_size, ones, refuse_large


def opened(data: Labelled, *shape: int, kind: DType = DType.FLOAT32) -> None:
    """All samples for an input of this shape."""
    tensor = Tensor("x", TensorType(kind, (1, *shape)))
    data.counts() if data.classes else None
    data.parts(0)
    data.open(tensor, data.describe(tensor, None))[:]
    data.targets()


# Recordings


def recording(width: int, channels: int, rate: int) -> bytes:
    samples = np.random.default_rng(width).bytes(60 * width * channels)
    block = width * channels
    head = struct.pack("<IHHIIHH", 16, 1, channels, rate, rate * block, block, 8 * width)
    body = b"WAVEfmt " + head + b"data" + struct.pack("<I", len(samples)) + samples
    return b"RIFF" + struct.pack("<I", len(body)) + body


@cache
def recordings() -> list[bytes]:
    return [
        recording(w, channels, rate) for w in (1, 2, 3, 4) for channels in (1, 2) for rate in (8000, 44_100)
    ]


def run_sound(raw: bytes, rng: Rng, folder: Path) -> None:
    for name, content in (("low", raw), ("high", recordings()[0])):
        (folder / name).mkdir()
        (folder / name / "0.wav").write_bytes(content)
    opened(ct.data.sounds(folder, seconds=pick(rng, (None, 0.01))), 800)


# Texts


@cache
def tokenizers() -> list[str]:
    words = {
        word: i
        for i, word in enumerate(("[UNK]", "[CLS]", "[SEP]", "[PAD]", "good", "bad", "a", "b", "##a", "ab"))
    }
    empty = dict.fromkeys(
        ("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder")
    )
    template = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [],
        "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [1], "tokens": ["[CLS]"]}},
    }
    full = {
        "truncation": {"max_length": 6, "stride": 1, "strategy": "LongestFirst", "direction": "Right"},
        "padding": {
            "strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": 4, "pad_id": 3, "pad_type_id": 0,
            "pad_token": "[PAD]",
        },
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "NFKC"},
                {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
                 "lowercase": True},
                {"type": "Replace", "pattern": {"Regex": "x+"}, "content": "a"},
            ],
        },
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": template,
    }  # fmt: skip
    models = [
        {"type": "WordLevel", "vocab": words, "unk_token": "[UNK]"},
        {"type": "WordPiece", "vocab": words, "unk_token": "[UNK]", "continuing_subword_prefix": "##",
         "max_input_chars_per_word": 100},
        {"type": "BPE", "vocab": words, "merges": [["a", "b"]], "unk_token": "[UNK]",
         "byte_fallback": False, "dropout": None},
        {"type": "Unigram", "vocab": [[word, -float(i)] for word, i in words.items()], "unk_id": 0,
         "byte_fallback": False},
    ]  # fmt: skip
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [{"id": 20, "content": "<x>", "special": True, **flags}]
    return [
        json.dumps({"version": "1.0", "added_tokens": tokens, **settings, "model": model})
        for model in models
        for settings, tokens in ((empty, []), (full, added))
    ]


def run_text(text: str, rng: Rng, folder: Path) -> None:
    for name, content in (("ham", "good a\n"), ("spam", "bad <x> xx ab été " * 3)):
        (folder / name).mkdir()
        (folder / name / "0.txt").write_text(content, encoding="utf-8")
    path = folder / "tokenizer.json"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    opened(ct.data.text(folder, tokenizer=path, length=8), 8, kind=DType.INT32)


# Tables and windows


@cache
def tables() -> list[tuple[str, bytes]]:
    lines = [f"{i},{i / 2},{word},p{i % 3}" for i, word in enumerate(("cat", "dog") * 6)]
    numbers = [f"{i},{i / 2},{i % 2},{i % 3}" for i in range(12)]
    found = [("x.csv", "\n".join(["a,b,label,who", *rows]).encode()) for rows in (lines, numbers)]
    x, who = np.arange(48, dtype=np.float32).reshape(12, 2, 2), np.arange(12) % 3
    for labels in (
        np.arange(12) % 2,
        np.array(["cat", "dog"] * 6),
        np.eye(12, 3),
        np.array([b"a", b"b"] * 6),
    ):
        raw = io.BytesIO()
        np.savez(raw, x=x, label=labels, who=who)
        found.append(("x.npz", raw.getvalue()))
    return found


def run_table(case: tuple[str, bytes], rng: Rng, folder: Path) -> None:
    path = folder / case[0]
    path.write_bytes(case[1])
    group = pick(rng, (None, "who"))
    if path.suffix == ".npz":
        opened(ct.data.windows(path, group=group), 2, 2)
    elif rng.random() < 0.5:
        opened(ct.data.windows(path, group=group, columns=["a", "b"], length=2), 2, 2)
    else:
        opened(ct.data.table(path, label=pick(rng, ("label", ["a", "b"])), group=group), 2)


# What a model's file says of samples


@cache
def described() -> list[bytes]:
    """Models that say how they read pictures, texts, windows and rows."""
    labels = ("ant", "bee", "cat", "dog", "elk")
    rows = {"columns": ["a", "b", "c", "d", "e", "f"], "targets": ["label"], "group": "who"}
    said = [
        (networks.cnn(), Description("image", size=(6, 6), mean=(0.0,), std=(255.0,), labels=labels)),
        (picture_net(), Description("image", mean=(1.0,) * 3, std=(2.0,) * 3, details={"crop": "pad"})),
        (picture_net(), Description("audio", sample_rate=8000, scores="sigmoid", labels=labels)),
        (networks.mlp(), Description("features", mean=(0.0,) * 6, std=(1.0,) * 6, details=rows, labels=labels[:4])),
        (networks.mlp(), Description("features", scores="values", details={**rows, "length": 1})),
        (networks.mlp(), Description("text", details={"tokens": 6})),
    ]  # fmt: skip
    return [format.write(model.described(one).module) for model, one in said]


def damaged_description(raw: bytes, rng: Rng) -> bytes:
    """What it says in JSON, what it says in TFLite's words, or the files behind it."""
    module = format.read(raw)
    ours, theirs = find(module, description.OURS), find(module, description.ENTRY)
    kind = int(rng.integers(3))
    if kind == 0 and ours is not None:
        return format.write(
            put(module, description.OURS, damaged_json(ours.decode(), rng).encode("utf-8", "replace"))
        )
    if kind == 1 and theirs is not None:
        tables = damaged_tree(decode(theirs, "ModelMetadata", description.IDENTIFIER), rng, changed_field)
        with suppress(
            ct.CircleTrainError, KeyError, TypeError, ValueError, AttributeError, OverflowError, struct.error
        ):
            theirs = encode("ModelMetadata", tables, description.IDENTIFIER)
        return format.write(put(put(module, description.OURS, None), description.ENTRY, theirs))
    start = raw.rfind(b"PK\x03\x04")
    whole = format.write(put(module, description.OURS, None))
    return whole if start < 0 else whole[: whole.rfind(b"PK\x03\x04")] + damaged_bytes(raw[start:], rng)


def run_described(raw: bytes, rng: Rng, folder: Path) -> None:
    """Shown, asked for answers, described anew, written and read."""
    from PIL import Image

    model = ct.load(raw)
    Image.new("RGB", (7, 5), "red").save(folder / "a.png")
    (folder / "a.wav").write_bytes(recordings()[3])
    header = ["a,b,c,d,e,f,label,who", "1,2,3,4,5,6,x,y"]
    (folder / "a.csv").write_text("\n".join(header))
    model.save(folder / "again.tflite")
    str(model.description)
    refusals: list[ct.CircleTrainError] = []
    for suffix in ("png", "wav", "csv"):
        try:
            [answer.best() for answer in answers(model, [folder / f"a.{suffix}"])]
        except ct.CircleTrainError as error:
            refusals.append(error)
    with suppress(ct.CircleTrainError):
        model.with_head(["x", "y"]).save(folder / "new.tflite")
        ct.load(folder / "new.tflite").labels  # noqa: B018 -- reading is what is tried
    if len(refusals) == 3:  # each model reads one of them at most
        raise refusals[-1]


# Integers


def run_quantized(raw: bytes, rng: Rng, folder: Path) -> None:
    """A damaged model of floats, written in integers and run."""
    model = ct.load(raw)
    scheme = pick(rng, ("int8", "int8", "int16x8", "dynamic", "float16"))
    inputs = [np.repeat(ones(tensor, rng), 2, axis=0) for tensor in model.module.main.inputs if tensor.shape]
    guard_size(inputs)
    if len(inputs) != len(model.module.main.inputs):
        raise Large
    with suppress(ct.CircleTrainError):
        refuse_large(ct.TrainSession(model, ct.TrainConfig(loss="mse", batch_size=2), threads=1))
    calibration: Any = inputs if len(inputs) > 1 else inputs[0] if inputs else None
    ship(model, folder / "q.tflite", ct.Int8(calibration=calibration, scheme=scheme), threads=1)
    ct.InferenceSession(ct.load(folder / "q.tflite"), threads=1)(*(x[:1] for x in inputs))
