"""RandomNormal and its kin: distributions, apart from one another, anew in each training pass, in LiteRT too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import circle_train as ct
from circle_train.format import write
from circle_train.ir import DType, Graph, Module, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ops.layers.linear import FullyConnected
from circle_train.ops.numeric.draw import Multinomial, RandomStandardNormal, RandomUniform
from circle_train.ops.numeric.fill import Cast

helper = pytest.importorskip("onnx").helper


def of(*lines: str, shape: str = "float[N,64]", outputs: str = "float[N,64] y") -> Any:
    import onnx

    text = f'<ir_version: 8, opset_import: ["" : 17]> g ({shape} x) => ({outputs}) {{ {" ".join(lines)} }}'
    return onnx.parser.parse_model(text)


def test_normal_numbers_are_normal_and_no_two_nodes_draw_the_same() -> None:
    model = of(
        "y = RandomNormalLike <mean = 3.0, scale = 2.0> (x)",
        "z = RandomNormalLike (x)",
        outputs="float[N,64] y, float[N,64] z",
    )
    session = ct.InferenceSession(model)
    x = np.zeros((128, 64), np.float32)
    y, z = session.run(None, {"x": x})
    again, _ = session.run(None, {"x": x})
    np.testing.assert_array_equal(y, again)
    assert y.shape == z.shape == x.shape
    assert abs(y.mean() - 3) < 0.1 and abs(y.std() - 2) < 0.1
    assert abs(z.mean()) < 0.05 and abs(z.std() - 1) < 0.05
    assert abs(np.corrcoef(y.ravel(), z.ravel())[0, 1]) < 0.05


def test_uniform_numbers_lie_between_their_bounds() -> None:
    model = of(
        "r = RandomUniform <low = -1.0, high = 3.0, shape = [50, 64], seed = 2.0> ()",
        "y = Add (x, r)",
        shape="float[50,64]",
        outputs="float[50,64] y",
    )
    y = ct.InferenceSession(model)(np.zeros((50, 64), np.float32))
    assert y.min() >= -1 and y.max() < 3 and abs(y.mean() - 1) < 0.1


def test_bernoulli_and_multinomial_draw_as_often_as_their_input_says() -> None:
    model = of(
        "y = Bernoulli (x)",
        "l = Log (x)",
        "z = Multinomial <sample_size = 4000> (l)",
        shape="float[2,4]",
        outputs="float[2,4] y, int32[2,4000] z",
    )
    chances = np.array([[0.0, 0.25, 0.75, 0.0], [1.0, 0.0, 0.0, 0.0]], np.float32)
    y, z = ct.InferenceSession(model).run(None, {"x": chances})
    assert y[1].tolist() == [1, 0, 0, 0] and y[0, 0] == y[0, 3] == 0
    np.testing.assert_allclose(np.bincount(z[0], minlength=4) / 4000, chances[0], atol=0.03)
    assert set(z[1].tolist()) == {0}


def noisy() -> Any:
    from onnx import numpy_helper

    model = of("h = MatMul (x, w)", "n = RandomNormalLike (h)", "y = Add (h, n)")
    model.graph.initializer.append(numpy_helper.from_array(np.eye(64, dtype=np.float32), "w"))
    return model


def test_each_training_pass_draws_anew() -> None:
    x = np.zeros((4, 64), np.float32)
    config = ct.TrainConfig(loss="mse", optimizer="sgd", batch_size=4)
    sessions = [ct.TrainSession(noisy(), config, seed=3) for _ in range(2)]
    losses, again = ([float(session.train_step(x, x).loss) for _ in range(3)] for session in sessions)
    assert len(set(losses)) == 3 and losses == again


@pytest.mark.parametrize("op", [RandomUniform(1), RandomStandardNormal(1)])
def test_the_parts_of_a_batch_draw_what_the_whole_does(op: Any) -> None:
    whole = op.drawn(np.array([6, 5]), (1, 2))
    parts = [op.drawn(np.array([2, 5]), (1, 2), part) for part in range(3)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_litert_draws_too(tmp_path: Path) -> None:
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    ct.load(noisy()).save(tmp_path / "noisy.tflite")
    run = interpreter.Interpreter(str(tmp_path / "noisy.tflite"))
    run.resize_tensor_input(run.get_input_details()[0]["index"], [100, 64])
    run.allocate_tensors()
    run.set_tensor(run.get_input_details()[0]["index"], np.zeros((100, 64), np.float32))
    run.invoke()
    y = run.get_tensor(run.get_output_details()[0]["index"])
    assert y.shape == (100, 64) and abs(y.std() - 1) < 0.1


def test_a_draw_within_a_loop_is_refused() -> None:
    import onnx

    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2] x, int64 n) => (float[2] y) {
        c = Constant <value = bool {1}> ()
        y = Loop (n, c, x) <body = b (int64 i, bool k, float[2] s) => (bool k2, float[2] t) {
            k2 = Identity (k)  r = RandomNormalLike (s)  t = Add (s, r) }>
    }"""
    with pytest.raises(ct.ConversionError, match="within a loop or a branch"):
        ct.load(onnx.parser.parse_model(text))


