"""What a file says of its inputs and outputs: written and read, ours and others'."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from picture_net import picture_net

import circle_train as ct
from circle_train.format.flatbuffer.decode import decode
from circle_train.format.flatbuffer.encode import encode
from circle_train.format.metadata import attachments
from circle_train.format.metadata.description import ENTRY, IDENTIFIER, OURS, Description
from circle_train.format.metadata.training_info import find, put

SAID = Description(
    kind="image",
    size=(32, 32),
    mean=(127.5,),
    std=(127.5,),
    labels=("cat", "dög", "cow"),
    details={"crop": "pad"},
)


def test_a_description_survives_the_file(tmp_path: Path) -> None:
    for name in ("a.tflite", "a.circle"):
        picture_net().described(SAID).save(tmp_path / name)
        again = ct.load(tmp_path / name)
        assert again.description == SAID
        again.described(replace(SAID, labels=())).save(tmp_path / name)
        assert ct.load(tmp_path / name).labels == ()
        assert not ct.load(tmp_path / name).module.attachments
        ct.load(tmp_path / name).described(None).save(tmp_path / name)
        assert ct.load(tmp_path / name).description is None


def test_other_programs_metadata_are_understood() -> None:
    module = put(picture_net().described(SAID).module, OURS, None)
    known = ct.Model(module).description
    assert known is not None
    assert (known.kind, known.size, known.mean, known.std, known.labels) == (
        "image",
        (32, 32),
        (127.5,),
        (127.5,),
        SAID.labels,
    )


def test_metadata_that_announce_a_normalisation_and_give_none() -> None:
    module = put(picture_net().described(SAID).module, OURS, None)
    raw = find(module, ENTRY)
    assert raw is not None
    tables = decode(raw, "ModelMetadata", IDENTIFIER)
    del tables["subgraph_metadata"][0]["input_tensor_metadata"][0]["process_units"][0]["options"]
    known = ct.Model(put(module, ENTRY, encode("ModelMetadata", tables, IDENTIFIER))).description
    assert known is not None and known.mean is None and known.labels == SAID.labels


def test_labels_survive_training(tmp_path: Path) -> None:
    session = ct.TrainSession(
        picture_net().described(SAID).with_head(["a", "b"]), ct.TrainConfig(loss="mse", batch_size=2)
    )
    session.train_step(np.zeros((2, 32, 32, 3), np.float32), np.ones((2, 2), np.float32))
    session.export(tmp_path / "x.tflite")
    assert ct.load(tmp_path / "x.tflite").labels == ("a", "b")


def test_the_labels_lie_behind_the_flatbuffer_where_tools_look_for_them(tmp_path: Path) -> None:
    picture_net().described(SAID).save(tmp_path / "a.tflite")
    with zipfile.ZipFile(tmp_path / "a.tflite") as archive:
        assert archive.read("labels.txt").decode() == "cat\ndög\ncow\n"
        assert all(info.compress_type == zipfile.ZIP_STORED for info in archive.infolist())


def test_metadata_name_the_parser_and_the_first_tensors() -> None:
    raw = find(picture_net().described(SAID).module, ENTRY)
    assert raw is not None
    root = decode(raw, "ModelMetadata", b"M001")
    (graph,) = root["subgraph_metadata"]
    assert root["min_parser_version"] == "1.0.0"
    assert graph["input_tensor_metadata"][0]["content"]["content_properties"]["default_size"] == {
        "width": 32,
        "height": 32,
    }
    assert graph["output_tensor_metadata"][0]["associated_files"][0]["name"] == "labels.txt"
    np.testing.assert_array_equal(
        graph["input_tensor_metadata"][0]["process_units"][0]["options"]["std"], [127.5]
    )


def test_damaged_descriptions_are_one_sentence() -> None:
    model = picture_net().described(SAID)
    for raw in (b"{", b"[]", b'{"kind": 3}', b'{"size": 1, "mean": null, "std": null, "labels": []}'):
        with pytest.raises(ct.ModelError, match="is damaged"):
            _ = ct.Model(put(model.module, OURS, raw)).description
    with pytest.raises(ct.ModelError):
        _ = ct.Model(put(put(model.module, OURS, None), ENTRY, b"\x04\0\0\0M001\xff\xff\xff\xff")).description


@pytest.mark.parametrize("how", ["cut", "packed", "lying"])
def test_damaged_attachments_are_left_out(how: str) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(
        content, "w", zipfile.ZIP_DEFLATED if how == "packed" else zipfile.ZIP_STORED
    ) as archive:
        archive.writestr("labels.txt", "a\n" * 1000)
    raw = bytearray(content.getvalue())
    if how == "cut":
        del raw[:40]
    if how == "lying":
        at = raw.rindex(b"PK\x01\x02") + 20  # its sizes, packed and not
        raw[at : at + 8] = b"\xff\xff\xff\x7f" * 2
    with pytest.warns(UserWarning, match="files behind the model: .*left out"):
        assert attachments.unpack(np.frombuffer(bytes(raw), np.uint8)) == {}


def test_a_label_is_one_line_for_other_tools_whatever_it_is_called(tmp_path: Path) -> None:
    """A folder's name may hold line ends and bytes that are no text: those after it had the next number's name."""
    names = ("cat", "d\no\rg", "c\u2028ow", "\udcff")
    model = picture_net().described(replace(SAID, labels=names))
    model.save(tmp_path / "x.tflite")
    assert ct.load(tmp_path / "x.tflite").labels == names
    with zipfile.ZipFile(tmp_path / "x.tflite") as archive:
        held = archive.read("labels.txt").decode()
    assert held.split("\n") == ["cat", r"d\no\rg", r"c\u2028ow", r"\udcff", ""]
    module = ct.load(tmp_path / "x.tflite").module
    foreign = replace(put(module, OURS, None), attachments={"labels.txt": "a\u2028b\r\nc\n".encode()})
    assert ct.Model(foreign).labels == ("a\u2028b", "c")


def test_labels_that_a_file_names_but_does_not_hold_are_missed(tmp_path: Path) -> None:
    """As where the end of the file was cut off."""
    model = ct.load("tests/data/mlp.circle").with_head(["cat", "dog"])
    module = put(model.module, OURS, None)
    module.attachments = {}
    with pytest.warns(UserWarning, match=r"stand in 'labels.txt', which the file does not hold"):
        assert ct.Model(module).labels == ()


def test_a_directory_that_names_the_same_bytes_often_is_left_out() -> None:
    """Reading three megabytes a hundred times takes as long as three hundred."""
    raw = attachments.pack({"labels.txt": bytes(3 << 20)})
    begin, end = raw.index(b"PK\x01\x02"), raw.index(b"PK\x05\x06")
    directory = 100 * raw[begin:end]
    closing = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 100, 100, len(directory), begin, 0)
    with pytest.warns(UserWarning, match="names the same bytes often"):
        assert attachments.unpack(np.frombuffer(raw[:begin] + directory + closing, np.uint8)) == {}


def test_words_say_what_becomes_of_pixels() -> None:
    assert str(SAID) == "32×32, pixels -1…1, 3 classes: cat, dög, cow"
    assert Description(kind="image", mean=(1.0, 2.0), std=(3.0, 3.0)).range == "pixels less 1/2, by 3/3"
    assert Description().range == "values as they are"


@pytest.mark.parametrize("scores", ["logits", "sigmoid"])
@pytest.mark.parametrize(
    "said",
    [
        Description(kind="audio", sample_rate=8000, labels=("on", "off"), details={"seconds": 1.0}),
        Description(kind="audio"),
        Description(kind="image", size=None, channels=1, mean=(0.0,), std=(255.0,)),
    ],
)
def test_every_kind_is_told_to_other_programs(said: Description, scores: str) -> None:
    """What they read has no field for is guessed of nothing: size, rate and how the scores are meant."""
    module = picture_net().described(replace(said, scores=scores)).module
    known = ct.Model(put(module, OURS, None)).description
    assert known is not None and (known.kind, known.size, known.sample_rate, known.channels) == (
        said.kind, said.size, said.sample_rate, said.channels,
    )  # fmt: skip
    assert (known.labels, known.mean, known.std) == (said.labels, said.mean, said.std)
    raw = find(module, ENTRY)
    assert raw is not None
    (graph,) = decode(raw, "ModelMetadata", IDENTIFIER)["subgraph_metadata"]
    assert ("stats" in graph["output_tensor_metadata"][0]) == (scores == "sigmoid" and bool(said.labels))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kind", "smell"),
        ("size", (1 << 20, 4)),
        ("sample_rate", 0),
        ("std", (0.0,)),
        ("mean", ()),
        ("scores", "votes"),
    ],
)
def test_samples_that_nobody_can_make_are_damage(field: str, value: object) -> None:
    model = picture_net().described(SAID)
    held = find(model.module, OURS)
    assert held is not None
    told = {**json.loads(bytes(held)), field: value}
    with pytest.raises(ct.ModelError, match=field):
        _ = ct.Model(put(model.module, OURS, json.dumps(told).encode())).description
