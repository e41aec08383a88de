"""What a file from a stranger may not do: docs/security.md says why."""

from __future__ import annotations

import hashlib
import json
import re
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import circle_train as ct
from circle_train import errors
from circle_train.convert.handlers import window
from circle_train.convert.handlers.layers import resize
from circle_train.convert.handlers.numeric import signal
from circle_train.convert.handlers.shapes import sequence
from circle_train.convert.onnx_file import fields, importer, protobuf
from circle_train.convert.stages import written
from circle_train.data import files, rows
from circle_train.data.pictures import LARGEST as MOST_PIXELS, MOST_SCANS
from circle_train.data.recordings import LONGEST as LONGEST_RECORDING
from circle_train.data.texts import tokenizer
from circle_train.format.flatbuffer import encode, unknown
from circle_train.format.metadata import attachments, description
from circle_train.format.model import reader, tensors
from circle_train.ir import verify
from circle_train.ops.control import loop
from circle_train.ops.seldom import projection
from circle_train.passes import fold
from circle_train.runtime import pages

DATA = Path(__file__).parent / "data"

X, Y = np.ones((4, 6), np.float32), np.ones((4, 5), np.float32)


# The page

LIMITS = {
    "dimensions of a tensor": tensors.MAX_RANK,
    "elements of a tensor in a file": tensors.MAX_ELEMENTS,
    "tables inside tables of unknown fields": unknown.DEPTH,
    "unknown fields that are followed": unknown.LIMIT,
    "bytes of one flatbuffer that is written": encode.LARGEST,
    "elements that are computed while loading, for one operator": fold.LARGEST_FOLDED,
    "bytes of a program's memory": pages.LARGEST,
    "tensors, and operators, of a graph in a file": reader.MOST,
    "inputs, and outputs, of a graph in a file": verify.MOST_ENDS,
    "inputs, and outputs, of an operator in a file": verify.MOST_OPERANDS,
    "elements of a sparse ONNX initializer for each that is there, beyond as many": importer.SPARSEST,
    "bytes behind a model's flatbuffer that may hold files": attachments.LARGEST,
    "nodes, and initializers, of an ONNX graph": fields.MOST,
    "cells along an axis that an ONNX window goes over": window.WIDEST,
    "elements along an axis that an ONNX Resize computes by weights": resize.LONGEST,
    "bins, and length, of an ONNX MelWeightMatrix": signal.MOST_BINS,
    "parts that an ONNX operator splits a tensor into": sequence.MOST_PARTS,
    "nodes of an ONNX model's functions and loops, as often as they are called and run": written.MOST_WRITTEN,
    "functions, branches and messages within each other of an ONNX model": protobuf.DEEPEST,
    "turns of a loop": loop.MOST_TURNS,
    "bytes of a row that LSH_PROJECTION hashes": projection.LONGEST,
    "bytes that LSH_PROJECTION hashes, of all rows for all seeds": projection.MOST,
    "pixels of a picture": MOST_PIXELS,
    "scans of a JPEG": MOST_SCANS,
    "seconds of a recording": LONGEST_RECORDING,
    "side of a picture, in pixels, that a model may ask for": description.LARGEST_SIDE,
    "samples of a second, and tokens, that a model may ask for": description.FASTEST,
    "class names that a model may have": description.MOST_LABELS,
    "classes that labels are written out for": files.MOST_CLASSES,
    "bytes of a CSV file with words": rows.LARGEST_TABLE,
    "bytes of a tokenizer": tokenizer.LARGEST_FILE,
    "characters of a text": tokenizer.LARGEST_TEXT,
    "tokens that a tokenizer fills up to": tokenizer.LONGEST_PADDING,
    "characters of a word that a tokenizer takes apart": tokenizer.LONGEST_WORD,
    "times as long as a tokenizer may make a text": tokenizer.GROWTH,
    "characters of an error's message": errors.LONGEST_MESSAGE,
}


def number(text: str) -> int:
    """2³¹ − 1 or 10,000 as a number."""
    power = re.fullmatch("2([⁰¹²³⁴⁵⁶⁷⁸⁹]+)( − 1)?", text)
    if power is None:
        return int(text.replace(",", ""))
    return 2 ** int("".join(str("⁰¹²³⁴⁵⁶⁷⁸⁹".index(digit)) for digit in power[1])) - bool(power[2])


def test_the_page_names_every_limit_with_the_number_that_the_code_has() -> None:
    onnx2tf = pytest.importorskip("circle_train.convert.other.onnx2tf", exc_type=ImportError)
    limits = LIMITS | {"seconds that onnx2tf may take": onnx2tf.TIMEOUT_S}
    page = (DATA.parents[1] / "docs" / "security.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", page.split("## Limits")[1], re.MULTILINE)
    assert {name: number(text) for name, text in rows if name != "limit"} == limits


def test_every_test_file_that_the_page_names_is_there() -> None:
    page = (DATA.parents[1] / "docs" / "security.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[^`]+)`", page)
    assert named and all((DATA.parents[1] / name).exists() for name in named)


# ONNX: external data


def onnx_model(path: Path, *locations: str) -> None:
    """x · w₀ · w₁ …, each factor in the file that its location says."""
    onnx = pytest.importorskip("onnx")
    helper, values, nodes, tensors = onnx.helper, "x", [], []
    for index, location in enumerate(locations):
        tensor = onnx.TensorProto(
            name=f"w{index}", dims=[4, 4], data_type=1, data_location=onnx.TensorProto.EXTERNAL
        )
        for key, value in (("location", location), ("offset", "0"), ("length", "64")):
            tensor.external_data.add(key=key, value=value)
        nodes.append(helper.make_node("MatMul", [values, tensor.name], [f"y{index}"]))
        tensors.append(tensor)
        values = f"y{index}"
    infos = [helper.make_tensor_value_info(name, 1, ["N", 4]) for name in ("x", values)]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())


