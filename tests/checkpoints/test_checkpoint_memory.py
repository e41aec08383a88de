"""Files are written and read array by array: nowhere does the whole of one stand in memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import networks
import numpy as np
import pytest

import circle_train as ct
from circle_train.checkpoints import own

WIDTH, DEPTH = 512, 4
ARRAY = 4 * WIDTH * WIDTH
"""Bytes of one weight: its value, two moments and a gradient that waits are as large."""


@pytest.fixture
def session() -> ct.TrainSession:
    graph = networks.Graph("deep", [networks.new_input("x", 1, WIDTH)])
    x = graph.inputs[0]
    for layer in range(DEPTH):
        x = graph.emit(networks.make("FULLY_CONNECTED"), x, networks.weight(f"w{layer}", WIDTH, WIDTH), None)
    made = ct.TrainSession(
        networks.finish(graph, x), ct.TrainConfig(loss="mse", optimizer="adam", batch_size=1)
    )
    random = np.random.default_rng(0)
    made.train_step(random.random((1, WIDTH), np.float32), random.random((1, WIDTH), np.float32))
    return made


def peak(work: Callable[[], object]) -> int:
    """Bytes that Python and numpy allocate at the most."""
    tracemalloc.start()
    work()
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found


@pytest.mark.parametrize("suffix", ["safetensors", "ckpt"])
def test_a_checkpoint_is_written_and_read_array_by_array(
    session: ct.TrainSession, tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"state.{suffix}"
    assert peak(lambda: session.save_checkpoint(path)) < ARRAY
    assert path.stat().st_size > 3 * DEPTH * ARRAY
    before = session.parameters.flat().copy()
    session.parameters["w0"] = np.zeros((WIDTH, WIDTH), np.float32)
    assert peak(lambda: session.load_checkpoint(path)) < 2.5 * ARRAY
    np.testing.assert_array_equal(session.parameters.flat(), before)


def test_a_checkpoint_that_is_written_to_while_it_is_read_changes_nothing(
    session: ct.TrainSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.safetensors"
    session.save_checkpoint(path)
    before = session.parameters.flat().copy()
    decode = own.decode_state

    def overtaken(*arguments: object) -> object:
        found = decode(*arguments)
        with open(path, "ab") as file:
            file.write(b"more")
        return found

    monkeypatch.setattr(own, "decode_state", overtaken)
    session.parameters["w0"] = np.zeros((WIDTH, WIDTH), np.float32)
    with pytest.raises(ct.CheckpointError, match=r"when it was read and has .* nothing was changed"):
        session.load_checkpoint(path)
    assert not session.parameters["w0"].any() and before.any()


def test_an_onnx_file_is_written_array_by_array(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    random = np.random.default_rng(0)
    weights = [
        onnx.numpy_helper.from_array(random.random((WIDTH, WIDTH), np.float32), f"w{i}") for i in range(DEPTH)
    ]
    nodes = [onnx.helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"]) for i in range(DEPTH)]
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", WIDTH])
        for name in ("x0", f"x{DEPTH}")
    ]
    graph = onnx.helper.make_graph(nodes, "deep", ends[:1], ends[1:], weights)
    onnx.save(onnx.helper.make_model(graph), tmp_path / "deep.onnx")
    session = ct.TrainSession(tmp_path / "deep.onnx", ct.TrainConfig(loss="mse", batch_size=1))
    session.train_step(random.random((1, WIDTH), np.float32), random.random((1, WIDTH), np.float32))
    assert peak(lambda: session.export(tmp_path / "trained.onnx")) < 2.5 * ARRAY
    written = ct.TrainSession(tmp_path / "trained.onnx", session.config).parameters
    for name, value in session.parameters.items():
        np.testing.assert_array_equal(written[name], value)
