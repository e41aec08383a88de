"""What a file or a module says against itself, and what is beyond a bound: each refused in words."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import format_models as models
import numpy as np
import pytest
from networks import new_input

import circle_train as ct
from circle_train import format
from circle_train.convert.onnx_file.fields import _fixed, varints
from circle_train.convert.onnx_file.protobuf import Damage
from circle_train.errors import ConfigError, ModelError
from circle_train.format.flatbuffer import decode as decoding, encode as encoding, unknown
from circle_train.format.flatbuffer.decode import decode
from circle_train.format.flatbuffer.encode import encode
from circle_train.format.flatbuffer.schema import TABLES, UNIONS
from circle_train.format.metadata.training_info import put
from circle_train.format.model import reader
from circle_train.ir import Graph, Module, verify
from circle_train.ops import REGISTRY


def changed(change: Any, identifier: bytes = b"CIR0") -> Module:
    root = models.rich()
    change(root)
    return format.read(encode("Model", root, identifier))


# Flatbuffers


@pytest.mark.parametrize(
    ("raw", "message"),
    [(b"\x08\0\0\0", "4 bytes are too few"), (bytes(16), "identifier is .*expected b'M001'")],
)
def test_other_flatbuffers_than_models_are_told_apart(raw: bytes, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        decode(raw, "ModelMetadata", b"M001", source="metadata 'X'")


def test_more_unknown_fields_than_are_followed_are_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = models.newer({"a": 7, "b": 8}, {"a": "int32", "b": "int32"})
    monkeypatch.setattr(decoding, "MOST_UNKNOWN", 1)
    with pytest.raises(ModelError, match="more than 1 fields are unknown"):
        format.read(raw)


def test_a_union_with_a_value_has_a_type() -> None:
    root = models.rich()
    root["subgraphs"][0]["operators"][0].pop("builtin_options_type")
    with pytest.raises(ModelError, match="a union has a value but no type"):
        encode("Model", root, b"CIR0")


def test_a_file_beyond_what_offsets_reach_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    module = models.small()
    monkeypatch.setattr(encoding, "LARGEST", 1000)
    with pytest.raises(ModelError, match=r"the model takes \d+ bytes, expected at most 1000"):
        format.write(module)


def test_more_tensors_than_a_graph_may_have_are_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = format.write(models.small())
    monkeypatch.setattr(reader, "MOST", 3)
    with pytest.raises(ModelError, match=r"there are \d+ tensors, expected at most 3"):
        format.read(raw)


@pytest.mark.parametrize("kind", ["graph", "operator"])
def test_who_is_named_over_and_over_is_damage(kind: str) -> None:
    """Four bytes of a file asked for a loss, or for a gradient, each."""
    made = Graph("g", [new_input("x", 1, 2)])
    y = made.emit(REGISTRY["ADD_N"](), *made.inputs * (verify.MOST_OPERANDS + 1 if kind == "operator" else 2))
    made.outputs += [y] * (verify.MOST_ENDS + 1 if kind == "graph" else 1)
    raw = format.write(Module([made]))
    with pytest.raises(ModelError, match=r"there are (4097 outputs|65537 inputs), expected at most"):
        format.read(raw)


# Modules


def test_only_known_formats_are_written() -> None:
    with pytest.raises(ConfigError, match="the file identifier is 'ABCD', expected one of CIR0, TFL3"):
        format.write(models.small(), "ABCD")


def test_a_signature_of_another_graph_is_not_written() -> None:
    module = changed(lambda root: None)
    (signature, *rest) = module.carried["signatures"]
    module.carried["signatures"] = [replace(signature, graph=Graph("elsewhere")), *rest]
    with pytest.raises(
        ModelError, match="a signature refers to graph 'elsewhere', which is not in the module"
    ):
        format.write(module)


def test_scales_that_are_taken_away_are_not_written() -> None:
    module = changed(lambda root: None)
    scaled = next(t for t in module.main.all_tensors() if t.quantization is not None)
    scaled.quantization = None
    again = format.read(format.write(module)).main
    assert next(t for t in again.all_tensors() if t.name == scaled.name).quantization is None


@pytest.mark.parametrize("kind", ["[uint8]", "QuantizationParameters"])
def test_bytes_that_two_unknown_fields_lead_to_are_no_fields_own(kind: str) -> None:
    """A number may look like an offset by chance; of two that lead to one place neither is believed."""
    marks = b"qwertyui", b"asdfghjk"
    one, two = (
        np.frombuffer(mark, np.uint8)
        if kind == "[uint8]"
        else {"quantized_dimension": int.from_bytes(mark[:4], "little")}
        for mark in marks
    )
    raw = bytearray(models.newer({"one": one, "two": two}, {"one": kind, "two": kind}))
    first, second = (bytes(raw).index(mark[:4]) - 4 for mark in marks)
    (at,) = (a for a in range(0, len(raw), 4) if a + int.from_bytes(raw[a : a + 4], "little") == second)
    raw[at : at + 4] = (first - at).to_bytes(4, "little")
    module = format.read(bytes(raw))
    module.description = "changed"
    with pytest.raises(ModelError, match="of a newer schema"):
        format.write(module)


@pytest.mark.parametrize("size", [0, 3, 0xFFFE])
def test_a_table_whose_slots_reach_beyond_the_file_is_damaged(size: int) -> None:
    raw = bytearray(format.write(models.small()))
    (root,) = struct.unpack_from("<I", raw)
    struct.pack_into("<H", raw, root - struct.unpack_from("<i", raw, root)[0], size)
    with pytest.raises(ModelError, match="vtable"):
        format.read(bytes(raw))


@pytest.mark.parametrize("offset", [1, 2, 3])
def test_an_unknown_field_does_not_lie_upon_its_tables_head(offset: int) -> None:
    raw = bytearray(models.newer({"new": 7}, {"new": "int32"}))

    def number(form: str, at: int) -> int:
        return int(struct.unpack_from(form, raw, at)[0])

    def led_to(table: int, slot: int) -> int:
        at = table + number("<H", table - number("<i", table) + 4 + 2 * slot)
        return at + number("<I", at)

    def first(vector: int) -> int:
        return vector + 4 + number("<I", vector + 4)

    tensor = first(led_to(first(led_to(number("<I", 0), 2)), 0))
    struct.pack_into("<H", raw, tensor - number("<i", tensor) + 4 + 2 * len(TABLES["Tensor"]), offset)
    with pytest.raises(ModelError, match=rf"has its slot 11 at byte {offset} of \d+, upon another one"):
        format.read(bytes(raw))


def test_nodes_are_put_in_order_only_where_they_were_in_none() -> None:
    assert "file_order" not in format.read(format.write(models.small())).main.carried
    assert changed(lambda root: None).main.carried["file_order"]


def test_unknown_tables_are_followed_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {"quantized_dimension": 2, "scale": models.raw(1).view("<f4")}
    raw = models.newer({"new": table}, {"new": "QuantizationParameters"})
    monkeypatch.setattr(unknown, "LIMIT", 0)
    module = format.read(raw)
    assert format.write(module) == raw
    module.description = "changed"
    with pytest.raises(ModelError, match="of a newer schema"):
        format.write(module)


def test_options_of_an_unknown_kind_are_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    known = UNIONS["BuiltinOptions"]
    monkeypatch.setitem(UNIONS, "BuiltinOptions", known | {200: "SubGraph"})
    root = models.rich()
    root["subgraphs"][0]["operators"][3] |= {
        "builtin_options_type": 200, "builtin_options": {"debug_metadata_index": 77}
    }  # fmt: skip
    raw = bytearray(encode("Model", root, b"CIR0"))
    monkeypatch.setitem(UNIONS, "BuiltinOptions", known)
    at = bytes(raw).rindex((77).to_bytes(4, "little")) - 4
    raw[at : at + 4] = (0x7FFFFFF0).to_bytes(4, "little")  # back to where no layout is
    with pytest.raises(ModelError, match=r"of unknown type 200 at byte \d+ are no table"):
        format.read(bytes(raw))


def test_a_first_buffer_that_holds_data_leaves_none_for_tensors_without() -> None:
    module = changed(lambda root: None)
    module.buffers[0].held = models.raw(1)
    graph = module.main
    graph.outputs[0] = graph.emit(ct.ops.REGISTRY["RELU"](), graph.outputs[0], name="new")
    with pytest.raises(ModelError, match=r"buffer 0 of the file holds data, so .*'new'"):
        format.write(module)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda root: root["subgraphs"][0]["tensors"][0].update(compression_type=1), "compressed tensor 'x'"),
        (
            lambda root: root["subgraphs"][0]["operators"][1]["builtin_options"].update(weights_format=127),
            "weights_format 127 of operator 1",
        ),
        (
            lambda root: root["subgraphs"][0]["operators"][3].update(
                builtin_options_type=252, builtin_options={}
            ),
            "options of type 252 of operator 3",
        ),
    ],
)
def test_what_only_circle_has_is_not_written_for_others(change: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        format.write(changed(change), "TFL3")


def test_options_of_a_custom_operator_lie_within_the_file() -> None:
    def beyond(root: Any) -> None:
        operator = root["subgraphs"][0]["operators"][-1]
        operator.update(large_custom_options_offset=1 << 40, large_custom_options_size=8)

    with pytest.raises(ModelError, match="custom options lie at bytes 1099511627776"):
        changed(beyond)


def test_settings_that_are_no_object_are_damage() -> None:
    module = put(models.small(), "circle_train.settings", b'{"settings": 5, "record": ""}')
    with pytest.raises(ModelError, match="is damaged"):
        _ = ct.Model(module).training


# ONNX's numbers


def test_numbers_that_end_within_one_are_damage() -> None:
    with pytest.raises(Damage, match="7 bytes at 0 are no list of numbers of 4 bytes"):
        _fixed("<f4", bytes(7), 0, 7)
    with pytest.raises(Damage, match="goes beyond its list"):
        varints(b"\x01\xff\x01", 0, 2)


# What survives or is told apart


def test_a_graph_without_a_name_is_written_without() -> None:
    module = models.small()
    module.main.name = ""
    assert "name" not in decode(format.write(module), "Model", b"CIR0")["subgraphs"][0]
    assert format.read(format.write(module)).main.name == ""


def test_sizes_that_are_open_in_the_shape_itself_survive() -> None:
    def opened(root: Any) -> None:
        root["subgraphs"][0]["tensors"][0].update(shape=models.ints(-1, 2))

    module = changed(opened)
    module.description = "written anew"
    tensors = decode(format.write(module), "Model", b"CIR0")["subgraphs"][0]["tensors"]
    assert tensors[0]["shape"].tolist() == [-1, 2]


def test_a_buffer_that_says_its_size_says_the_new_one() -> None:
    module = changed(lambda root: root["buffers"][1].update(size=16))
    module.description = "written anew"
    assert decode(format.write(module), "Model", b"CIR0")["buffers"][1].get("size") == 16
