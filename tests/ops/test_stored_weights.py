"""Weights that a file holds sparse, in blocks or as integers: made dense, trained, written back in their own form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_ops_litert import LiteRT

import circle_train as ct
from circle_train.errors import ModelError
from circle_train.format import read, write
from circle_train.ir import Buffer, DType, Graph, Module, Node, Quantization, Tensor, TensorType
from circle_train.ops import REGISTRY
from circle_train.ops.numeric.quantize import densify, dequantize

SPARSE = {
    "traversal_order": np.array([0, 1, 2, 3]),
    "block_map": np.array([0, 1]),
    "dim_metadata": [
        {"dense_size": 2},
        {
            "format": 1,
            "array_segments": {"values": np.array([0, 1, 2])},
            "array_indices": {"values": np.array([1, 0])},
        },
        {"dense_size": 2},
        {"dense_size": 2},
    ],
}


def test_blocks_become_dense() -> None:
    """The 2×2 blocks at (0, 1) and (1, 0) of a 4×4 matrix, as TFLite's format description lays them out."""
    dense = densify(np.arange(1, 9, dtype=np.float32), SPARSE, (4, 4))
    np.testing.assert_array_equal(dense, [[0, 0, 1, 2], [0, 0, 3, 4], [5, 6, 0, 0], [7, 8, 0, 0]])


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("traversal_order", np.array([0, 1, 2, 2]), "traversal order"),
        ("block_map", np.array([0, 7]), "block map"),
        ("dim_metadata", SPARSE["dim_metadata"][:3], "3 dimensions"),
        (
            "dim_metadata",
            [{"dense_size": 1 << 30}, *SPARSE["dim_metadata"][1:]],
            "level 0 is dense with size",
        ),
        ("dim_metadata", [*SPARSE["dim_metadata"][:3], {"dense_size": 3}], "blocks of 3"),
        (
            "dim_metadata",
            [SPARSE["dim_metadata"][0], {"format": 1}, *SPARSE["dim_metadata"][2:]],
            "0 segments",
        ),
    ],
)
def test_damaged_sparsity_is_refused(field: str, value: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        densify(np.arange(1, 9, dtype=np.float32), {**SPARSE, field: value}, (4, 4))


def test_other_number_of_elements_is_refused() -> None:
    with pytest.raises(ModelError, match="describes 8 elements, the buffer holds 7"):
        densify(np.arange(7, dtype=np.float32), SPARSE, (4, 4))


def vector(*numbers: int) -> dict[str, Any]:
    return {"values": np.array(numbers, np.int32)}


def encoded(
    name: str, stored_values: Any, shape: tuple[int, ...], quantization: Quantization | None
) -> Tensor:
    array = np.asarray(stored_values)
    type_ = TensorType(DType.of(array.dtype), shape)
    return Tensor(name, type_, Buffer(array.reshape(-1).view(np.uint8)), quantization=quantization)


def sparse_weights() -> Tensor:
    """Four rows of four, of which the stored elements are four."""
    tensor = encoded("w", np.array([1, 2, 3, 4], np.float16), (4, 4), None)
    rows = {"format": 1, "array_segments_type": 1, "array_segments": vector(0, 1, 1, 3, 4)}
    rows |= {"array_indices_type": 1, "array_indices": vector(2, 0, 3, 1)}
    levels = [{"dense_size": 4}, rows]
    order = np.array([0, 1], np.int32)
    tensor.carried["fields"] = {"sparsity": {"traversal_order": order, "dim_metadata": levels}}
    return tensor


def trained(module: Module, tmp_path: Path) -> tuple[ct.TrainSession, Path]:
    config = ct.TrainConfig(
        loss="mean_squared_error", optimizer=ct.optimizers.SGD(learning_rate=0.25), batch_size=1
    )
    session = ct.TrainSession(write(module, "TFL3"), config)
    losses = [
        session.train_step(np.ones((1, 4), np.float32), np.zeros((1, 4), np.float32)).loss for _ in range(4)
    ]
    assert losses[-1] < losses[0] / 2
    session.export(tmp_path / "trained.tflite")
    return session, tmp_path / "trained.tflite"


def test_sparse_weights_train_within_their_pattern(tmp_path: Path) -> None:
    w, x, y = sparse_weights(), *(Tensor(name, TensorType(DType.FLOAT32, (1, 4))) for name in ("x0", "y"))
    half = Tensor("half", TensorType(DType.FLOAT16, (4, 4)))
    dense = Tensor("dense", TensorType(DType.FLOAT32, (4, 4)))
    nodes = [
        Node(REGISTRY["DENSIFY"](), [w], [half], 0),
        Node(REGISTRY["DEQUANTIZE"](), [half], [dense], 1),
        Node(REGISTRY["FULLY_CONNECTED"](), [x, dense], [y], 2),
    ]
    session, path = trained(Module([Graph("main", [x], [y], nodes)]), tmp_path)
    saved = next(tensor for tensor in read(path).main.tensors if tensor.name == "w")
    assert saved.buffer is not None
    np.testing.assert_array_equal(
        saved.buffer.bytes.view(np.float16), session.parameters["w"].astype(np.float16)
    )
    feed = np.arange(4, dtype=np.float32).reshape(1, 4)
    pytest.importorskip("ai_edge_litert", reason="LiteRT (ai-edge-litert) is not installed")
    runner = LiteRT()
    (result,) = runner.run(path.read_bytes(), {"x0": feed}, ["y"])
    runner.pool.shutdown()
    np.testing.assert_allclose(result, session.predict(feed), rtol=2e-3, atol=2e-3)


def test_integer_weights_are_written_back_by_their_scale(tmp_path: Path) -> None:
    scale = Quantization((0.1, 0.2, 0.4, 0.8), (0, 0, 0, 0), 0)
    w = encoded("w", np.arange(-8, 8, dtype=np.int8), (4, 4), scale)
    x, y = (Tensor(name, TensorType(DType.FLOAT32, (1, 4))) for name in ("x0", "y"))
    dense = Tensor("dense", TensorType(DType.FLOAT32, (4, 4)))
    nodes = [
        Node(REGISTRY["DEQUANTIZE"](), [w], [dense], 0),
        Node(REGISTRY["FULLY_CONNECTED"](), [x, dense], [y], 1),
    ]
    session, path = trained(Module([Graph("main", [x], [y], nodes)]), tmp_path)
    saved = next(tensor for tensor in read(path).main.tensors if tensor.name == "w")
    real = dequantize(saved.data, scale)
    assert (np.abs(real - session.parameters["w"]) <= np.array(scale.scale)[:, None] / 2 + 1e-6).all()
