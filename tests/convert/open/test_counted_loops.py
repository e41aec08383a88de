"""Loops that count to an open size, as tf2onnx writes Keras's recurrent layers: their results are as long as that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import circle_train as ct
from circle_train.ir.tensor_type import Array

onnx = pytest.importorskip("onnx")
helper, FLOAT, INT64, BOOL = (
    onnx.helper,
    onnx.TensorProto.FLOAT,
    onnx.TensorProto.INT64,
    onnx.TensorProto.BOOL,
)
W = np.linspace(-0.6, 0.7, 9, dtype=np.float32).reshape(3, 3)


def constant(name: str, value: Any) -> Any:
    return onnx.numpy_helper.from_array(np.array(value), name)


def info(name: str, kind: int, shape: Any) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def body(bounded: bool) -> Any:
    """h = tanh(x[t] + h · w) as long as t + 1 < length, compared as floats; with `bounded`, the turns are counted as well."""
    node = helper.make_node
    nodes = [
        node("Add", ["t", "one"], ["next"]),
        node("Gather", ["steps", "t"], ["row"], axis=0),
        node("MatMul", ["h", "w"], ["product"]),
        node("Add", ["row", "product"], ["sum"]),
        node("Tanh", ["sum"], ["state"]),
        node("Identity", ["state"], ["kept"]),
        node("Cast", ["next"], ["now"], to=FLOAT),
        node("Cast", ["length"], ["end"], to=FLOAT),
        node("Less", ["now", "end"], ["going"]),
    ]
    if bounded:
        nodes += [node("Less", ["turn", "length"], ["within"]), node("And", ["within", "going"], ["both"])]
    inputs = [
        info("turn", INT64, []),
        info("before", BOOL, []),
        info("t", INT64, []),
        info("h", FLOAT, [None, 3]),
    ]
    names = [("both" if bounded else "going", BOOL, []), ("next", INT64, []), ("state", FLOAT, [None, 3])]
    return helper.make_graph(
        nodes, "body", inputs, [info(*n) for n in names] + [info("kept", FLOAT, [None, 3])]
    )


def recurrent(bounded: bool, start: int = 0) -> bytes:
    """All states of a cell over batch × time × 3 from a step on, and the last of them."""
    node = helper.make_node
    nodes = [
        node("Transpose", ["x"], ["steps"], perm=[1, 0, 2]),
        node("Shape", ["steps"], ["shape"]),
        node("Slice", ["shape", "zeros", "ones", "zeros"], ["lengths"]),
        node("Squeeze", ["lengths", "zeros"], ["length"]),
        node("Slice", ["shape", "ones", "twos", "zeros"], ["batch"]),
        node("Concat", ["batch", "threes"], ["first"], axis=0),
        node("ConstantOfShape", ["first"], ["h0"]),
        node("Less", ["start", "length"], ["begins"]),
        node(
            "Loop",
            ["length" if bounded else "", "begins", "start", "h0"],
            ["t", "last", "all"],
            body=body(bounded),
        ),
        node("Slice", ["all", "minus", "end", "zeros"], ["tail"]),
        node("Transpose", ["all"], ["y"], perm=[1, 0, 2]),
        node("Squeeze", ["tail", "zeros"], ["z"]),
    ]
    values = {
        "zeros": [0],
        "ones": [1],
        "twos": [2],
        "threes": [3],
        "minus": [-1],
        "end": [2**31 - 1],
        "start": start,
        "one": 1,
    }
    given = [constant("w", W), *(constant(name, np.array(value, np.int64)) for name, value in values.items())]
    ends = [info("y", FLOAT, [None, None, 3]), info("z", FLOAT, [None, 3])]
    graph = helper.make_graph(nodes, "net", [info("x", FLOAT, ["n", "time", 3])], ends, given)
    return bytes(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
        ).SerializeToString()
    )


def states(x: Array, w: Array = W) -> Array:
    h, found = np.zeros((len(x), 3)), []
    for t in range(x.shape[1]):
        h = np.tanh(x[:, t] + h @ w)
        found.append(h)
    return np.stack(found, 1)


@pytest.mark.parametrize(("bounded", "start"), [(False, 0), (True, 0), (False, 2)])
def test_its_results_have_the_length(bounded: bool, start: int) -> None:
    model = ct.load(recurrent(bounded, start))
    assert model.inputs[0].shape == (-1, -1, 3)
    for shape in ((1, 5, 3), (3, 3, 3), (2, 9, 3)):
        x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        y, z = ct.InferenceSession(model)(x)
        expected = states(x[:, start:])
        np.testing.assert_allclose(y, expected, atol=1e-5)
        np.testing.assert_allclose(z, expected[:, -1], atol=1e-5)


@pytest.mark.parametrize(("bounded", "start"), [(False, 0), (True, 0), (False, 2)])
def test_it_trains_at_every_length_and_goes_back(bounded: bool, start: int, tmp_path: Path) -> None:
    config = ct.TrainConfig(loss="mse", batch_size=2, outputs=["y"], optimizer=ct.optimizers.SGD(1.0))
    session = ct.TrainSession(ct.load(recurrent(bounded, start)), config)
    for length in (4, 7):
        x = np.random.default_rng(length).normal(size=(2, length, 3)).astype(np.float32)
        before = session.parameters["w"].astype(np.float64)
        seen = x[:, start:]
        loss = session.train_step(x, np.zeros_like(seen)).loss
        assert abs(loss - np.mean(states(seen, before) ** 2)) < 1e-5
        step = np.zeros((3, 3))
        for place in np.ndindex(3, 3):
            moved = before.copy()
            moved[place] += 1e-6
            step[place] = (np.mean(states(seen, moved) ** 2) - np.mean(states(seen, before) ** 2)) / 1e-6
        np.testing.assert_allclose(session.parameters["w"], before - step, atol=1e-4)
    session.export(tmp_path / "out.onnx")
    y = ct.InferenceSession(tmp_path / "out.onnx")(x)[0]
    np.testing.assert_allclose(y, states(seen, session.parameters["w"]), atol=1e-5)


def test_a_long_one_stays_a_loop_in_the_file() -> None:
    session = ct.InferenceSession(recurrent(bounded=False))
    x = np.random.default_rng(0).normal(size=(1, 1500, 3)).astype(np.float32)
    np.testing.assert_allclose(session(x)[1], states(x)[:, -1], atol=1e-4)
