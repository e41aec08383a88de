"""What a file from a stranger may not do: docs/security.md says why."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import struct
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import circle_train as ct
from circle_train import errors, format
from circle_train.cli.main import main
from circle_train.convert.handlers import window
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
from circle_train.ir import DType, Graph, Module, Tensor, TensorType, verify
from circle_train.ir.graph import constant
from circle_train.ops import REGISTRY
from circle_train.ops.control import loop
from circle_train.passes import fold
from circle_train.runtime import pages

DATA = Path(__file__).parent / "data"
EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egpj\u2028\r\nerror: fake <script>alert(1)</script>"
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
    "parts that an ONNX operator splits a tensor into": sequence.MOST_PARTS,
    "nodes of an ONNX model's functions and loops, as often as they are called and run": written.MOST_WRITTEN,
    "functions, branches and messages within each other of an ONNX model": protobuf.DEEPEST,
    "turns of a loop": loop.MOST_TURNS,
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


# Folders


def unpacked_run(folder: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> Path:
    """A run as somebody sends it: its files are the same, the folder is another."""
    monkeypatch.chdir(folder)
    np.savez("d.npz", x=X, y=Y)
    words = ("train", str(DATA / "mlp.circle"), "--input", "d.npz", "--loss", "mse", "--epochs", "1", *words)
    assert main([*words, "--run-dir", "sent"]) == 0
    shutil.copytree("sent", "run")
    return folder / "run"


NAMES = ("log.csv", "plan.txt", "last.safetensors", "best.safetensors", "metrics.json", "curves.png", "report.html",
         "run.json", "model.circle")  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_links_in_a_run_overwrite_nothing_outside(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A checkpoint says what a log begins with: behind a link it stood in somebody's start file."""
    run = unpacked_run(tmp_path, monkeypatch)
    victim = tmp_path / "victim"
    victim.write_bytes((run / name).read_bytes())
    before = victim.read_bytes()
    (run / name).unlink()
    (run / name).symlink_to(victim)
    assert main(["train", "--resume", "run", "--epochs", "2"]) == 1
    assert f"'{name}' is a link to '{victim}'" in capsys.readouterr().err
    assert victim.read_bytes() == before


@pytest.mark.parametrize("what", ["package", "course", "fleet", "missing target"])
def test_links_in_other_folders_of_ours_neither(what: str, tmp_path: Path) -> None:
    from circle_train.finetuning.stages import Stages

    victim, folder = tmp_path / "victim", tmp_path / "folder"
    folder.mkdir()
    if what != "missing target":
        victim.write_text("mine")
    config = ct.TrainConfig(loss="mse", batch_size=4)
    name = {"package": "training.circle", "course": "head.safetensors", "fleet": "run.safetensors"}.get(what)
    (folder / (name or "checkpoint.safetensors")).symlink_to(victim)
    with pytest.raises(ct.ConfigError, match="is a link to"):
        if what == "course":
            Stages(folder)
        elif what == "fleet":
            pytest.importorskip("flwr")
            from circle_train.federated.server.app import RunSettings, Server

            Server(DATA / "mlp.circle", None, config, RunSettings())._begun(RunSettings(run_dir=folder))
        else:
            ct.make_artifacts(DATA / "mlp.circle", folder, config)
    assert not victim.exists() if what == "missing target" else victim.read_text() == "mine"


def test_a_run_that_was_sent_does_not_say_where_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine.tflite"
    unpacked_run(tmp_path, monkeypatch, "--export", str(mine))
    mine.write_text("mine")
    resume = ["train", "--resume", "run", "--epochs", "2"]
    assert main(resume) == 1
    assert f"would write {mine}; say where to with --export" in capsys.readouterr().err
    assert mine.read_text() == "mine"
    assert main([*resume, "--export", "own.tflite"]) == 0
    assert mine.read_text() == "mine" and ct.load("own.tflite").outputs
    assert main(["train", "--resume", "sent", "--epochs", "2"]) == 0, "where it began it may"
    assert ct.load(mine).outputs


@pytest.mark.parametrize("name", ["a\0b", "half \ud800"])
def test_names_that_no_file_can_have_are_ours_to_refuse(name: str, tmp_path: Path) -> None:
    session = ct.TrainSession(DATA / "mlp.circle", ct.TrainConfig(loss="mse", batch_size=4))
    place = f"{tmp_path}/{name}"
    writers = (
        lambda: session.export(f"{place}.tflite"),
        lambda: session.save_checkpoint(f"{place}.ckpt"),
        lambda: session.report(f"{place}.html"),
        lambda: ct.make_artifacts(DATA / "mlp.circle", place, session.config),
    )
    for write in writers:
        with pytest.raises(ct.ConfigError, match="no file can have this name"):
            write()


def test_a_message_is_no_longer_than_somebody_reads() -> None:
    """A file of 4 MB had one of 12 MB."""
    error = ct.ModelError(f"CONV_2D '{'n' * 1_000_000}': refused; take another")
    assert len(str(error)) <= errors.LONGEST_MESSAGE
    assert str(error).startswith("CONV_2D 'nnn") and str(error).endswith("refused; take another")


