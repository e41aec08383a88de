"""Files that are written to while they are in use: noticed before what is behind their end, or half new, is read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networks
import numpy as np
import pytest

import circle_train as ct
from circle_train.ir.mapped import SMALL, FileMap, open_bytes

CONFIG = ct.TrainConfig(loss="mse", batch_size=2, trainable=("last", 1))
WIDE = 600
"""Columns: the first layer's weights are larger than what is read."""


def large_model() -> ct.Model:
    graph = ct.model.Module([networks.Graph("wide", [networks.new_input("x", 1, WIDE)])]).main
    make, weight = networks.make, networks.weight
    hidden = graph.emit(make("FULLY_CONNECTED"), graph.inputs[0], weight("w0", WIDE, WIDE), None, name="h")
    graph.outputs = [graph.emit(make("FULLY_CONNECTED"), hidden, weight("w1", 3, WIDE), None, name="y")]
    return networks.finish(graph)


def shortened(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def overwritten(path: Path) -> None:
    """With as many other bytes, as `cp` does it."""
    size, before = path.stat().st_size, path.stat().st_mtime_ns
    with open(path, "r+b") as file:
        file.write(bytes(size))
    if path.stat().st_mtime_ns == before:  # a coarse clock
        os.utime(path, ns=(before + 1, before + 1))


def train(session: ct.TrainSession, folder: Path) -> None:
    session.train_step(np.ones((2, WIDE)), np.zeros((2, 3)))


USES: dict[str, Callable[[ct.TrainSession, Path], Any]] = {
    "prepare": lambda session, folder: session.prepare(),
    "train": train,
    "predict": lambda session, folder: session.predict(np.ones((1, WIDE))),
    "export": lambda session, folder: session.export(folder / "out.circle"),
    "save": lambda session, folder: session.model.save(folder / "out.tflite"),
    "checkpoint": lambda session, folder: session.save_checkpoint(folder / "out.safetensors"),
    "infer": lambda session, folder: ct.InferenceSession(session.model)(np.ones((1, WIDE), np.float32)),
    "package": lambda session, folder: ct.make_artifacts(session.model, folder / "package", CONFIG),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("change", [shortened, emptied, overwritten])
def test_a_model_whose_file_was_written_to_is_refused(
    change: Callable[[Path], None], use: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.circle"
    large_model().save(path)
    assert path.stat().st_size > SMALL
    session = ct.TrainSession(path, CONFIG, threads=1)
    if use != "prepare":
        train(session, tmp_path)
    weights = session.parameters.flat() if use != "prepare" else None
    change(path)
    before = set(tmp_path.iterdir())
    with pytest.raises(ct.ModelError, match=r"model.circle' .*; load the model again"):
        USES[use](session, tmp_path)
    assert set(tmp_path.iterdir()) == before
    if weights is not None:
        np.testing.assert_array_equal(session.parameters.flat(), weights)


@pytest.mark.parametrize("change", ["renamed", "removed", "touched again"])
def test_another_file_under_the_models_name_changes_nothing(change: str, tmp_path: Path) -> None:
    path = tmp_path / "model.circle"
    large_model().save(path)
    session = ct.TrainSession(path, CONFIG, threads=1)
    train(session, tmp_path)
    if change == "renamed":
        (tmp_path / "new").write_bytes(b"something else")
        os.replace(tmp_path / "new", path)
    elif change == "removed":
        path.unlink()
    else:
        os.chmod(path, 0o600)
    train(session, tmp_path)
    session.export(path)
    assert ct.load(path).inputs[0].shape[1:] == (WIDE,)


def test_a_small_model_is_read(tmp_path: Path) -> None:
    path = tmp_path / "small.circle"
    shutil.copy(Path(__file__).parents[1] / "data" / "mlp.circle", path)
    session = ct.TrainSession(path, ct.TrainConfig(loss="mse", batch_size=2), threads=1)
    os.truncate(path, 0)
    session.train_step(np.ones((2, 6)), np.ones((2, 5)))
    session.export(tmp_path / "out.circle")
    assert isinstance(open_bytes(path), bytes)


def test_weights_beside_an_onnx_model_are_watched_too(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float[N, {WIDE}] x) => (float[N, {WIDE}] y) '
        "{ y = Gemm <transB: int = 1> (x, w) }"
    )
    weights = onnx.numpy_helper.from_array(np.ones((WIDE, WIDE), np.float32), "w")
    model.graph.initializer.append(weights)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    session = ct.InferenceSession(tmp_path / "m.onnx")
    os.truncate(tmp_path / "m.data", 0)
    with pytest.raises(ct.ModelError, match=r"m.data' .*; load the model again"):
        session(np.ones((1, WIDE), np.float32))


@pytest.mark.parametrize("kind", ["npy", "bin", "idx"])
@pytest.mark.parametrize("change", [shortened, overwritten])
def test_data_that_are_written_to_end_the_fit(
    kind: str, change: Callable[[Path], None], tmp_path: Path
) -> None:
    x, path = np.ones((60_000, 6), np.float32), tmp_path / f"x.{kind}"
    if kind == "npy":
        np.save(path, x)
    elif kind == "bin":
        x.tofile(path)
    else:
        path.write_bytes(b"\0\0\x0d\x02" + np.array(x.shape, ">u4").tobytes() + x.astype(">f4").tobytes())
    session = ct.TrainSession(
        Path(__file__).parents[1] / "data" / "mlp.circle",
        ct.TrainConfig(loss="mse", batch_size=100),
        threads=1,
    )
    then = ct.callbacks.LambdaCallback(on_batch_end=lambda batch, logs: batch == 3 and change(path))
    with pytest.raises(ct.DataError, match=rf"x.{kind}' .*; begin again"):
        session.fit(path, np.zeros((60_000, 5), np.float32), epochs=1, verbose=0, callbacks=[then])
    assert session.state.step == 4


def test_a_map_says_what_happened(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(SMALL))
    found = open_bytes(path)
    assert isinstance(found, FileMap) and found.change() is None
    os.truncate(path, 17)
    assert found.change() == f"'{path}' had {SMALL} bytes when it was read and has 17"


@pytest.mark.parametrize("words", [b"'|S0'", b"'|V0'", b"'O'", b"'<U0'", b"'<M8[s]'", b"'<c8'"])
def test_an_array_file_of_what_is_no_number_is_refused(words: bytes, tmp_path: Path) -> None:
    """Elements of no bytes made numpy divide by zero: the process died."""
    header = b"{'descr': %s, 'fortran_order': False, 'shape': (-1,), }" % words
    header = header.ljust(117) + b"\n"
    (tmp_path / "x.npy").write_bytes(
        b"\x93NUMPY\x01\0" + len(header).to_bytes(2, "little") + header + bytes(64)
    )
    session = ct.TrainSession(
        Path(__file__).parents[1] / "data" / "mlp.circle", ct.TrainConfig(loss="mse", batch_size=2), threads=1
    )
    with pytest.raises(ct.DataError, match=r"x\.npy' .*elements of type"):
        session.fit(tmp_path / "x.npy", np.zeros((2, 5)), verbose=0)
