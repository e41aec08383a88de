"""Files made for one sample whose operators reduce over its axis too, as PyTorch's exporter writes normalisations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from networks import finish, make

import circle_train as ct
from circle_train.ir import DType, Graph, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.model import Model
from circle_train.passes.batch import shapes_with

X = np.random.default_rng(0).normal(1, 2, (4, 6, 8)).astype(np.float32)
SCALE = np.linspace(0.5, 2, 8, dtype=np.float32)


def whole(values: list[int], name: str) -> Tensor:
    return constant(np.array(values, np.int32), name)


def layer_norm(keep_dims: bool = False) -> Model:
    """(x - mean) / sqrt(variance + eps) · scale, the means over axes 0 and 2 of one sample."""
    graph = Graph("net", [Tensor("x", TensorType(DType.FLOAT32, (1, 6, 8)))])
    (x,) = graph.inputs
    axes, back = whole([0, 2], "axes"), whole([1, 6, 1], "back")
    mean = graph.emit(make("MEAN", keep_dims=keep_dims), x, axes)
    spread = graph.emit(make("SQUARED_DIFFERENCE"), x, graph.emit(make("RESHAPE"), mean, back))
    variance = graph.emit(make("MEAN", keep_dims=keep_dims), spread, axes)
    factor = graph.emit(make("RSQRT"), graph.emit(make("ADD"), variance, constant(np.float32(1e-5), "eps")))
    offset = graph.emit(make("SUB"), constant(np.float32(0), "zero"), graph.emit(make("MUL"), factor, mean))
    scaled = graph.emit(make("MUL"), x, graph.emit(make("RESHAPE"), factor, back))
    moved = graph.emit(make("ADD"), scaled, graph.emit(make("RESHAPE"), offset, back))
    return finish(graph, graph.emit(make("MUL"), moved, constant(SCALE, "scale"), name="y"))


@pytest.mark.parametrize("keep_dims", [False, True])
def test_each_sample_is_normalised_by_itself(keep_dims: bool) -> None:
    expected = (X - X.mean(-1, keepdims=True)) / np.sqrt(X.var(-1, keepdims=True) + 1e-5) * SCALE
    model = layer_norm(keep_dims)
    np.testing.assert_allclose(ct.InferenceSession(model)(X), expected, atol=1e-5)
    config = ct.TrainConfig(loss="mse", batch_size=4, trainable="all", optimizer=ct.optimizers.SGD(0.1))
    session = ct.TrainSession(model, config)
    np.testing.assert_allclose(session.predict(X), expected, atol=1e-5)
    loss = session.train_step(X, np.zeros_like(X)).loss
    assert abs(loss - np.mean(expected**2)) < 1e-4
    gradient = 2 * np.mean(expected * expected / SCALE, axis=(0, 1)) / 8
    np.testing.assert_allclose(session.parameters["scale"], SCALE - 0.1 * gradient, rtol=1e-4)


def test_a_result_for_the_one_sample_is_one_for_each() -> None:
    graph = Graph("net", [Tensor("x", TensorType(DType.FLOAT32, (1, 6, 8)))])
    total = graph.emit(make("SUM", keep_dims=False), graph.inputs[0], whole([0, 1, 2], "axes"))
    model = finish(graph, graph.emit(make("RESHAPE"), total, whole([1, 1], "shape"), name="y"))
    np.testing.assert_allclose(ct.InferenceSession(model)(X)[:, 0], X.sum((1, 2)), rtol=1e-5)


def across() -> Model:
    """The products of all rows with all rows, those of other samples too."""
    graph = Graph("net", [Tensor("x", TensorType(DType.FLOAT32, (1, 6, 8)))])
    rows = graph.emit(make("RESHAPE"), graph.inputs[0], whole([6, 8], "rows"))
    turned = graph.emit(make("TRANSPOSE"), rows, whole([1, 0], "order"))
    return finish(graph, graph.emit(make("BATCH_MATMUL"), turned, rows, name="y"))


def summed() -> Model:
    """The sum of all rows, those of other samples too."""
    graph = Graph("net", [Tensor("x", TensorType(DType.FLOAT32, (1, 6, 8)))])
    rows = graph.emit(make("RESHAPE"), graph.inputs[0], whole([6, 8], "rows"))
    return finish(graph, graph.emit(make("SUM"), rows, whole([0], "axes"), name="y"))


def spread_out() -> Model:
    """Means without an axis of samples that meet what has one."""
    graph = Graph("net", [Tensor("x", TensorType(DType.FLOAT32, (1, 6, 8)))])
    mean = graph.emit(make("MEAN", keep_dims=False), graph.inputs[0], whole([0, 1], "axes"))
    return finish(graph, graph.emit(make("SUB"), graph.inputs[0], mean, name="y"))


def test_what_would_mix_samples_is_run_for_each_by_itself() -> None:
    model = spread_out()
    expected = X - X.mean(1, keepdims=True)
    np.testing.assert_allclose(ct.InferenceSession(model)(X), expected, atol=1e-5)
    session = ct.TrainSession(model, ct.TrainConfig(loss="mse", batch_size=4, trainable="none"))
    np.testing.assert_allclose(session.predict(X), expected, atol=1e-5)


@pytest.mark.parametrize("made", [across, summed])
def test_a_result_without_samples_is_refused(made: Callable[[], Model]) -> None:
    model = made()
    assert ct.InferenceSession(model)(X[:1]) is not None
    for run in (
        lambda: ct.InferenceSession(model)(X),
        lambda: ct.TrainSession(model, ct.TrainConfig(loss="mse", batch_size=4)).prepare(),
    ):
        with pytest.raises(
            ct.ModelError, match=r"exported for batch size 1.*batch_size=1.*'y' of .* has no axis of samples"
        ):
            run()


def test_first_axes_that_nothing_links_grow_with_the_batch_where_the_file_has_them_alike() -> None:
    """A signal and its lengths, from which masks are made whose sizes no rule compares."""
    graph = Graph("net", [Tensor(name, TensorType(DType.FLOAT32, (2, 3))) for name in "abc"])
    graph.inputs[2].type = TensorType(DType.FLOAT32, (5, 3))
    for tensor in graph.inputs:
        tensor.shape_signature = (-1, 3)
    graph.outputs = [graph.emit(make("RELU"), tensor) for tensor in graph.inputs]
    assert shapes_with(graph, 4) == [(4, 3), (4, 3), (5, 3)]
