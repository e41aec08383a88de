"""What the conversion turns is made when somebody looks at it, and nobody keeps it who trains a copy."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import circle_train as ct

WIDE = 256


@pytest.fixture(name="path")
def fixture_path(tmp_path: Path) -> Path:
    """A product and a convolution whose weights Circle wants in another order, in a file large enough to be mapped."""
    rng = np.random.default_rng(0)
    weights = {
        "kernel": rng.standard_normal((WIDE, 8, 3, 3)).astype(np.float32),
        "w": rng.standard_normal((WIDE, 4 * WIDE)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["a"]),
        helper.make_node("GlobalAveragePool", ["a"], ["b"]),
        helper.make_node("Flatten", ["b"], ["c"]),
        helper.make_node("MatMul", ["c", "w"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8, 5, 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4 * WIDE])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def by_name(model: ct.Model) -> dict[str, np.ndarray]:
    tensors = model.module.main.all_tensors()
    return {tensor.name: tensor.data for tensor in tensors if tensor.name in ("kernel", "w")}


def test_elements_are_those_of_the_file_in_another_order(path: Path) -> None:
    made = by_name(ct.load(path))
    file = {one.name: numpy_helper.to_array(one) for one in onnx.load(path).graph.initializer}
    np.testing.assert_array_equal(made["kernel"], file["kernel"].transpose(0, 2, 3, 1))
    np.testing.assert_array_equal(made["w"], file["w"].T)
    assert all(value.flags.c_contiguous for value in made.values())


def test_a_loaded_model_holds_none_of_them(path: Path) -> None:
    tracemalloc.start()
    model = ct.load(path)
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    values = by_name(model)
    looked_at, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    nbytes = sum(value.nbytes for value in values.values())
    assert held < nbytes / 2
    assert looked_at - held > 0.9 * nbytes


def test_who_looks_while_another_holds_it_sees_the_same_array(path: Path) -> None:
    model = ct.load(path)
    first = by_name(model)
    assert all(np.shares_memory(value, first[name]) for name, value in by_name(model).items())


def test_training_beside_it_changes_no_other_session(path: Path) -> None:
    model = ct.load(path)
    x, y = np.ones((2, 8, 5, 5), np.float32), np.zeros((2, 4 * WIDE), np.float32)
    one, other = (ct.TrainSession(model, ct.TrainConfig(loss="mse", batch_size=2)) for _ in range(2))
    losses = [one.train_step(x, y).loss for _ in range(2)]
    assert [other.train_step(x, y).loss for _ in range(2)] == losses
    assert losses[1] != losses[0]


def test_a_file_that_is_written_to_is_noticed(path: Path) -> None:
    session = ct.TrainSession(ct.load(path), ct.TrainConfig(loss="mse", batch_size=1))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ct.ModelError, match="written to since"):
        session.train_step(np.ones((1, 8, 5, 5), np.float32), np.zeros((1, 4 * WIDE), np.float32))
