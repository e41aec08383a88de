"""What the system may refuse, refused one by one: the first call, the second, … until a run passes.

After each the files are the old ones or the new ones, the error is ours, and nothing is left lying about.
"""

from __future__ import annotations

import builtins
import errno
import io
import mmap
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import networks
import numpy as np
import pytest

import circle_train as ct
from circle_train.ir import mapped
from circle_train.runtime import pages

DATA = Path(__file__).parents[1] / "data"
X, Y = np.ones((8, 6), np.float32), np.ones((8, 5), np.float32)
CONFIG = ct.TrainConfig(loss="mse", batch_size=4, optimizer=ct.optimizers.Adam(0.01))
Run = Callable[[Path], Any]


class Faults:
    """Counts calls, and lets one of them fail."""

    def __init__(self, failing: int) -> None:
        self.failing, self.calls = failing, 0
        self.what = ""

    def guard(
        self, name: str, call: Callable[..., Any], error: Callable[[], BaseException]
    ) -> Callable[..., Any]:
        def guarded(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            if self.calls == self.failing:
                self.what = name
                raise error()
            return call(*args, **kwargs)

        return guarded


def full() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def broken() -> OSError:
    return OSError(errno.EIO, os.strerror(errno.EIO))


class Written(io.BufferedWriter):
    """A file whose every write and flush may fail."""

    faults: Faults

    def write(self, data: Any) -> int:
        count: int = self.faults.guard("write", super().write, full)(data)
        return count

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)


@contextmanager
def faulty_files(faults: Faults, patch: pytest.MonkeyPatch) -> Iterator[None]:
    def written(handle: int, mode: str) -> io.BufferedWriter:
        file = Written(io.FileIO(handle, mode))
        file.faults = faults
        return file

    with patch.context() as inner:
        inner.setattr(os, "fdopen", written)
        for name in ("open", "fsync", "replace"):
            inner.setattr(os, name, faults.guard(name, getattr(os, name), broken))
        inner.setattr(builtins, "open", faults.guard("builtin open", builtins.open, broken))
        inner.setattr(mapped, "FileMap", unmappable(faults))
        yield


def unmappable(faults: Faults) -> type:
    """Files that may not be mapped."""
    make = faults.guard("mmap", mapped.FileMap.__new__, lambda: OSError(errno.ENOMEM, "no addresses"))

    class Unmappable(mapped.FileMap):
        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            return make(cls, *args, **kwargs)

    return Unmappable


