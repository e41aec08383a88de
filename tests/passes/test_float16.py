"""Models with float16 weights train through float32 masters and come back as float16."""

from __future__ import annotations

from math import erf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import circle_train as ct
from circle_train.session.foresight import choices

onnx = pytest.importorskip("onnx")
LOSS = ct.losses.SparseCategoricalCrossentropy(from_logits=True)
RNG = np.random.default_rng(0)
W, B = RNG.normal(size=(3, 6)).astype(np.float16), np.zeros(3, np.float16)
X, Y = RNG.normal(size=(8, 6)).astype(np.float32), np.array([0, 1, 2, 0, 1, 2, 0, 1])


def model_of(kind: str, folder: Path) -> Path:
    """A dense layer: of float32, with weights stored as halves, or computed in halves altogether."""
    from onnx import TensorProto, helper, numpy_helper

    whole = TensorProto.FLOAT16 if kind == "computed" else TensorProto.FLOAT
    dtype = np.float32 if kind == "full" else np.float16
    names = ["w32", "b32"] if kind == "stored" else ["w", "b"]
    casts = (
        [helper.make_node("Cast", [name], [f"{name}32"], to=1) for name in "wb"] if kind == "stored" else []
    )
    nodes = [*casts, helper.make_node("Gemm", ["x", *names], ["y"], transB=1)]
    graph = helper.make_graph(
        nodes,
        "half",
        [helper.make_tensor_value_info("x", whole, ["n", 6])],
        [helper.make_tensor_value_info("y", whole, ["n", 3])],
        [numpy_helper.from_array(W.astype(dtype), "w"), numpy_helper.from_array(B.astype(dtype), "b")],
    )
    path = folder / f"{kind}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


def trained(path: Path, steps: int = 50) -> ct.TrainSession:
    session = ct.TrainSession(path, ct.TrainConfig(LOSS, ct.optimizers.SGD(1e-3), 8))
    for _ in range(steps):
        session.train_step(X, Y)
    return session


@pytest.mark.parametrize("kind", ["stored", "computed"])
def test_small_steps_are_not_lost(kind: str, tmp_path: Path) -> None:
    """Fifty steps, each below a half's resolution, arrive where a float32 model arrives."""
    session, reference = trained(model_of(kind, tmp_path)), trained(model_of("full", tmp_path))
    for name in ("w", "b"):
        assert session.parameters[name].dtype == np.float32
        np.testing.assert_allclose(session.parameters[name], reference.parameters[name], rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["stored", "computed"])
def test_files_hold_halves_again(kind: str, tmp_path: Path) -> None:
    from onnx import TensorProto, numpy_helper

    path = model_of(kind, tmp_path)
    session = trained(path)
    session.export(tmp_path / "out.onnx")
    session.export(tmp_path / "out.circle")
    written = {i.name: i for i in onnx.load(tmp_path / "out.onnx").graph.initializer}
    for name, value in session.parameters.items():
        assert written[name].data_type == TensorProto.FLOAT16
        np.testing.assert_array_equal(numpy_helper.to_array(written[name]), value.astype(np.float16))
    assert (tmp_path / "out.circle").stat().st_size == pytest.approx(circle_size(path, tmp_path), abs=64)
    outputs: Any = ct.InferenceSession(tmp_path / "out.circle")(X)
    np.testing.assert_allclose(outputs, session.predict(X), rtol=0, atol=2e-2)


def circle_size(path: Path, folder: Path) -> int:
    """Bytes of the untrained model as Circle."""
    ct.load(path).save(folder / "before.circle")
    return (folder / "before.circle").stat().st_size


def double(folder: Path, *last: Any) -> Path:
    """A dense layer computed in float64, and what follows it."""
    helper, kind = onnx.helper, onnx.TensorProto.DOUBLE
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["z"], transB=1), *last]
    graph = helper.make_graph(
        nodes,
        "double",
        [helper.make_tensor_value_info("x", kind, ["n", 6])],
        [helper.make_tensor_value_info(nodes[-1].output[0], kind, ["n", 3])],
        [onnx.numpy_helper.from_array(a.astype(np.float64), name) for name, a in (("w", W), ("b", B))],
    )
    path = folder / "double.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


def test_float64_models_train_in_float64(tmp_path: Path) -> None:
    """One step of gradient descent is numpy's; the loss is a float32."""
    config = ct.TrainConfig("mse", ct.optimizers.SGD(0.1), 8)
    session = ct.TrainSession(double(tmp_path), config)
    target = RNG.normal(size=(8, 3))
    x, w, b = X.astype(np.float64), W.astype(np.float64), B.astype(np.float64)
    error = x @ w.T + b - target
    assert session.train_step(x, target).loss == pytest.approx(np.square(error).mean(), rel=1e-6)
    np.testing.assert_allclose(session.parameters["w"], w - 0.1 * 2 / 24 * error.T @ x, rtol=0, atol=1e-6)
    session.export(tmp_path / "trained.onnx")
    assert ct.load(tmp_path / "trained.onnx").outputs[0].dtype == ct.load(double(tmp_path)).outputs[0].dtype


def test_a_softmax_in_float64_gives_probabilities(tmp_path: Path) -> None:
    path = double(tmp_path, onnx.helper.make_node("Softmax", ["z"], ["y"], axis=-1))
    session = ct.TrainSession(path, ct.TrainConfig(ct.losses.SparseCategoricalCrossentropy(), "sgd", 8))
    z = X.astype(np.float64) @ W.astype(np.float64).T
    expected = np.log(np.exp(z).sum(1)) - z[np.arange(8), Y]
    assert session.train_step(X.astype(np.float64), Y).loss == pytest.approx(expected.mean(), rel=1e-6)


@pytest.mark.parametrize("kind", ["stored", "full"])
def test_choices_of_last_operators_count_halves(kind: str, tmp_path: Path) -> None:
    """Weights that arrive through a DEQUANTIZE are parameters of the operator that reads them."""
    model = ct.load(model_of(kind, tmp_path))
    found = choices(model, "mse", "adam", 2)
    session = ct.TrainSession(model, ct.TrainConfig(loss="mse", batch_size=2))
    assert found[-1].parameters == sum(session.plan.parameters.values()) > 0


def test_a_chain_of_halves_is_computed_in_floats(tmp_path: Path) -> None:
    """Of twenty layers and error functions only what goes out is rounded: float64 says what it would be."""
    from onnx import helper, numpy_helper

    weights = [(RNG.normal(size=(6, 6)) / 2).astype(np.float16) for _ in range(20)]
    nodes, last, x = [], "x", X.astype(np.float16).astype(np.float64)
    for number, weight in enumerate(weights):
        names = [f"{kind}{number}" for kind in ("product", "erf", "sum")]
        nodes += [
            helper.make_node("MatMul", [last, f"w{number}"], names[:1]),
            helper.make_node("Erf", names[:1], names[1:2]),
            helper.make_node("Add", names[:2], names[2:]),
        ]
        product, last = x @ weight.astype(np.float64), names[2]
        x = product + np.vectorize(erf)(product)
    infos = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT16, ["n", 6]) for name in ("x", last)]
    constants = [numpy_helper.from_array(weight, f"w{number}") for number, weight in enumerate(weights)]
    graph = helper.make_graph(nodes, "halves", infos[:1], infos[1:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), tmp_path / "net.onnx")
    found = ct.InferenceSession(tmp_path / "net.onnx")(X)
    assert found.dtype == np.float16
    np.testing.assert_allclose(found.astype(np.float64), x, rtol=2**-11, atol=2**-11 * np.abs(x).max())
