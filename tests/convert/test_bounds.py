"""Small files that ask for much: bounded before it is done."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

import circle_train as ct
from circle_train.convert.onnx_file import fields
from circle_train.convert.stages import written
from circle_train.data.files import read_idx
from circle_train.ir.verify import MOST_ENDS, MOST_OPERANDS

onnx = pytest.importorskip("onnx")


def varint(value: int) -> bytes:
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    return bytes([*made, value])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def test_names_and_outputs_that_take_two_bytes_are_counted() -> None:
    for graph, found in (
        (field(12, b"") * (MOST_ENDS + 1), f"{MOST_ENDS} messages 'output'"),
        (field(1, field(1, b"") * (MOST_OPERANDS + 1)), f"{MOST_OPERANDS} names 'input'"),
    ):
        with pytest.raises(ct.ConversionError, match=f"there are more than {found}"):
            ct.load(b"\x08\x08" + field(7, graph) + field(8, b"\x10\x11"))


@pytest.mark.parametrize("name, number", [("node", 1), ("initializer", 5), ("input", 11), ("value_info", 13)])
def test_messages_that_take_two_bytes_are_counted(
    name: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fields, "MOST", 1000)
    raw = b"\x08\x08" + field(7, field(number, b"") * 1001) + field(8, b"\x10\x11")
    with pytest.raises(ct.ConversionError, match=f"there are more than 1000 messages '{name}'"):
        ct.load(raw)


@pytest.mark.parametrize(
    "text, message",
    [
        (
            "(float[1, 1, 4, 4] x) => (float[1, 1, N, 4] y) <int64[4] sizes = {1, 1, 8388611, 4}> "
            '{ y = Resize <mode = "cubic", antialias: int = 1> (x, , , sizes) }',
            "it makes 8388611 of 4 elements, expected up to 32768",
        ),
        (
            "(float[1] x) => (float[N, M] y) <int64 n = {8}, int64 many = {8388608}, int64 rate = {16000}, float low = {0.0}, "
            "float high = {8000.0}> { y = MelWeightMatrix (n, many, rate, low, high) }",
            "it has 8388608 bins, expected up to 32768",
        ),
        (
            "(float[3, 9223372036854775807] x) => (float[3, N] y) "
            "{ s = SplitToSequence <axis: int = 1> (x) y = ConcatFromSequence <axis: int = 1> (s) }",
            "expected at most 4096 parts",
        ),
        (
            "(float[1, 3, 28, 28] x) => (float[1, 3, N, M] y) "
            "{ y = AveragePool <kernel_shape: ints = [3, -9223372036854775808], pads: ints = [2, 2, 2, 2]> (x) }",
            "expected sizes from 1",
        ),
        (
            "(float[1, 3, 28, 28] x) => (float[1, 3, N, M] y) "
            "{ y = AveragePool <kernel_shape: ints = [3, 3], pads: ints = [0, 2147483647, 0, 0]> (x) }",
            "expected no more than 16777216",
        ),
        (
            "(float[1, 1, 4, 4, 4] x) => (float[1, 1, N, M, K] y) "
            "{ y = AveragePool <kernel_shape: ints = [70000, 2, 2], ceil_mode: int = 1> (x) }",
            "more than 16400 operators",
        ),
        (
            "(float[1, 3, 28, 28] x) => (float[1, 3, N, M] y) "
            "{ y = MaxPool <kernel_shape: ints = [3, 3], strides: ints = [0, 1]> (x) }",
            "expected sizes from 1",
        ),
    ],
)
def test_sizes_without_measure_are_refused(text: str, message: str) -> None:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g {text}')
    with pytest.raises(ct.ConversionError, match=message):
        ct.load(model.SerializeToString())


def doubling(count: int) -> str:
    """Functions of which each calls the one before twice: 2^count nodes in count lines."""
    rest = "".join(
        f'<domain: "own", opset_import: ["own": 1]> f{i} (a) => (c) {{ b = own.f{i - 1} (a) c = own.f{i - 1} (b) }} '
        for i in range(1, count)
    )
    return (
        '<ir_version: 8, opset_import: ["": 17, "own": 1]> g (float[N, 4] x) => (float[N, 4] y) '
        f"{{ y = own.f{count - 1} (x) }} "
        '<domain: "own", opset_import: ["": 17]> f0 (a) => (b) { b = Relu (a) } ' + rest
    )


def loops_in_loops(depth: int) -> str:
    """Each runs 4,000 times what the next does."""

    def loop(level: int, given: str) -> str:
        if level == depth:
            return f"o{level} = Relu ({given}) "
        inner = loop(level + 1, f"s{level}")
        body = (
            f"(int64 i{level}, bool c{level}, float[N, 4] s{level}) => (bool d{level}, float[N, 4] o{level + 1}) "
            f"{{ d{level} = Identity (c{level}) {inner} }}"
        )
        return f"o{level} = Loop <body: graph = b{level} {body}> (n, t, {given}) "

    return (
        '<ir_version: 8, opset_import: ["": 17]> g (float[N, 4] x) => (float[N, 4] o0) '
        f"<int64 n = {{4000}}, bool t = {{1}}> {{ {loop(0, 'x')} }}"
    )


@pytest.mark.parametrize("text", [doubling(40), loops_in_loops(3)], ids=["functions", "loops"])
def test_what_a_small_file_writes_out_is_counted(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(written, "MOST_WRITTEN", 1000)
    model = onnx.parser.parse_model(text).SerializeToString()
    assert len(model) < 10_000
    with pytest.raises(ct.ConversionError, match="loops, written out, are more than 1000 nodes"):
        ct.load(model)


def test_a_function_that_calls_itself_is_refused() -> None:
    text = (
        '<ir_version: 8, opset_import: ["": 17, "own": 1]> g (float[N, 4] x) => (float[N, 4] y) { y = own.f (x) } '
        '<domain: "own", opset_import: ["own": 1]> f (a) => (b) { b = own.f (a) }'
    )
    with pytest.raises(ct.ConversionError, match="functions call each other more than 100 deep"):
        ct.load(onnx.parser.parse_model(text).SerializeToString())


def test_a_compressed_file_is_unpacked_no_further_than_its_header_says(tmp_path: Path) -> None:
    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"\0\0\x08\x02" + struct.pack(">2I", 8, 6) + bytes(48))
        for _ in range(30):
            file.write(bytes(1_000_000))
    with pytest.raises(ct.DataError, match=r"has 1024 bytes \(unpacked\), its header asks for 60"):
        read_idx(path)
    path.write_bytes(gzip.compress(b"\0\0\x08\x02" + struct.pack(">2I", 8, 6) + bytes(range(48))))
    np.testing.assert_array_equal(read_idx(path), np.arange(48, dtype=np.uint8).reshape(8, 6))