@contextmanager
def faulty_memory(faults: Faults, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a program asks for as a whole, small and large."""

    class System:
        """Stands for the module mmap."""

        mmap = staticmethod(faults.guard("anonymous mmap", mmap.mmap, lambda: OSError(errno.ENOMEM, "none")))

        def __getattr__(self, name: str) -> Any:
            return getattr(mmap, name)

    class Numpy:
        """Stands for numpy."""

        zeros = staticmethod(faults.guard("zeros", np.zeros, MemoryError))

        def __getattr__(self, name: str) -> Any:
            return getattr(np, name)

    with patch.context() as inner:
        inner.setattr(pages, "mmap", System())
        inner.setattr(pages, "np", Numpy())
        yield


@contextmanager
def faulty_threads(faults: Faults, patch: pytest.MonkeyPatch) -> Iterator[None]:
    with patch.context() as inner:
        start = faults.guard("start", threading.Thread.start, lambda: RuntimeError("can't start new thread"))
        inner.setattr(threading.Thread, "start", start)
        yield


def opened(folder: Path) -> ct.TrainSession:
    return ct.TrainSession(folder / "model.circle", CONFIG, threads=1)


def train_with_checkpoints(folder: Path) -> None:
    callbacks = [
        ct.callbacks.ModelCheckpoint(path=str(folder / "last.safetensors")),
        ct.callbacks.CSVLogger(path=str(folder / "log.csv")),
    ]
    opened(folder).fit(X, Y, epochs=2, verbose=0, callbacks=callbacks)


def resume(folder: Path) -> None:
    session = opened(folder)
    session.load_checkpoint(folder / "old.safetensors")
    session.train_step(X[:4], Y[:4])


def export_with_data_beside(folder: Path) -> None:
    session = ct.TrainSession(folder / "net.onnx", ct.TrainConfig(loss="mse", batch_size=2), threads=1)
    program = session.program
    session.train_step(*(np.ones(t.shape, np.float32) for t in (program.inputs[0], program.targets[0])))
    session.export(folder / "out.onnx")


RUNS: dict[str, Run] = {
    "load": lambda folder: opened(folder).prepare(),
    "train with checkpoints": train_with_checkpoints,
    "resume": resume,
    "export": lambda folder: opened(folder).export(folder / "out.tflite"),
    "export over the model": lambda folder: opened(folder).export(folder / "model.circle"),
    "export with external data": export_with_data_beside,
    "package": lambda folder: ct.make_artifacts(folder / "model.circle", folder / "package", CONFIG),
    "save a checkpoint for ONERT": lambda folder: opened(folder).save_checkpoint(folder / "out.ckpt"),
}


def prepared(folder: Path) -> Path:
    """What lies there before."""
    folder.mkdir()
    shutil.copy(DATA / "mlp.circle", folder / "model.circle")
    for name in ("last.safetensors", "log.csv", "out.tflite", "out.onnx", "out.onnx.data", "out.ckpt"):
        (folder / name).write_bytes(b"old")
    session = opened(folder)
    session.train_step(X[:4], Y[:4])
    session.save_checkpoint(folder / "old.safetensors")
    onnx = pytest.importorskip("onnx")
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[N, 6] x) => (float[N, 5] y) { y = MatMul (x, w) }'
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((6, 5), np.float32), "w"))
    onnx.save(model, folder / "net.onnx", save_as_external_data=True, location="net.data", size_threshold=0)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("kind", [faulty_files, faulty_memory], ids=["files", "memory"])
def test_what_is_refused_leaves_old_files_or_new(
    name: str, kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = prepared(tmp_path / "origin")
    before = contents(origin)
    shutil.copytree(origin, tmp_path / "whole")
    RUNS[name](tmp_path / "whole")
    after = contents(tmp_path / "whole")
    failing = 0
    while True:
        failing += 1
        folder = tmp_path / f"run{failing}"
        shutil.copytree(origin, folder)
        faults, error = Faults(failing), None
        with kind(faults, monkeypatch):
            try:
                RUNS[name](folder)
            except ct.CircleTrainError as refusal:
                error = refusal
        found = contents(folder)
        for file, content in found.items():
            place = f"{file} after the {failing}. call ({faults.what}) was refused: {error}"
            assert not Path(file).name.startswith("."), place
            assert content in (before.get(file), after.get(file)) or is_between(folder / file), place
        if error is None and not faults.what:
            assert found == after
            break
        assert error is not None or found == after, f"the {failing}. call ({faults.what}) failed unnoticed"
        shutil.rmtree(folder)
    assert failing > 1


def is_between(path: Path) -> bool:
    """A checkpoint or a log of an earlier epoch than the last."""
    if path.suffix == ".csv":
        return path.read_text().startswith("epoch,")
    if path.name != "last.safetensors":
        return False
    session = opened(path.parent)
    session.load_checkpoint(path)
    return session.state.step in (2, 4)


def test_threads_that_do_not_start_are_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes of a frozen beginning, digests of large files: the work is done by those that run."""
    config = ct.TrainConfig(loss="mse", batch_size=64, trainable=("last", 1))
    results = []
    for failing in (0, 1, 2, 3):
        faults = Faults(failing)
        session = ct.TrainSession(networks.cnn(), config, threads=3)
        inputs, targets = session.program.inputs[0], session.program.targets[0]
        x = np.random.default_rng(0).random(inputs.shape, np.float32)
        with faulty_threads(faults, monkeypatch):
            session.train_step(x, np.zeros(targets.shape, np.float32))
        results.append(session.parameters.flat())
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])