def files_below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_an_export_writes_beside_its_target_whatever_the_model_calls_its_data(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    download, home = tmp_path / "download", tmp_path / "home"
    for folder in (download, home):
        (folder / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "authorized_keys").write_text("mine")
    (download / ".ssh" / "authorized_keys").write_bytes(np.eye(4, dtype=np.float32).tobytes())
    onnx_model(download / "m.onnx", ".ssh/authorized_keys", ".ssh/authorized_keys")
    session = ct.TrainSession(download / "m.onnx", ct.TrainConfig(loss="mse", batch_size=2))
    session.train_step(np.ones((2, 4), np.float32), np.zeros((2, 4), np.float32))
    session.export(home / "trained.onnx")
    assert files_below(home) == {".ssh/authorized_keys", "trained.onnx", "trained.onnx.data"}
    assert (home / ".ssh" / "authorized_keys").read_text() == "mine"
    again = ct.InferenceSession(home / "trained.onnx")(np.eye(4, dtype=np.float32))
    np.testing.assert_allclose(again, session.predict(np.eye(4, dtype=np.float32)), rtol=1e-6)
    session.export(download / "m.onnx")
    assert (download / ".ssh" / "authorized_keys").read_bytes() == np.eye(4, dtype=np.float32).tobytes()


@pytest.mark.parametrize("location", ["../../escaped", "/etc/hostname", "link", "\0", "", "n" * 5000])
def test_external_data_outside_of_the_models_folder_is_neither_read_nor_copied(
    location: str, tmp_path: Path
) -> None:
    pytest.importorskip("onnx")
    from circle_train.convert.other import onnx2tf

    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    (tmp_path / "escaped").write_bytes(bytes(64))
    (folder / "link").symlink_to(tmp_path / "escaped")
    onnx_model(folder / "m.onnx", location)
    before = files_below(tmp_path)
    with pytest.raises(ct.ConversionError, match=r"put the file beside the model|is no file name"):
        ct.load(folder / "m.onnx")
    with pytest.raises(ct.ConversionError, match=r"put the file beside the model|is no file name"):
        onnx2tf.convert(folder / "m.onnx", ["false"])
    assert files_below(tmp_path) == before


def test_onnx2tf_gets_a_copy_of_what_lies_beside_the_model(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    from circle_train.convert.other import onnx2tf

    (tmp_path / "model" / "data").mkdir(parents=True)
    (tmp_path / "model" / "data" / "w").write_bytes(np.eye(4, dtype=np.float32).tobytes())
    onnx_model(tmp_path / "model" / "m.onnx", "data/w")
    script = tmp_path / "engine.py"
    script.write_text(
        "import onnx, pathlib, shutil, sys\n"
        "onnx.load(sys.argv[2])\n"
        "pathlib.Path(sys.argv[4]).mkdir()\n"
        f"shutil.copy({str(DATA / 'mlp.circle')!r}, sys.argv[4] + '/m_float32.tflite')\n"
    )
    module, _ = onnx2tf.convert(tmp_path / "model" / "m.onnx", [sys.executable, str(script)])
    assert module.main.outputs


# Checkpoints


def forged(path: Path, change: Any) -> None:
    """The checkpoint with another story of its fit, and a checksum that agrees with it."""
    data = path.read_bytes()
    length = struct.unpack_from("<Q", data)[0]
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    fit = json.loads(header["__metadata__"]["fit"])
    change(fit["callbacks"]["ModelCheckpoint/0"])
    header["__metadata__"]["fit"] = json.dumps(fit)
    del header["__metadata__"]["checksum"]
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    header["__metadata__"]["checksum"] = hashlib.sha256(text + body).hexdigest()
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


@pytest.mark.parametrize(
    "pattern", ["run-{epoch}.safetensors", "{epoch}.safetensors", "{loss:.9f}.safetensors"]
)
def test_a_checkpoint_deletes_no_file_that_the_fit_could_not_have_written(
    pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    victims = [tmp_path / "precious.txt", tmp_path / "precious.safetensors", tmp_path / "runs" / "notes.txt"]
    for victim in victims:
        victim.write_text("precious")
    config = ct.TrainConfig(loss="mse", batch_size=2)

    def keeper() -> Any:
        return ct.callbacks.ModelCheckpoint(path=f"runs/{pattern}", keep_last=1)

    session = ct.TrainSession(DATA / "mlp.circle", config)
    save = ct.callbacks.LambdaCallback(
        on_batch_end=lambda batch, logs: session.save_checkpoint("c.safetensors")
    )
    session.fit(X, Y, epochs=3, verbose=0, callbacks=[keeper(), save])

    def blame(remembered: dict[str, Any]) -> None:
        names = [str(path) for path in victims] + ["../precious.safetensors", "../precious.txt", "notes.txt"]
        remembered["written"] = [*names, 7, None, *remembered["written"]]

    forged(tmp_path / "c.safetensors", blame)
    resumed = ct.TrainSession(DATA / "mlp.circle", config)
    resumed.load_checkpoint("c.safetensors")
    resumed.fit(X, Y, epochs=3, verbose=0, callbacks=[keeper()])
    assert all(victim.exists() for victim in victims)
    assert len(list((tmp_path / "runs").glob("*.safetensors"))) == 1


def test_a_message_is_no_longer_than_somebody_reads() -> None:
    """A file of 4 MB had one of 12 MB."""
    error = ct.ModelError(f"CONV_2D '{'n' * 1_000_000}': refused; take another")
    assert len(str(error)) <= errors.LONGEST_MESSAGE
    assert str(error).startswith("CONV_2D 'nnn") and str(error).endswith("refused; take another")
