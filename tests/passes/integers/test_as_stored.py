"""What a session of an integer model predicts and judges is what its exported file gives, whatever has moved its weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bfloat16_nets import IMAGES, LABELS, inverted_residual
from integer_weights import by_litert, in_integers
from networks import finish, make, new_input, weight

import circle_train as ct
from circle_train.backends import native
from circle_train.compile.program import Mode
from circle_train.ir import Graph
from circle_train.ir.tensor_type import Array
from circle_train.model import Model
from circle_train.runtime.divided import in_arena

INT8 = Path("tests/data/int8_cnn.tflite")
RNG = np.random.default_rng(0)
X = RNG.integers(-128, 128, (24, 8, 8, 3)).astype(np.int8)
Y = np.arange(24) % 3
SPARSE = ct.TrainConfig(loss="sparse_categorical_crossentropy", batch_size=8, metrics=["accuracy"])
needs_native = pytest.mark.skipif(not native.is_available(), reason="the native engine was not built")


def as_file(session: ct.TrainSession, x: Array, folder: Path) -> Array:
    """What LiteRT makes of the exported file, as reals."""
    pytest.importorskip("ai_edge_litert")
    session.export(folder / "now.tflite")
    found = one_by_one(folder / "now.tflite", x)
    meaning = ct.load(folder / "now.tflite").module.main.outputs[0].quantization
    if meaning is None or not meaning.scale:
        return found
    return ((found.astype(np.float64) - meaning.zero_point[0]) * meaning.scale[0]).astype(np.float32)


def one_by_one(file: Path, x: Array) -> Array:
    size = ct.load(file).module.main.inputs[0].shape[0]
    parts = [by_litert(file.read_bytes(), x[i : i + size]) for i in range(0, len(x), size)]
    return np.concatenate(parts)


def logistic() -> Model:
    graph = Graph("net", [new_input("x", 1, 12)])
    x = graph.emit(
        make("FULLY_CONNECTED"), graph.inputs[0], weight("a/w", 16, 12), weight("a/b", 16), name="a"
    )
    x = graph.emit(make("TANH"), x, name="tanh")
    x = graph.emit(make("FULLY_CONNECTED"), x, weight("b/w", 3, 16), weight("b/b", 3), name="b")
    return finish(graph, graph.emit(make("LOGISTIC"), x, name="y"))


@needs_native
@pytest.mark.parametrize("io", ["int8", "uint8", "float32"])
@pytest.mark.parametrize("scheme", ["int8", "int16x8"])
@pytest.mark.parametrize("net", [inverted_residual, logistic])
def test_every_form_of_file(net: Any, scheme: str, io: str, tmp_path: Path) -> None:
    if scheme == "int16x8" and io != "float32":
        io = "int16" if io == "int8" else "float32"
    x = IMAGES if net is inverted_residual else RNG.normal(size=(8, 12)).astype(np.float32)
    y = LABELS if net is inverted_residual else RNG.uniform(size=(8, 3)).astype(np.float32)
    floats = ct.TrainSession(net(), ct.TrainConfig(loss="mse", batch_size=4))
    kept = {} if io == "int16" else {"io": io}
    floats.export(tmp_path / "net.tflite", quantize=ct.Int8(calibration=x, scheme=scheme, **kept))
    session = ct.TrainSession(tmp_path / "net.tflite", ct.TrainConfig(loss="mse", batch_size=4))
    first = session.model.module.main.inputs[0]
    if first.quantization is not None and not first.dtype.is_float:
        limits = np.iinfo(first.dtype.numpy)
        steps = np.rint(x / first.quantization.scale[0]) + first.quantization.zero_point[0]
        x = np.clip(steps, limits.min, limits.max).astype(first.dtype.numpy)
    # sums and means of int16 are real arithmetic here, a step from LiteRT's at most
    step = 2e-4 * np.abs(session.predict(x)).max() if scheme == "int16x8" and net is inverted_residual else 0
    before = session.predict(x)
    np.testing.assert_allclose(before, as_file(session, x, tmp_path), rtol=0, atol=step)
    for _ in range(4):
        session.train_step(x[:4], y[:4])
    after = session.predict(x)
    np.testing.assert_allclose(after, as_file(session, x, tmp_path), rtol=0, atol=step)
    assert not np.array_equal(before, after)


@needs_native
def test_floats_between_integers_are_trained_with_them(tmp_path: Path) -> None:
    """LiteRT has no PRELU of int16: it stays float, and what lies before and behind it learns in integers."""
    graph = Graph("net", [new_input("x", 1, 12)])
    x = graph.emit(
        make("FULLY_CONNECTED"), graph.inputs[0], weight("a/w", 16, 12), weight("a/b", 16), name="a"
    )
    x = graph.emit(make("PRELU"), x, weight("alpha", 16), name="prelu")
    x = graph.emit(make("FULLY_CONNECTED"), x, weight("b/w", 3, 16), weight("b/b", 3), name="y")
    config, x_in = ct.TrainConfig(loss="mse", batch_size=8), RNG.normal(size=(8, 12)).astype(np.float32)
    settings = ct.Int8(calibration=x_in, scheme="int16x8", io="float32")
    with pytest.warns(UserWarning, match="stay float"):
        ct.TrainSession(finish(graph, x), config).export(tmp_path / "net.tflite", quantize=settings)
    session = ct.TrainSession(tmp_path / "net.tflite", config)
    assert sum(session.plan.parameters.values()) == 12 * 16 + 16 + 16 + 3 * 16 + 3
    before = {name: np.array(value) for name, value in session.parameters.items()}
    session.fit(x_in, np.ones((8, 3), np.float32), epochs=5, verbose=0)
    assert all(not np.array_equal(before[name], value) for name, value in session.parameters.items())
    found, wanted = session.predict(x_in), as_file(session, x_in, tmp_path)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4 * np.abs(wanted).max())
    session.parameters["alpha"] = 0 * session.parameters["alpha"]
    moved = session.predict(x_in)
    assert not np.array_equal(found, moved)
    np.testing.assert_allclose(
        moved, as_file(session, x_in, tmp_path), rtol=0, atol=1e-4 * np.abs(wanted).max()
    )


@needs_native
@pytest.mark.parametrize("bits", [4, 8])
def test_weights_of_four_bits(bits: int, tmp_path: Path) -> None:
    model, x = in_integers((40, 64), (33, 64), 33, bits), RNG.integers(-128, 128, (40, 64)).astype(np.int8)
    session = ct.TrainSession(ct.load(model), ct.TrainConfig(loss="mse", batch_size=40))
    session.fit(x, np.zeros((40, 33), np.float32), epochs=3, verbose=0)
    found, wanted = session.predict(x), as_file(session, x, tmp_path)
    scale = ct.load(model).module.main.outputs[0].quantization
    assert scale is not None
    # LiteRT's product of four bits sends 31.494 up to 32
    apart = np.abs(found - wanted) / scale.scale[0]
    assert apart.max() <= (1.01 if bits == 4 else 0) and (apart == 0).mean() > 0.95


@needs_native
def test_whatever_moves_the_weights(tmp_path: Path) -> None:
    """A step, a value set by name or in place, a frozen one too, a checkpoint, another phase."""
    session = ct.TrainSession(INT8, SPARSE.replace(trainable=("last", 3)))
    seen = [session.predict(X)]

    def is_new() -> bool:
        seen.append(session.predict(X))
        np.testing.assert_array_equal(seen[-1], as_file(session, X, tmp_path))
        return not np.array_equal(seen[-1], seen[-2])

    assert not is_new()
    session.save_checkpoint(tmp_path / "first.safetensors")
    session.fit(X, Y, epochs=3, verbose=0)
    assert is_new()
    session.parameters["dense"] = -session.parameters["dense"]
    assert is_new()
    session.parameters["dense"][...] *= -0.5
    assert is_new()
    session.parameters["conv"] = 0.7 * session.parameters["conv"]
    assert is_new()
    session.set_trainable("all")
    assert not is_new()
    session.train_step(X[:8], Y[:8])
    assert is_new()
    session = ct.TrainSession(INT8, SPARSE.replace(trainable=("last", 3)))
    session.fit(X, Y, epochs=3, verbose=0)
    session.load_checkpoint(tmp_path / "first.safetensors")
    np.testing.assert_array_equal(session.predict(X), seen[0])


@needs_native
@pytest.mark.parametrize("trainable", ["all", ("last", 2)])
def test_it_is_judged_as_the_file_is(trainable: Any, tmp_path: Path) -> None:
    """Metrics are of its answers, the loss is of its logits; what is kept of a frozen beginning makes no difference."""
    found = []
    for keep in (False, True):
        session = ct.TrainSession(INT8, SPARSE.replace(trainable=trainable))
        history = session.fit(X, Y, validation_data=(X, Y), epochs=3, keep_frozen=keep, verbose=0).history
        found.append([history[name] for name in ("val_loss", "val_accuracy")])
        judged = session.evaluate(X, Y)
        assert [judged["loss"], judged["accuracy"]] == [series[-1] for series in found[-1]]
    assert found[0] == found[1]
    answers = as_file(session, X, tmp_path)
    assert judged["accuracy"] == pytest.approx((answers.argmax(1) == Y).mean())
    session.export(tmp_path / "logits.tflite", outputs=["logits"])
    (output,) = ct.load(tmp_path / "logits.tflite").module.main.outputs
    assert output.quantization is not None
    stored = one_by_one(tmp_path / "logits.tflite", X).astype(np.float64)
    logits = (stored - output.quantization.zero_point[0]) * output.quantization.scale[0]
    shares = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    assert judged["loss"] == pytest.approx(-shares[np.arange(24), Y].mean(), rel=1e-5)


@needs_native
def test_further_outputs_are_reals_too() -> None:
    session = ct.TrainSession(INT8, SPARSE.replace(extra_outputs=("logits",)))
    result = session.eval_step(X[:8], Y[:8])
    exact = np.exp(result.extra["logits"])
    np.testing.assert_allclose(result.outputs[0], exact / exact.sum(1, keepdims=True), atol=1 / 256)


@needs_native
def test_a_budget_takes_parts_of_a_batch_in_integers_too() -> None:
    session = ct.TrainSession(INT8, SPARSE.replace(batch_size=24))
    wanted = session.evaluate(X, Y), session.predict(X)
    for mode in (Mode.EVALUATE, Mode.PREDICT):
        whole = session.programs.executor(mode, 24)
        few = whole.program.arena_bytes // 3
        arena = np.zeros(few + 64, np.uint8)
        parts = in_arena(
            session.model.module.main,
            session.config,
            whole.program,
            session.state,
            session.backend,
            arena[:few],
        )
        assert parts is not None and parts.parts > 1
        session.programs._executors[mode, 24, None] = parts
    assert session.evaluate(X, Y) == pytest.approx(wanted[0], rel=1e-6)
    np.testing.assert_array_equal(session.predict(X), wanted[1])
