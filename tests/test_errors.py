"""Provoked failures: each message says the place, what was found, what was expected, and what to do."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import numpy as np
import pytest
from networks import finish, make, mlp, new_input, two_headed, weight

import circle_train as ct
from circle_train.ir import Graph, Node, Tensor
from circle_train.ir.graph import constant
from circle_train.model import Model
from circle_train.ops.opaque import Opaque

X, Y = np.zeros((8, 6), np.float32), np.zeros((8, 4), np.float32)


def session(model: Model | None = None, **settings: object) -> ct.TrainSession:
    defaults: dict = {"loss": "mse", "batch_size": 8}
    return ct.TrainSession(model or mlp(), ct.TrainConfig(**{**defaults, **settings}), backend="reference")


def wrong_channels() -> Model:
    """A graph whose convolution takes four channels of an image that has three."""
    graph = Graph("bad", [new_input("image", 1, 8, 8, 4)])
    conv = make("CONV_2D", stride_h=1, stride_w=1)
    x = graph.emit(conv, graph.inputs[0], weight("w", 16, 3, 3, 4), weight("b", 16), name="block1/conv")
    model = finish(graph, x)
    graph.inputs[0].type = graph.inputs[0].type.with_shape((1, 8, 8, 3))
    graph.inputs[0].shape_signature = (-1, 8, 8, 3)
    return model


def opaque() -> Model:
    """Two operators that nobody knows, behind a network."""
    model = mlp()
    graph = model.module.main
    for name in ("first", "second"):
        source = graph.outputs[0]
        out = Tensor(name, source.type)
        op = Opaque(label=f"CUSTOM:{name}Op", custom_code=f"{name}Op", output_types=(source.type,))
        graph.append(Node(op, [source], [out], index=len(graph.nodes)))
        graph.outputs[0] = out
    return model


CASES: list[tuple[str, type[Exception], Callable[[], object], list[str]]] = [
    ("no such file", ct.ModelError, lambda: ct.load("nowhere.circle"), ["nowhere.circle", "no such file", "give the path"]),
    ("not a model", ct.ModelError, lambda: ct.load(b"TFL3" * 10), ["get an intact copy"]),
    ("channels", ct.ModelError, lambda: session(wrong_channels(), batch_size=2).prepare(),
     ["CONV_2D 'block1/conv' (operator 0)", "3 channels", "weights take 4", "must be"]),
    ("unknown operators", ct.UnsupportedOpError, lambda: session(opaque()).prepare(),
     ["2 operator", "firstOp", "secondOp", "cut the model"]),
    ("unknown loss", ct.ConfigError, lambda: ct.TrainConfig(loss="hinge"), ["hinge", "expected one of", "mean_squared_error"]),
    ("unknown optimizer", ct.ConfigError, lambda: ct.TrainConfig(optimizer="lion"), ["lion", "expected one of", "adam"]),
    ("learning rate", ct.ConfigError, lambda: ct.optimizers.SGD(learning_rate=-1), ["SGD", "learning_rate is -1", "positive"]),
    ("beta", ct.ConfigError, lambda: ct.optimizers.Adam(beta_1=1.0), ["Adam", "beta_1 is 1.0", "[0, 1)"]),
    ("batch size", ct.ConfigError, lambda: ct.TrainConfig(batch_size=0), ["batch_size is 0", "from 1"]),
    ("trainable word", ct.ConfigError, lambda: ct.TrainConfig(trainable="some"), ["'some'", "'all', 'none'"]),
    ("operator index", ct.ConfigError, lambda: session(trainable=[9]).prepare(), ["operator 9", "0 … 2"]),
    ("losses for outputs", ct.ConfigError, lambda: session(two_headed(), loss=("mse", "mse", "mse")).prepare(),
     ["3 losses", "2 outputs", "give one"]),
    ("no settings", ct.ConfigError, lambda: ct.TrainSession(mlp()).prepare(), ["no training settings", "pass a TrainConfig"]),
    ("backend", ct.ConfigError, lambda: ct.TrainSession(mlp(), ct.TrainConfig(), backend="cuda"), ["'cuda'", "reference"]),
    ("input shape", ct.DataError, lambda: session().train_step(X[:, :5], Y), ["'x'", "8×5", "8×6"]),
    ("label shape", ct.DataError, lambda: session().train_step(X, Y[:, :3]), ["'softmax'", "8×3", "8×4"]),
    ("label range", ct.DataError,
     lambda: session(loss="sparse_categorical_crossentropy").train_step(X, np.array([0, 1, 2, 3, 0, 7, 1, 2])), ["7", "3"]),
    ("sample counts", ct.DataError, lambda: session().fit(X, Y[:5]), ["8", "5"]),
    ("empty data", ct.DataError, lambda: session().fit(X[:0], Y[:0]), ["empty"]),
    ("strings", ct.DataError, lambda: session().train_step(np.full((8, 6), "a"), Y), ["numbers"]),
    ("missing labels", ct.DataError, lambda: session().fit(X), ["y is missing", "give labels"]),
    ("inputs by name", ct.DataError, lambda: ct.InferenceSession(mlp(), backend="reference").run(None, {"z": X}), ["z", "x"]),
    ("parameter name", ct.DataError, lambda: session().parameters["w"], ["'w'", "fc0/w"]),
    ("parameter shape", ct.DataError, lambda: session().parameters.update({"fc0/w": Y}), ["fc0/w", "(8, 4)", "give that"]),
    ("checkpoint suffix", ct.CheckpointError, lambda: session().save_checkpoint("a.bin"), [".bin", ".ckpt", ".safetensors"]),
    ("missing checkpoint", ct.CheckpointError, lambda: session().load_checkpoint("no.ckpt"), ["no.ckpt"]),
    ("export to onnx", ct.ConfigError, lambda: session().export("a.onnx"), ["a.onnx", "did not come from ONNX", ".circle"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("error", "provoke", "words"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_the_message_helps(
    error: type[Exception], provoke: Callable[[], object], words: list[str], tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error) as caught:
        provoke()
    message = str(caught.value)
    for word in words:
        assert word in message, message
    assert "\n" not in message
    assert list(tmp_path.iterdir()) == [], "a refused call must not leave a file"


def test_a_refused_batch_changes_nothing() -> None:
    trained = session()
    trained.train_step(X, Y)
    before, step = trained.parameters.flat().copy(), trained.state.step
    for x, y in ((X[:, :5], Y), (X, Y[:3]), (X * np.nan, Y)):
        with pytest.raises(ct.CircleTrainError):
            trained.train_step(x, y)
    np.testing.assert_array_equal(trained.parameters.flat(), before)
    assert trained.state.step == step


def test_a_constant_of_the_wrong_kind_is_named() -> None:
    graph = Graph("bad", [new_input("x", 1, 6)])
    with pytest.raises(ct.ModelError):
        graph.emit(make("RESHAPE"), graph.inputs[0], constant(np.array([5, 5], np.int32)))
