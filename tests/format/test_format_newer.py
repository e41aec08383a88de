"""Fields and options of a schema newer than ours survive, or saving refuses."""

from __future__ import annotations

from typing import Any

import format_models as models
import numpy as np
import pytest

from circle_train import format
from circle_train.errors import ModelError
from circle_train.format.flatbuffer.decode import decode
from circle_train.format.flatbuffer.encode import encode
from circle_train.format.flatbuffer.schema import TABLES, UNIONS

NEWER: dict[str, tuple[str, Any]] = {
    "wide": ("int64", 1 << 40),
    "small": ("int32", 6),
    "minus": ("int32", -1),
    "flag": ("uint8", 3),
    "text": ("string", "new"),
    "table": ("QuantizationParameters", {"quantized_dimension": 2, "scale": np.array([0.5, 2], np.float32)}),
    "longs": ("[int64]", np.arange(3, dtype=np.int64)),
    "one": ("[int32]", models.ints(65)),
}


def test_fields_of_a_newer_schema_survive() -> None:
    types = {name: type_ for name, (type_, _) in NEWER.items()}
    raw = models.newer({name: value for name, (_, value) in NEWER.items()}, types)
    module = format.read(raw)
    assert format.write(module) == raw
    module.description = "changed"
    wider = {
        **TABLES,
        "Tensor": (*TABLES["Tensor"], *((name, type_, None, "") for name, type_ in types.items())),
    }
    tensor = decode(format.write(module), "Model", b"CIR0", wider)["subgraphs"][0]["tensors"][0]
    for name, (_, value) in NEWER.items():
        if name == "table":
            assert tensor[name].keys() == value.keys() and tensor[name]["scale"].tolist() == [0.5, 2]
        else:
            assert np.array_equal(tensor[name], value), name


@pytest.mark.parametrize("length", range(8))
def test_what_a_newer_schema_holds_lies_at_multiples_of_its_width(length: int) -> None:
    """Readers of that schema take numbers where they lie; whatever texts come before them."""
    numbers = {"wide": 0x1122334455667788, "narrow": 0x31323334}
    items = np.array([0x2122334455667788, 0x4142434445464748])
    types = {"wide": "int64", "flag": "uint8", "items": "[int64]", "narrow": "int32", "mark": "uint8"}
    module = format.read(models.newer({**numbers, "items": items, "flag": 3, "mark": 1}, types))
    module.description = "x" * length
    module.buffers[1].held = blob = np.arange(100, 116, dtype=np.uint8)
    found = format.write(module)
    assert found.index(numbers["wide"].to_bytes(8, "little")) % 8 == 0
    assert found.index(numbers["narrow"].to_bytes(4, "little")) % 4 == 0
    assert found.index(items.tobytes()) % 8 == 0
    assert found.index(blob.tobytes()) % 16 == 0


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("[string]", ["a", "b"]),
        ("[QuantizationParameters]", [{"quantized_dimension": 2}]),
        ("[int64]", np.zeros(0, np.int64)),
    ],
)
def test_what_may_be_offsets_survives_patches_but_refuses_rewriting(type_: str, value: Any) -> None:
    module = format.read(models.newer({"new": value}, {"new": type_}))
    module.buffers[1].held = models.raw(9, 9, 9, 9)
    assert format.read(format.write(module)).buffers[1].bytes.tolist() == models.raw(9, 9, 9, 9).tolist()
    module.description = "changed"
    with pytest.raises(ModelError, match="Tensor has a field 11 of a newer schema"):
        format.write(module)


def test_union_members_of_a_newer_schema_survive(monkeypatch: pytest.MonkeyPatch) -> None:
    root = models.rich()
    known = UNIONS["BuiltinOptions"]
    monkeypatch.setitem(UNIONS, "BuiltinOptions", known | {200: "SubGraph"})
    operator = root["subgraphs"][0]["operators"][3]
    operator |= {"builtin_options_type": 200, "builtin_options": {"name": "new", "debug_metadata_index": 5}}
    raw = encode("Model", root, b"CIR0")
    monkeypatch.setitem(UNIONS, "BuiltinOptions", known)
    module = format.read(raw)
    assert format.write(module) == raw
    module.description = "changed"
    again = format.write(module)
    monkeypatch.setitem(UNIONS, "BuiltinOptions", known | {200: "SubGraph"})
    reread = decode(again, "Model", b"CIR0")["subgraphs"][0]["operators"][3]
    assert reread["builtin_options"] == operator["builtin_options"] and reread["builtin_options_type"] == 200


@pytest.mark.parametrize(
    "kind",
    [
        "Model",
        "OperatorCode",
        "SubGraph",
        "Operator",
        "Buffer",
        "Metadata",
        "SignatureDef",
        "TensorMap",
        "QuantizationParameters",
        "AddOptions",
        "HashtableOptions",
    ],
)
def test_every_table_keeps_its_newer_fields(kind: str) -> None:
    root = models.rich()
    graph, signature = root["subgraphs"][0], root["signature_defs"][0]
    places: dict[str, Any] = {
        "Model": root,
        "OperatorCode": root["operator_codes"][0],
        "SubGraph": graph,
        "Operator": graph["operators"][0],
        "Buffer": root["buffers"][1],
        "Metadata": root["metadata"][0],
        "SignatureDef": signature,
        "TensorMap": signature["inputs"][0],
        "QuantizationParameters": graph["tensors"][3]["quantization"],
        "AddOptions": graph["operators"][0]["builtin_options"],
        "HashtableOptions": graph["operators"][3]["builtin_options"],
    }
    places[kind]["newer"] = 3
    wider = {**TABLES, kind: (*TABLES[kind], ("newer", "uint8", 0, ""))}
    raw = encode("Model", root, b"CIR0", wider)
    module = format.read(raw)
    assert format.write(module) == raw
    module.description = "changed"
    expected, found = (decode(data, "Model", b"CIR0", wider) for data in (raw, format.write(module)))
    assert str(found).count("'newer': 3") == str(expected).count("'newer': 3") == 1


@pytest.mark.parametrize(("identifier", "other"), [("TFL3", "CIR0"), ("CIR0", "TFL3")])
def test_quantization_details_that_the_formats_number_differently(identifier: str, other: str) -> None:
    root = models.rich()
    del root["subgraphs"][0]["debug_metadata_index"]
    root["subgraphs"][0]["tensors"][3]["quantization"] |= {"details_type": 2, "details": {"axis": 3}}
    raw = encode("Model", root, identifier.encode())
    module = format.read(raw)
    assert format.write(module) == raw
    with pytest.raises(ModelError, match=r"MXQuantization|quantization details 2 of tensor 'q'"):
        format.write(module, other)
    module.description = "changed"
    again = decode(format.write(module), "Model", identifier.encode())
    assert again["subgraphs"][0]["tensors"][3]["quantization"]["details"] == {"axis": 3}