def test_a_sequence_that_begins_empty() -> None:
    model = of(
        "e = SequenceEmpty ()", "s = SequenceInsert (e, x)", "t = SequenceInsert (s, x)",
        "y = ConcatFromSequence <axis = 1> (t)", outputs="float[N,128] y",
    )  # fmt: skip
    x = np.arange(128, dtype=np.float32).reshape(2, 64)
    np.testing.assert_array_equal(ct.InferenceSession(model)(x), np.concatenate([x, x], 1))


def choosing(count: int) -> bytes:
    """Classes that are drawn by logits, beside the logits."""
    x = Tensor("x", TensorType(DType.FLOAT32, (2, 3)))
    w = constant(np.array([[1, 0, 0], [0, 2, 0], [0, 0, 3], [1, 1, 0]], np.float32), "w")
    graph = Graph("main", [x])
    logits = graph.emit(FullyConnected(), x, w, None)
    drawn = graph.emit(Multinomial(3, 4, DType.INT32), logits, constant(np.array(count, np.int32), "n"))
    graph.outputs = [logits, drawn, graph.emit(Cast(DType.INT32, DType.FLOAT32), drawn)]
    return write(Module([graph]), "TFL3")


def test_classes_are_drawn_as_often_as_the_softmax_says_in_litert_too() -> None:
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    x = np.array([[0.3, 0.2, -0.1], [1.0, -1.0, 0.5]], np.float32)
    run = interpreter.Interpreter(model_content=choosing(20_000))
    run.allocate_tensors()
    run.set_tensor(run.get_input_details()[0]["index"], x)
    run.invoke()
    logits, ours, _ = ct.InferenceSession(ct.load(choosing(20_000))).run(None, {"x": x})
    theirs = run.get_tensor(run.get_output_details()[1]["index"])
    assert theirs.dtype == ours.dtype and theirs.shape == ours.shape
    shares = np.exp(logits)
    for found in (ours, theirs):
        counts = np.stack([np.bincount(row, minlength=4) for row in found]) / 20_000
        np.testing.assert_allclose(counts, shares / shares.sum(1, keepdims=True), atol=0.02)


def test_classes_are_drawn_anew_in_each_pass() -> None:
    config = ct.TrainConfig(loss="mse", optimizer=ct.optimizers.SGD(learning_rate=1e-30), batch_size=2)
    session = ct.TrainSession(ct.load(choosing(5)), config)
    x = np.zeros((2, 3), np.float32)
    y = [np.zeros((2, 4), np.float32), np.zeros((2, 5), np.int32), np.zeros((2, 5), np.float32)]
    with pytest.warns(UserWarning, match="takes no part in the loss"):
        drawn = [session.train_step(x, y).outputs[1] for _ in range(4)]
    assert len({numbers.tobytes() for numbers in drawn}) > 1


@pytest.mark.parametrize(
    "lines",
    [
        ("ratio = ReduceMax <keepdims = 0> (x)", "mode = Constant <value = bool {1}> ()"),
        (
            "ratio = Constant <value = float {0.5}> ()",
            "z = ReduceMax <keepdims = 0> (x)",
            "mode = Cast <to = 9> (z)",
        ),
    ],
)
def test_a_dropout_that_is_decided_while_running_is_refused(lines: tuple[str, ...]) -> None:
    with pytest.raises(ct.ConversionError, match="training_mode or ratio is computed while running"):
        ct.load(of(*lines, "y = Dropout (x, ratio, mode)"))