# Names


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose every name fights the terminal, and data for it."""
    folder = tmp_path_factory.mktemp("evil")
    rng = np.random.default_rng(0)
    graph = Graph(EVIL)
    x = Tensor(f"x{EVIL}", TensorType(DType.FLOAT32, (1, 6)))
    graph.inputs.append(x)
    w = constant(rng.standard_normal((5, 6), np.float32), f"w{EVIL}")
    y = graph.emit(REGISTRY["FULLY_CONNECTED"](), x, w, None, name=f"y{EVIL}")
    graph.outputs += [y, graph.emit(REGISTRY["SOFTMAX"](), y, name=f"z{EVIL}")]
    (folder / "evil.circle").write_bytes(format.write(Module([graph], description=EVIL)))
    np.save(folder / "x.npy", rng.standard_normal((8, 6)).astype(np.float32))
    np.savez(folder / "y.npz", *2 * [np.eye(5, dtype=np.float32)[rng.integers(0, 5, 8)]])
    return folder


def unprintable(text: str) -> set[str]:
    return {c for c in text if not c.isprintable() and c != "\n"} | (
        {"fake"} if "\nerror: fake" in text else set()
    )


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize(
    "words",
    [
        "info {d}/n.circle", "info {d}/n.tflite", "info {d}/n.onnx", "info {d}", "plus {m} {d}/s.json",
        "export {m} --checkpoint {d}/c.safetensors {t}/o.circle", "export {m} --checkpoint {d}/c.ckpt {t}/o.circle",
        "predict {m} --input {d}/x.npy", "predict {m} --input {d}/x.npz", "predict {m} --input {d}/x.bin",
        "data {d}/x.csv --out {t}/p", "train --resume {d}",
    ],
)  # fmt: skip
def test_a_pipe_or_a_device_is_no_file(
    words: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder from a stranger may hold one under any name: it was waited for, or read until memory was full."""
    folder = tmp_path / "d"
    folder.mkdir()
    for name in ("n.circle", "n.tflite", "n.onnx", "training.circle", "s.json", "c.safetensors", "c.ckpt"):
        odd(folder / name, kind)
    for name in ("x.npy", "x.npz", "x.bin", "x.csv", "run.json"):
        odd(folder / name, kind)
    given = {"m": DATA / "mlp.circle", "d": folder, "t": tmp_path}
    assert main([word.format(**given) for word in words.split()]) == 1
    assert "it is a pipe or a device, expected a file" in capsys.readouterr().err


def odd(path: Path, kind: str) -> None:
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")


@pytest.mark.parametrize(
    "words",
    [
        "info {m}", "info {m} --operators", "info {m} --json", "check {m}", "check {m} --json",
        "predict {m} --input {d}/x.npy", "convert {m} {t}/out.tflite",
        "eval {m} --input {d}/x.npy --expected {d}/y.npz --loss mse",
        "eval {m} --input {d}/y.npz --expected {d}/y.npz --loss mse",
        "train {m} --input {d}/x.npy --expected {d}/y.npz --loss categorical_crossentropy --run-dir {t}/run",
    ],
)  # fmt: skip
def test_names_of_a_file_do_not_reach_the_terminal_raw(
    words: str, evil: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        main([word.format(m=evil / "evil.circle", d=evil, t=tmp_path) for word in words.split()])
    said = capsys.readouterr()
    assert said.out + said.err
    assert not unprintable(said.out) and not unprintable(said.err)
    for page in (*tmp_path.rglob("*.txt"), *tmp_path.rglob("*.html"), *tmp_path.rglob("*.csv")):
        assert not unprintable(page.read_text(encoding="utf-8")), page.name


def test_objects_and_errors_show_names_on_one_line(evil: Path) -> None:
    session = ct.TrainSession(evil / "evil.circle", ct.TrainConfig(loss="mse", batch_size=4))
    with pytest.raises(ct.CircleTrainError) as error:
        session.parameters["nothing"] = 0
    with pytest.raises(ct.CircleTrainError) as other:
        ct.InferenceSession(evil / "evil.circle")(np.ones((2, 7), np.float32))
    shown = (error.value, other.value, session.model, session.parameters, *session.model.inputs)
    for text in (*map(str, shown), *map(repr, shown)):
        assert text.isprintable() and "x1b]0;owned" in text
    assert not unprintable(str(session.plan)) and not unprintable(str(session.profile()))


def test_names_that_are_no_text_are_written_as_escapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bytes of a file that are no UTF-8 are kept as they are; logs, archives and checksums could not hold them."""
    monkeypatch.chdir(tmp_path)
    graph, rng = Graph("net"), np.random.default_rng(0)
    x = Tensor("XXXXx", TensorType(DType.FLOAT32, (1, 6)))
    graph.inputs.append(x)
    for name in ("XXXXy", "file"):  # which numpy's savez takes for its own
        w = constant(rng.standard_normal((5, 6), np.float32), f"{name}/w")
        graph.outputs.append(graph.emit(REGISTRY["FULLY_CONNECTED"](), x, w, None, name=name))
    Path("n.circle").write_bytes(format.write(Module([graph])).replace(b"XXXX", b"\xff\xfe\xed\xa0"))
    np.save("x.npy", X)
    np.savez("y.npz", Y, Y)
    words = "train n.circle --input x.npy --expected y.npz --loss mse --metric mae --epochs 1 --run-dir run"
    assert main(words.split()) == 0, capsys.readouterr().err
    assert "\\udcff\\udcfe" in Path("run/log.csv").read_text(encoding="utf-8")
    assert main("train --resume run --epochs 2".split()) == 0, capsys.readouterr().err
    assert main("predict n.circle --input x.npy --output p.npz".split()) == 0, capsys.readouterr().err
    with np.load("p.npz") as archive:
        assert len(archive.files) == 2 and archive["file"].shape == (4, 5)


def test_letters_of_every_alphabet_stay_as_they_are() -> None:
    assert str(ct.ModelError("größe 尺寸 μ → ½")) == "größe 尺寸 μ → ½"
    assert str(ct.ModelError("half a character: \udc80")) == "half a character: \\udc80"
