"""Damaged models: our own error or a working model, nothing else, in no time and no memory."""

from __future__ import annotations

import resource
import struct
import time
from pathlib import Path

import format_models as models
import numpy as np
import pytest

from circle_train import format
from circle_train.errors import ModelError
from circle_train.format.flatbuffer.encode import encode

SHARED = Path(__file__).parents[3] / "shared"
REAL = [
    SHARED / "data/models/mlperf_tiny_resnet8_int8.tflite",
    SHARED / "data/models/okay_nabu_stream_int8.tflite",
    SHARED / "data/models/selfie_segmentation_fp16_customop.tflite",
    SHARED / "data/models/face_full_range_sparse_fp16.tflite",
    SHARED / "golden/onert/circleplus/adam_mse_sum_last2.circle",
]
ONE_ZERO = struct.pack("<2I", 1, 0)
"""A vector of one number, 0."""
EXTREMES = (b"\xff\xff\xff\xff", b"\0\0\0\0", b"\xff\xff\xff\x7f", b"\0\0\0\x80")


HANG = 10
"""Seconds of processor time; what a file of these sizes takes is a hundredth of it."""


def damage(raw: bytes, rng: np.random.Generator) -> bytes:
    """Cut it, flip bits, overwrite a run, or plant an extreme number; mostly where the tables are."""
    data = bytearray(raw)
    end = len(raw) if rng.random() < 0.3 else min(len(raw), 20_000)
    place = int(rng.integers(max(end - 64, 1)))
    if rng.random() < 0.5:
        place = max(len(raw) - 64 - place, 0)
    kind = rng.integers(4)
    if kind == 0:
        return raw[: int(rng.integers(len(raw)))]
    if kind == 1:
        for offset in rng.integers(64, size=int(rng.choice([1, 2, 8, 30]))):
            data[min(place + int(offset), len(data) - 1)] ^= 1 << int(rng.integers(8))
    elif kind == 2:
        run = rng.bytes(int(rng.choice([1, 2, 4, 8, 64])))
        data[place : place + len(run)] = run
    else:
        place &= ~3
        data[place : place + 4] = EXTREMES[int(rng.integers(4))]
    return bytes(data[: len(raw)])


def survives(raw: bytes) -> bool:
    """Load and save it; False where it was refused."""
    start = time.process_time()
    try:
        module = format.read(raw)
        [str(node) for graph in module.graphs for node in graph.nodes]
        assert format.write(module) == raw, "nothing was changed, so nothing may differ"
    except ModelError as error:
        assert len(str(error)) < 1000
        return False
    finally:
        assert time.process_time() - start < HANG
    return True


def peak() -> int:
    """Bytes that this process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.parametrize("raw", [models.rich_file(), models.rich_file(b"TFL3"), format.write(models.small())])
def test_damaged_models(raw: bytes) -> None:
    rng = np.random.default_rng(0)
    kept = sum(survives(damage(raw, rng)) for _ in range(150))
    assert 0 < kept < 150


def test_every_truncation() -> None:
    raw = models.rich_file()
    assert not any(survives(raw[:end]) for end in range(0, len(raw) - 64, 7))


def test_every_byte_of_the_tables() -> None:
    raw = models.rich_file()
    for place in range(0, len(raw), 3):
        survives(raw[:place] + bytes([raw[place] ^ 0xFF]) + raw[place + 1 :])


@pytest.mark.slow(seconds=15)
@pytest.mark.parametrize("cases", [600, pytest.param(10_000, marks=pytest.mark.thorough)])
@pytest.mark.skipif(not REAL[0].exists(), reason="needs ../shared, which a clone does not carry")
def test_damaged_copies_of_real_files(cases: int) -> None:
    rng = np.random.default_rng(1)
    files = [path.read_bytes() for path in REAL]
    before = peak()
    for count in range(cases):
        survives(damage(files[count % len(files)], rng))
    assert peak() - before < 200 << 20


# Lies made on purpose


def test_overlapping_vectors_cost_nothing() -> None:
    """A hundred subgraphs whose inputs are one vector of half a million numbers."""
    root = models.rich()
    branch = root["subgraphs"][1]
    root["subgraphs"] = [branch | {"name": None}] * 100
    root["signature_defs"] = None
    data = bytearray(encode("Model", root, b"CIR0"))
    vector = len(data)
    data += struct.pack("<I", 500_000) + bytes(2_000_000)
    slots = [
        i for i in range(0, vector, 4) if data[i + struct.unpack_from("<I", data, i)[0] :][:8] == ONE_ZERO
    ]
    for slot in slots:
        struct.pack_into("<I", data, slot, vector - slot)
    assert len(slots) >= 200
    with pytest.raises(ModelError, match="its parts overlap"):
        format.read(bytes(data))


def test_many_references_to_one_table_are_refused() -> None:
    """A vector of 200 000 offsets that all lead to one subgraph."""
    count = 200_000
    header = bytearray(b"\0\0\0\0CIR0")
    vtable = struct.pack("<5H", 10, 8, 0, 0, 4) + bytes(2)
    header += vtable
    model = len(header)
    header += struct.pack("<iI", model - 8, 4)
    vector = len(header)
    header += struct.pack("<I", count)
    end = vector + 4 + 4 * count
    header += b"".join(struct.pack("<I", end + 12 - (vector + 4 + 4 * i)) for i in range(count))
    header += struct.pack("<4H", 6, 8, 4, 0) + bytes(4)
    subgraph = len(header)
    header += struct.pack("<iI", 12, 4) + struct.pack("<I", 0)
    struct.pack_into("<I", header, 0, model)
    assert subgraph == end + 12
    with pytest.raises(ModelError, match="its parts overlap"):
        format.read(bytes(header))


def test_unknown_tables_that_point_at_themselves() -> None:
    """A newer schema's table whose every field leads back to it: neither recursion nor time without end."""
    raw = models.newer({"new": {"quantized_dimension": 2}}, {"new": "QuantizationParameters"})
    for value in range(4, 4000, 4):
        place = raw.rindex(struct.pack("<i", 2))
        survives(raw[:place] + struct.pack("<I", value) + raw[place + 4 :])
