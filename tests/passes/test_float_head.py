"""An integer model whose last operators become float: same numbers, a head that learns, a body that stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import circle_train as ct
from circle_train.cli.main import main
from circle_train.format import read
from circle_train.ir import Buffer, DType, Graph, Module, Node, Quantization, Tensor, TensorType
from circle_train.ops import REGISTRY

SHARED = Path(__file__).parents[3] / "shared" / "data"
RNG = np.random.default_rng(0)
X = RNG.integers(-128, 128, (8, 6)).astype(np.int8)
Y = np.arange(8) % 3


def stored(name: str, values: Any, scale: float | list[float]) -> Tensor:
    scales = tuple(np.atleast_1d(scale).tolist())
    meaning = Quantization(scales, (0,) * len(scales), 0)
    buffer = Buffer(np.ascontiguousarray(values).reshape(-1).view(np.uint8))
    return Tensor(name, TensorType(DType.of(values.dtype), values.shape), buffer, quantization=meaning)


def activation(name: str, width: int, scale: float, zero: int) -> Tensor:
    tensor = Tensor(name, TensorType(DType.INT8, (1, width)), quantization=Quantization((scale,), (zero,)))
    tensor.shape_signature = (-1, width)
    return tensor


def integer_model() -> ct.Model:
    """Two dense layers and a softmax, all of int8; the second bias has no scale of its own."""
    rng = np.random.default_rng(1)
    x, hidden = activation("x", 6, 0.02, 3), activation("hidden", 5, 0.1, -128)
    logits, y = activation("logits", 3, 0.1, 1), activation("y", 3, 1 / 256, -128)
    w1 = stored("w1", rng.integers(-99, 99, (5, 6)).astype(np.int8), [0.01, 0.02, 0.01, 0.015, 0.02])
    b1 = stored("b1", rng.integers(-500, 500, 5).astype(np.int32), [0.0002, 0.0004, 0.0002, 0.0003, 0.0004])
    w2 = stored("w2", rng.integers(-99, 99, (3, 5)).astype(np.int8), 0.002)
    b2 = stored("b2", rng.integers(-900, 900, 3).astype(np.int32), 1.0)
    b2.quantization = None
    relu = {"fused_activation_function": type(REGISTRY["FULLY_CONNECTED"]().fused_activation_function).RELU}
    nodes = [
        Node(REGISTRY["FULLY_CONNECTED"](**relu), [x, w1, b1], [hidden], 0),
        Node(REGISTRY["FULLY_CONNECTED"](), [hidden, w2, b2], [logits], 1),
        Node(REGISTRY["SOFTMAX"](beta=1.0), [logits], [y], 2),
    ]
    return ct.Model(Module([Graph("main", [x], [y], nodes)]))


def probabilities(model: ct.Model) -> Any:
    found = ct.InferenceSession(model)(X)
    return found if found.dtype == np.float32 else (found.astype(np.float32) + 128) / 256


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_same_numbers_but_for_rounding(count: int) -> None:
    model = integer_model()
    head = model.with_float_head(count)
    assert head.outputs[0].dtype == np.float32 and head.outputs[0].shape == (-1, 3)
    assert [o.name for o in head.operators].count("DEQUANTIZE") == 1
    assert np.abs(probabilities(head) - probabilities(model)).max() < 0.05
    assert [o.name for o in model.operators] == ["FULLY_CONNECTED", "FULLY_CONNECTED", "SOFTMAX"]


def test_the_head_learns_and_the_body_stays(tmp_path: Path) -> None:
    head = integer_model().with_float_head(2)
    config = ct.TrainConfig(
        loss="sparse_categorical_crossentropy", optimizer=ct.optimizers.Adam(0.05), batch_size=8
    )
    session = ct.TrainSession(head, config)
    assert list(session.parameters) == ["w2", "b2"]
    np.testing.assert_allclose(session.parameters["b2"], head.module.main.nodes[2].inputs[2].data)
    losses = [session.train_step(X, Y).loss for _ in range(40)]
    assert losses[-1] < 0.8 * losses[0]
    session.export(tmp_path / "trained.tflite")
    np.testing.assert_allclose(
        ct.InferenceSession(tmp_path / "trained.tflite")(X), session.predict(X), rtol=0, atol=1e-6
    )
    kept = {t.name: t.dtype for t in read(tmp_path / "trained.tflite").main.all_tensors()}
    assert (kept["w1"], kept["b1"], kept["w2"], kept["b2"]) == (
        DType.INT8,
        DType.INT32,
        DType.FLOAT32,
        DType.FLOAT32,
    )


def test_a_reshape_among_the_integers_takes_any_batch() -> None:
    """Its constant shape names the one sample of the file."""
    model = integer_model()
    graph = model.module.main
    dense, hidden = graph.nodes[1], graph.nodes[0].outputs[0]
    turned = activation("turned", 5, 0.1, -128)
    shape = Tensor("shape", TensorType(DType.INT32, (2,)), Buffer(np.array([1, 5], np.int32).view(np.uint8)))
    graph.insert(Node(REGISTRY["RESHAPE"](new_shape=(1, 5)), [hidden, shape], [turned], 1), before=dense)
    graph.reconnect(dense, [turned, *dense.inputs[1:]])
    for count in (1, 2, 3):
        head = model.with_float_head(count)
        assert np.abs(probabilities(head) - probabilities(integer_model())).max() < 0.05
        config = ct.TrainConfig(loss="sparse_categorical_crossentropy", batch_size=2)
        if count > 1:
            assert np.isfinite(ct.TrainSession(head, config).train_step(X[:2], Y[:2]).loss)


def test_what_quantizes_at_the_end_is_left_out() -> None:
    model = integer_model()
    graph = model.module.main
    again = Tensor("again", TensorType(DType.UINT8, (1, 3)), quantization=Quantization((1 / 256,), (0,)))
    graph.append(Node(REGISTRY["QUANTIZE"](), [graph.outputs[0]], [again], 3))
    graph.outputs = [again]
    head = model.with_float_head(2)
    assert [o.name for o in head.operators] == ["FULLY_CONNECTED", "FULLY_CONNECTED", "DEQUANTIZE", "SOFTMAX"]
    assert head.outputs[0].name == "y"


@pytest.mark.parametrize("count", [0, 4, -1])
def test_a_head_has_some_of_the_operators(count: int) -> None:
    with pytest.raises(ct.ConfigError, match=f"with_float_head: {count} operators, expected 1 … 3"):
        integer_model().with_float_head(count)


def test_a_head_that_is_of_floats_already_is_refused() -> None:
    with pytest.raises(
        ct.ConfigError, match=r"with_float_head\(1\): the last operators hold no integers.*train them"
    ):
        ct.load("tests/data/mlp.circle").with_float_head(1)


@pytest.mark.parametrize("loss", ["mse", "sparse_categorical_crossentropy", "binary_crossentropy"])
def test_a_loss_of_integers_is_refused_with_the_remedy(loss: str) -> None:
    """Where no weights are integers; a model of integer weights is trained as it is."""
    model = integer_model()
    graph = model.module.main
    logits, y = graph.nodes[2].inputs[0], graph.outputs[0]
    alone = ct.Model(Module([Graph("main", [logits], [y], [graph.nodes[2]])]))
    config = ct.TrainConfig(loss=loss, batch_size=8)
    with pytest.raises(
        ct.ConfigError, match=r"the output is int8 [8?]×3, expected floats.*with_float_head\(n\)"
    ):
        ct.TrainSession(alone, config).prepare()
    assert ct.TrainSession(integer_model(), config).predict(X).dtype == np.float32


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    integer_model().save(tmp_path / "integers.circle")
    words = ["convert", str(tmp_path / "integers.circle"), str(tmp_path / "head.tflite"), "--float-head", "2"]
    assert main(words) == 0
    assert "4 operators" in capsys.readouterr().out
    assert ct.load(tmp_path / "head.tflite").outputs[0].dtype == np.float32
    assert main([*words[:-1], "9"]) == 1
    assert "error: with_float_head: 9 operators, expected 1 … 3" in capsys.readouterr().err


def head_scale(model: ct.Model, name: str) -> float:
    """Of the integers that become this float tensor."""
    made = next(node for node in model.module.main.nodes if node.outputs[0].name == name)
    return float(made.inputs[0].quantization.scale[0])


@pytest.mark.slow
def test_a_real_model_as_litert_runs_it(tmp_path: Path) -> None:
    """MLPerf Tiny's ResNet-8: LiteRT computes the hybrid file as we do, up to two steps of the last integer tensor."""
    path = SHARED / "models" / "mlperf_tiny_resnet8_int8.tflite"
    if not path.exists():
        pytest.skip(f"needs {path}")
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    head = ct.load(path).with_float_head(3)
    head.save(tmp_path / "head.tflite")
    assert (tmp_path / "head.tflite").stat().st_size < path.stat().st_size + 4000
    x = RNG.integers(-128, 128, (6, 32, 32, 3)).astype(np.int8)
    runner = litert.Interpreter(str(tmp_path / "head.tflite"), experimental_preserve_all_tensors=True)
    (given,) = runner.get_input_details()
    runner.resize_tensor_input(given["index"], x.shape)
    runner.allocate_tensors()
    runner.set_tensor(given["index"], x)
    runner.invoke()
    (feature,) = (t.name for t in head.module.main.all_tensors() if t.name.endswith(":float"))
    config = ct.TrainConfig(loss="sparse_categorical_crossentropy", batch_size=6, extra_outputs=[feature])
    found = ct.TrainSession(head, config).eval_step(x)
    body = next(t for t in runner.get_tensor_details() if t["name"] == feature)
    steps = (runner.get_tensor(body["index"]) - found.extra[feature]) / head_scale(head, feature)
    assert np.abs(steps).max() < 2.01
    adam = ct.optimizers.Adam(1e-2)
    config = ct.TrainConfig(loss="sparse_categorical_crossentropy", optimizer=adam, batch_size=6)
    session = ct.TrainSession(head, config)
    assert len(session.parameters.trainable()) == 2
    losses = [session.train_step(x, np.arange(6)).loss for _ in range(30)]
    assert losses[-1] < losses[0] / 2
