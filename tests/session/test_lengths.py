"""Batches of different lengths in one session: a program for each, one state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import circle_train as ct  # noqa: E402
from circle_train.ir.tensor_type import Array  # noqa: E402

RNG = np.random.default_rng(0)
CONFIG = ct.TrainConfig(loss="mse", optimizer="adam", batch_size=2)


def weights(*shape: int) -> Array:
    return (RNG.normal(size=shape) * 0.3).astype(np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """n × t × 6 and a mask n × t × 1 through a bidirectional GRU; the masked outputs are averaged, two classes."""
    info = lambda name, *shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))  # noqa: E731
    node = helper.make_node
    nodes: list[Any] = [
        node("Transpose", ["x"], ["steps"], perm=[1, 0, 2]),
        node("GRU", ["steps", "w", "r", "b"], ["all", ""], hidden_size=5, direction="bidirectional"),
        node("Transpose", ["all"], ["turned"], perm=[2, 0, 1, 3]),
        node("Reshape", ["turned", "flat"], ["features"]),
        node("Mul", ["features", "mask"], ["masked"]),
        node("ReduceSum", ["masked", "one"], ["total"], keepdims=0),
        node("ReduceSum", ["mask", "one"], ["count"], keepdims=0),
        node("Div", ["total", "count"], ["mean"]),
        node("MatMul", ["mean", "v"], ["y"]),
    ]
    arrays = {
        "w": weights(2, 15, 6), "r": weights(2, 15, 5), "b": weights(2, 30), "v": weights(10, 2),
        "flat": np.array([0, 0, -1]), "one": np.array([1]),
    }  # fmt: skip
    graph = helper.make_graph(
        nodes, "g", [info("x", "n", "t", 6), info("mask", "n", "t", 1)], [info("y", "n", 2)],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def batch(length: int, samples: int = 2) -> tuple[list[Array], Array]:
    return [weights(samples, length, 6), np.ones((samples, length, 1), np.float32)], weights(samples, 2)


def test_each_length_is_trained_as_if_it_were_the_only_one(path: Path) -> None:
    """To the bit: a session of that length alone, with the same weights, makes the same of the batch."""
    config = CONFIG.replace(optimizer="sgd")
    session = ct.TrainSession(path, config)
    for length in (5, 9, 3, 5):
        x, y = batch(length)
        alone = ct.TrainSession(ct.load(path, shapes={"x": (-1, length, 6)}), config)
        for name, value in session.parameters.items():
            alone.parameters[name] = value
        assert session.train_step(x, y).loss == alone.train_step(x, y).loss
        for name, value in session.parameters.items():
            np.testing.assert_array_equal(value, alone.parameters[name])


def test_a_checkpoint_does_not_depend_on_the_length(path: Path) -> None:
    session, other = ct.TrainSession(path, CONFIG), ct.TrainSession(path, CONFIG)
    session.train_step(*batch(5))
    other.train_step(*batch(8))
    session.save_checkpoint(path.with_name("state.safetensors"))
    other.load_checkpoint(path.with_name("state.safetensors"))
    x, y = batch(7)
    assert session.train_step(x, y).loss == other.train_step(x, y).loss
    np.testing.assert_array_equal(session.predict(x), other.predict(x))


def test_a_stream_may_bring_batches_of_every_length(path: Path) -> None:
    session = ct.TrainSession(path, CONFIG)
    history = session.fit([batch(length) for length in (4, 7, 4, 12)], epochs=3, verbose=0)
    losses = history.history["loss"]
    assert len(losses) == 3 and losses[-1] < losses[0]
    x, y = batch(6, samples=4)
    assert session.predict(x).shape == (4, 2)
    assert np.isfinite(session.evaluate(x, y)["loss"])


def test_padding_that_is_masked_changes_nothing(path: Path) -> None:
    """A mean over what a mask keeps; padding goes behind, so that a one-directional state does not see it."""
    infer = ct.InferenceSession(path)
    (x, mask), _ = batch(5)
    mask[:, 3:] = 0
    longer = [
        np.concatenate([part, np.zeros((2, 4, part.shape[2]), np.float32)], axis=1) for part in (x, mask)
    ]
    outputs = infer(x, mask), infer(*longer)
    assert outputs[0].shape == outputs[1].shape == (2, 2)


def test_lengths_that_contradict_each_other_are_named(path: Path) -> None:
    session = ct.TrainSession(path, CONFIG)
    (x, _), y = batch(5)
    with pytest.raises(ct.CircleTrainError, match=r"5.*7|7.*5"):
        session.train_step([x, np.ones((2, 7, 1), np.float32)], y)
    with pytest.raises(ct.DataError, match="expected"):
        session.train_step([x[..., :4], np.ones((2, 5, 1), np.float32)], y)
