"""Data in files of arrays, tables and images."""

from __future__ import annotations

import gzip
import io
import struct
import zipfile
from contextlib import suppress
from functools import cache
from pathlib import Path

import networks
import numpy as np

import circle_train as ct
from fuzzing.damage import Rng, damaged_bytes, pick
from fuzzing.models import kept


@cache
def data_files() -> list[tuple[str, bytes]]:
    x = np.random.default_rng(0).normal(size=(6, 6)).astype(np.float32)
    found: list[tuple[str, bytes]] = []
    for dtype in ("f4", "f8", "i2", "u1", "?", "f2"):
        raw = io.BytesIO()
        np.save(raw, x.astype(dtype))
        found.append(("x.npy", raw.getvalue()))
    raw = io.BytesIO()
    np.savez(raw, x=x, y=x[:, :4])
    found.append(("x.npz", raw.getvalue()))
    raw = io.BytesIO()
    np.savez_compressed(raw, x=x, y=x[:, :4])
    found.append(("x.npz", raw.getvalue()))
    idx = bytes([0, 0, 13, 2]) + struct.pack(">2I", 6, 6) + x.astype(">f4").tobytes()
    found += [("x.idx", idx), ("x.gz", gzip.compress(idx, mtime=0)), ("x.bin", x.tobytes())]
    rows = ["a,b,c,d,e,label", *(",".join(f"{v:.3f}" for v in row[:5]) + ",cat" for row in x)]
    found += [
        ("x.csv", "\n".join(rows).encode()),
        ("x.csv", "\n".join(r.rpartition(",")[0] for r in rows[1:]).encode()),
    ]
    return found + [(f"x{path.suffix}", path.read_bytes()) for path in kept("data")]


def damaged_data(seed: tuple[str, bytes], rng: Rng) -> tuple[str, bytes]:
    name, raw = seed
    if name.endswith(".npy") and rng.random() < 0.5:  # the header is text
        end = raw.index(b"\n")
        words = (
            b"-1",
            b"99999999999",
            b"0",
            b"'O'",
            b"'|S0'",
            b"'<c8'",
            b"True",
            b"()",
            b"(6,",
            b"'<M8[s]'",
            b"[",
            b"'V0'",
        )
        place = int(rng.integers(10, end))
        word = pick(rng, words)
        return name, raw[:place] + word + raw[place + len(word) :]
    if name.endswith(".npz") and rng.random() < 0.5:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            inner = {entry: archive.read(entry) for entry in archive.namelist()}
        chosen = pick(rng, sorted(inner))
        inner[chosen] = damaged_data((chosen, inner[chosen]), rng)[1]
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
            for entry, content in inner.items():
                archive.writestr(zipfile.ZipInfo(entry), content)
        return name, made.getvalue()
    if name.endswith(".gz") and rng.random() < 0.6:
        return name, gzip.compress(damaged_bytes(gzip.decompress(raw), rng), mtime=0)
    return name, damaged_bytes(raw, rng)


def run_data(case: tuple[str, bytes], rng: Rng, folder: Path) -> None:
    """As a training's input, and through the command that makes data files."""
    from circle_train.data.prepare import Preparation, open_source, prepare

    name, raw = case
    path = folder / name
    path.write_bytes(raw)
    refusal: ct.CircleTrainError | None = None
    session = ct.TrainSession(networks.mlp(), ct.TrainConfig(loss="mse", batch_size=4), threads=1)
    with suppress(ct.CircleTrainError):
        session.fit(path, np.zeros((6, 4), np.float32), epochs=1, verbose=0)
    with suppress(ct.CircleTrainError):
        session.predict(path)
    try:
        label = pick(rng, (None, "label", -1)) if name.endswith(".csv") else None
        source = open_source(path, None, label)
        prepare(source, Preparation(classes=pick(rng, (None, 0, 4)), seed=1), folder / "out")
    except ct.CircleTrainError as error:
        refusal = error
    if refusal is not None:
        raise refusal


@cache
def images() -> list[tuple[str, bytes]]:
    from PIL import Image

    rng = np.random.default_rng(0)
    found = []
    for mode, shape in (("L", (9, 7)), ("RGB", (9, 7, 3)), ("RGBA", (5, 5, 4)), ("P", (8, 8)), ("1", (8, 8))):
        picture = Image.fromarray(rng.integers(0, 255, shape).astype(np.uint8)).convert(mode)
        for suffix, kind in (
            (".png", "PNG"),
            (".bmp", "BMP"),
            (".gif", "GIF"),
            (".jpg", "JPEG"),
            (".webp", "WEBP"),
        ):
            raw = io.BytesIO()
            with suppress(OSError, KeyError):
                picture.save(raw, kind)
                found.append((f"a{suffix}", raw.getvalue()))
    return found + [(f"a{path.suffix}", path.read_bytes()) for path in kept("image")]


def damaged_image(seed: tuple[str, bytes], rng: Rng) -> tuple[str, bytes]:
    return seed[0], damaged_bytes(seed[1], rng)


def run_image(case: tuple[str, bytes], rng: Rng, folder: Path) -> None:
    """One of a folder of images by class, as many as the model tells apart; those of the others are whole."""
    whole = images()[0]
    for label, (name, raw) in {"ant": case, "bee": whole, "cat": whole, "dog": whole, "elk": whole}.items():
        (folder / "photos" / label).mkdir(parents=True, exist_ok=True)
        (folder / "photos" / label / name).write_bytes(raw)
    session = ct.TrainSession(networks.cnn(), ct.TrainConfig(loss="mse", batch_size=2), threads=1)
    session.fit(folder / "photos", epochs=1, verbose=0)
