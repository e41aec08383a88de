"""Files hold equal bytes once, whatever they mean: nothing is trained as one, or exported, by accident."""

from __future__ import annotations

from pathlib import Path

import networks
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import circle_train as ct
from circle_train import format
from circle_train.ir import Buffer, DType, Graph, Tensor, TensorType
from circle_train.model import Model

WIDTH = 4


def dense(graph: Graph, x: Tensor, w: Tensor, b: Tensor | None, added: bool = False) -> Tensor:
    """`added`: the bias has an operator of its own."""
    if added:
        return graph.emit(networks.make("ADD"), dense(graph, x, w, None), b)
    return graph.emit(networks.make("FULLY_CONNECTED"), x, w, b)


def square(seed: int) -> Tensor:
    return networks.weight(f"w{seed}", WIDTH, WIDTH, seed=seed)


def zeros(*shape: int, dtype: DType = DType.FLOAT32, buffer: Buffer | None = None) -> Tensor:
    """A constant of zeros, in a buffer that another may have."""
    size = 4 * int(np.prod(shape))
    name = "zeros" if dtype.is_float else "axes"
    return Tensor(name, TensorType(dtype, shape), buffer or Buffer(np.zeros(size, np.uint8)))


def started(*, biases: int, layers: tuple[int, ...] = (0, 1), added: bool = False) -> Graph:
    """Dense layers of these weights over one bias tensor, or over several that share its buffer."""
    graph = Graph("net", [networks.new_input("x", 1, WIDTH)])
    x = graph.inputs[0]
    first = zeros(WIDTH)
    tensors = [first, *(zeros(WIDTH, buffer=first.buffer) for _ in range(biases - 1))]
    weights = {seed: square(seed) for seed in layers}
    for number, seed in enumerate(layers):
        x = graph.emit(networks.make("TANH"), dense(graph, x, weights[seed], tensors[number % biases], added))
    graph.outputs.append(x)
    return graph


def loaded(graph: Graph) -> Model:
    """The graph after a way through a file."""
    outputs, graph.outputs = graph.outputs, []
    made = networks.finish(graph, *outputs)
    return Model(format.read(format.write(made.module)))


def session_of(model: Model | Path) -> ct.TrainSession:
    config = ct.TrainConfig(loss="mse", optimizer=ct.optimizers.SGD(0.5), batch_size=3)
    return ct.TrainSession(model, config, threads=1)


def batch(model: Model) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    width = model.module.main.outputs[0].shape[-1]
    return rng.normal(size=(3, WIDTH)).astype(np.float32), rng.normal(size=(3, width)).astype(np.float32)


def trained(model: Model) -> ct.TrainSession:
    session = session_of(model)
    for _ in range(3):
        session.train_step(*batch(model))
    return session


@pytest.mark.parametrize("biases", [1, 2])
@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("suffix", ["circle", "tflite"])
def test_fresh_biases_of_two_layers_are_two_parameters(
    biases: int, added: bool, suffix: str, tmp_path: Path
) -> None:
    """One tensor of zeros for two layers, or one buffer: as if each had its own, and so in the exported file."""
    session = trained(loaded(started(biases=biases, added=added)))
    apart = Graph("apart", [networks.new_input("x", 1, WIDTH)])
    x = apart.inputs[0]
    for seed in (0, 1):
        x = apart.emit(networks.make("TANH"), dense(apart, x, square(seed), zeros(WIDTH), added))
    apart.outputs.append(x)
    expected = trained(loaded(apart))
    assert len(session.parameters) == len(expected.parameters) == 4
    x0, _ = batch(session.model)
    np.testing.assert_array_equal(session.predict(x0), expected.predict(x0))
    session.export(tmp_path / f"out.{suffix}")
    np.testing.assert_array_equal(
        ct.InferenceSession(tmp_path / f"out.{suffix}", threads=1)(x0), session.predict(x0)
    )
    again = session_of(tmp_path / f"out.{suffix}")
    assert sorted(map(np.sum, again.parameters.values())) == sorted(map(np.sum, session.parameters.values()))


def test_a_layer_that_is_used_twice_stays_one() -> None:
    session = trained(loaded(started(biases=1, layers=(0, 0))))
    assert len(session.parameters) == 2
    assert session.plan.tied == {"w0": (0, 2), "zeros": (0, 2)}
    assert "trained as one 'zeros' of operators 0, 2" in str(session.plan)


def test_weights_of_one_buffer_stay_one(tmp_path: Path) -> None:
    """Random numbers are not equal by accident."""
    graph = Graph("tied", [networks.new_input("x", 1, WIDTH)])
    table = square(0)
    again = Tensor("again", table.type, table.buffer)
    graph.outputs.append(
        dense(
            graph, graph.emit(networks.make("TANH"), dense(graph, graph.inputs[0], table, None)), again, None
        )
    )
    session = trained(loaded(graph))
    assert list(session.parameters) == ["w0"]
    session.export(tmp_path / "out.circle")
    x, _ = batch(session.model)
    np.testing.assert_array_equal(
        ct.InferenceSession(tmp_path / "out.circle", threads=1)(x), session.predict(x)
    )


def test_integers_that_share_a_bias_buffer_are_exported_as_they_were(tmp_path: Path) -> None:
    graph = started(biases=1, layers=(0,))
    bias = graph.nodes[0].inputs[2]
    assert bias is not None
    begin = zeros(WIDTH, dtype=DType.INT32, buffer=bias.buffer)
    begin.type = TensorType(DType.INT32, (2, 2))
    graph.outputs = [graph.emit(networks.make("PAD"), graph.outputs[0], begin)]
    session = trained(loaded(graph))
    x, _ = batch(session.model)
    for suffix in ("circle", "tflite"):
        session.export(tmp_path / f"out.{suffix}")
        found = ct.InferenceSession(tmp_path / f"out.{suffix}", threads=1)(x)
        np.testing.assert_array_equal(found, session.predict(x))


def test_a_number_of_a_formula_is_not_trained_with_a_bias(tmp_path: Path) -> None:
    """SELU's threshold and the bias of one filter are both 0."""
    graph = Graph("selu", [networks.new_input("x", 1, WIDTH)])
    bias = zeros(1)
    x = dense(graph, graph.inputs[0], networks.weight("w", 1, WIDTH), bias)
    threshold = Tensor("threshold", TensorType(DType.FLOAT32, ()), bias.buffer)
    graph.outputs.append(graph.emit(networks.make("MAXIMUM"), x, threshold))
    session = trained(loaded(graph))
    assert set(session.parameters) == {"w", "zeros"} and session.parameters["zeros"][0] != 0
    session.export(tmp_path / "out.circle")
    x0, _ = batch(session.model)
    found = ct.InferenceSession(tmp_path / "out.circle", threads=1)(x0)
    np.testing.assert_array_equal(found, session.predict(x0))
    assert found.min() == 0


def test_an_initializer_is_one_parameter_whoever_reads_it(tmp_path: Path) -> None:
    """In ONNX it has a name of its own; also after a way through a Circle file."""
    rng = np.random.default_rng(0)
    weights = {name: rng.normal(size=(WIDTH, WIDTH)).astype(np.float32) for name in ("u", "v")}
    weights["b"] = np.zeros(WIDTH, np.float32)
    nodes = [helper.make_node("Gemm", ["x", "u", "b"], ["h"]), helper.make_node("Tanh", ["h"], ["t"])]
    nodes.append(helper.make_node("Gemm", ["t", "v", "b"], ["y"]))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", WIDTH]) for name in "xy"]
    values = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], values)
    onnx = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model = ct.load(onnx.SerializeToString())
    model.save(tmp_path / "net.circle")
    for session in (trained(model), trained(ct.load(tmp_path / "net.circle"))):
        assert sorted(session.parameters) == ["b", "u", "v"]
    session = trained(model)
    session.export(tmp_path / "out.onnx")
    x, _ = batch(model)
    np.testing.assert_allclose(ct.InferenceSession(tmp_path / "out.onnx")(x), session.predict(x), rtol=1e-6)
