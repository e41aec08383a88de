"""Loops, branches and variables of .tflite files, as LiteRT runs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers

import circle_train as ct
from circle_train import format
from circle_train.ir import Buffer, DType, Graph, Module, Node, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.model import Model
from circle_train.ops.control.branch import If, StablehloCase
from circle_train.ops.control.composite import Composite
from circle_train.ops.control.loop import While, counting
from circle_train.ops.layers.linear import FullyConnected
from circle_train.ops.numeric.activation import Tanh
from circle_train.ops.numeric.arithmetic import Mul
from circle_train.passes.control.subgraphs import decompose, write_out
from circle_train.passes.control.variables import lower_variables

DATA = Path(__file__).parents[1] / "data" / "control"
BACKENDS = ["reference", "native"]
NAMED = {
    "name": "tests.composite",
    "composite_attributes": np.frombuffer(bytes(flexbuffers.Dumps({})), np.uint8),
}
"""What LiteRT wants to be told of a composite."""


def litert_run(path: Path, feeds: list[Any], interpreter: Any = None) -> Any:
    litert = pytest.importorskip(
        "ai_edge_litert.interpreter", reason="LiteRT (ai-edge-litert) is not installed"
    )
    if interpreter is None:
        interpreter = litert.Interpreter(str(path))
        interpreter.allocate_tensors()
    for detail, value in zip(interpreter.get_input_details(), feeds, strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"]), interpreter


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("rounds", [0, 1, 5])
def test_a_loop_and_a_branch_run_as_in_litert(backend: str, rounds: int) -> None:
    path = DATA / "loop_and_branch.tflite"
    feeds = [np.array([1, -2, 0.5], np.float32), np.array(rounds, np.int32)]
    ours = ct.InferenceSession(path, backend=backend)(*feeds)
    np.testing.assert_allclose(ours, litert_run(path, feeds)[0], rtol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_streaming_model_remembers_until_it_is_reset(backend: str) -> None:
    path = DATA / "stream.tflite"
    session = ct.InferenceSession(path, backend=backend)
    frames = np.random.default_rng(0).standard_normal((5, 1, 1, 2)).astype(np.float32)
    interpreter, first = None, None
    for frame in frames:
        theirs, interpreter = litert_run(path, [frame], interpreter)
        ours = session(frame)
        first = ours if first is None else first
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    assert not np.allclose(session(frames[0]), first)
    session.reset()
    np.testing.assert_array_equal(session(frames[0]), first)


def test_a_streaming_model_takes_several_streams_at_once() -> None:
    session, one = (ct.InferenceSession(DATA / "stream.tflite") for _ in range(2))
    frames = np.random.default_rng(0).standard_normal((3, 2, 1, 2)).astype(np.float32)
    together = [session(frame) for frame in frames]
    alone = [one(frame[:1]) for frame in frames]
    np.testing.assert_allclose([t[:1] for t in together], alone, rtol=1e-6)


def test_a_streaming_model_is_trained_from_its_first_state() -> None:
    session = ct.TrainSession(
        DATA / "stream.tflite", ct.TrainConfig(loss="mse", optimizer=ct.optimizers.SGD(0.05))
    )
    x, y = np.ones((32, 1, 2), np.float32), np.ones((32, 4), np.float32)
    losses = [float(session.train_step(x, y).loss) for _ in range(4)]
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0]


def test_a_handle_that_is_taken_for_a_value_is_refused() -> None:
    graph = ct.load(DATA / "stream.tflite").module.main
    handle = next(node for node in graph.nodes if node.op.name == "VAR_HANDLE").outputs[0]
    graph.append(Node(Tanh(), [handle], [Tensor("taken", TensorType(DType.FLOAT32, (1,)))]))
    with pytest.raises(
        ct.ModelError, match=r"TANH 'taken'.* what a variable's operator leaves is taken for a value"
    ):
        lower_variables(graph)


@pytest.mark.parametrize("left", [[], [None]], ids=["one input", "an absent one"])
def test_a_variable_that_is_given_no_value_is_refused(left: list[Any]) -> None:
    graph = ct.load(DATA / "stream.tflite").module.main
    place = next(node for node in graph.nodes if node.op.name == "ASSIGN_VARIABLE")
    place.inputs[1:] = left
    with pytest.raises(ct.ModelError, match=r"ASSIGN_VARIABLE.* it is given no value; the file is damaged"):
        lower_variables(graph)


@pytest.mark.parametrize("name", ["loop_and_branch", "stream"])
def test_files_of_graphs_and_variables_survive_saving(name: str, tmp_path: Path) -> None:
    path = DATA / f"{name}.tflite"
    ct.load(path).save(tmp_path / "again.tflite")
    assert (tmp_path / "again.tflite").read_bytes() == path.read_bytes()
    ct.load(path).save(tmp_path / "as.circle")
    again = ct.load(tmp_path / "as.circle").module
    assert [len(graph.nodes) for graph in again.graphs] == [len(g.nodes) for g in format.read(path).graphs]


def looped(limit: int) -> Model:
    """w · x, doubled `limit` times by a loop."""
    graph = Graph("main", [Tensor("x", TensorType(DType.FLOAT32, (2, 3)))])
    scaled = graph.emit(Mul(), graph.inputs[0], constant(np.full(3, 0.5, np.float32), "w"))
    start = constant(np.array(0, np.int32), "start")
    graph.outputs = [graph.emit_all(While(graphs=counting(limit, DType.INT32)), start, scaled)[1]]
    constants = dict.fromkeys(t.buffer for t in graph.all_tensors() if t.buffer is not None)
    return Model(format.read(format.write(Module([graph], [Buffer(), *constants]))))


def test_gradients_pass_through_a_loop_of_known_length() -> None:
    session = ct.TrainSession(looped(3), ct.TrainConfig(loss="mse", batch_size=2, trainable=["w"]))
    x = np.arange(6, dtype=np.float32).reshape(2, 3) / 6
    before = session.parameters["w"].copy()
    loss = float(session.eval_step(x, np.zeros((2, 3), np.float32)).loss)
    np.testing.assert_allclose(loss, np.mean((8 * x * before) ** 2), rtol=1e-5)
    session.train_step(x, np.zeros((2, 3), np.float32))
    assert (session.parameters["w"][1:] != before[1:]).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_pass_through_a_loop_whose_length_is_data(backend: str) -> None:
    model = Model(looped(3).module)
    node = next(node for node in model.module.main.nodes if node.op.name == "WHILE")
    start = Tensor("start", TensorType(DType.INT32, ()))
    model.module.main.inputs.append(start)
    model.module.main.reconnect(node, [start, *node.inputs[1:]])
    config = ct.TrainConfig(
        loss="mse", optimizer=ct.optimizers.SGD(learning_rate=1e-2), batch_size=2, trainable=["w"]
    )
    session = ct.TrainSession(model, config, backend=backend)
    x = np.arange(6, dtype=np.float32).reshape(2, 3) / 6
    for begin, factor in ((0, 8), (2, 2), (3, 1)):
        w = session.parameters["w"].copy()
        session.train_step([x, np.array(begin, np.int32)], np.zeros((2, 3), np.float32))
        slope = (2 / 6 * (factor * x * w) * factor * x).sum(0)
        np.testing.assert_allclose((w - session.parameters["w"]) / 1e-2, slope, rtol=1e-3, atol=1e-6)


def choosing(number: int) -> Model:
    """w · x, and of its double, its square and itself the one of that number."""
    x = Tensor("x", TensorType(DType.FLOAT32, (2, 3)))
    graph = Graph("main", [x])
    scaled = graph.emit(Mul(), x, constant(np.full(3, 0.5, np.float32), "w"))
    example = next(
        example.op for example in StablehloCase.examples() if isinstance(example.op, StablehloCase)
    )
    index = constant(np.array([number], np.int32), "index")
    graph.outputs = graph.emit_all(example, index, scaled, scaled)
    constants = dict.fromkeys(t.buffer for t in graph.all_tensors() if t.buffer is not None)
    return Model(format.read(format.write(Module([graph], [Buffer(), *constants]))))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("number", "slope"), [(0, 2.0), (1, None), (2, 1.0), (9, 1.0)])
def test_gradients_pass_through_the_case_that_a_constant_chooses(
    backend: str, number: int, slope: float | None
) -> None:
    config = ct.TrainConfig(
        loss="mse", optimizer=ct.optimizers.SGD(learning_rate=1.0), batch_size=2, trainable=["w"]
    )
    session = ct.TrainSession(choosing(number), config, backend=backend)
    x = np.arange(6, dtype=np.float32).reshape(2, 3) / 6
    w = session.parameters["w"].copy()
    session.train_step(x, np.zeros((2, 3), np.float32))
    made, slopes = ((w * x) ** 2, 2 * w * x * x) if slope is None else (slope * w * x, slope * x)
    np.testing.assert_allclose(w - session.parameters["w"], (2 / 6 * made * slopes).sum(0), rtol=1e-5)


def test_a_branch_that_names_no_graph_is_refused() -> None:
    with pytest.raises(ct.ModelError, match="subgraph 7"):
        If(then_subgraph_index=7).linked([Graph("main")])


def composed() -> Model:
    """y = gated(x, w, b) = tanh(x wᵀ + b)², whose decomposition holds a composite too."""
    numbers = np.random.default_rng(0)
    types = [TensorType(DType.FLOAT32, shape) for shape in ((2, 3), (4, 3), (4,), (2, 4))]
    square = Graph("square", [Tensor("t", types[3])])
    square.outputs = [square.emit(Mul(), square.inputs[0], square.inputs[0])]
    gated = Graph("gated", [Tensor(name, type_) for name, type_ in zip("xwb", types[:3], strict=True)])
    (made,) = gated.emit_all(
        Composite(graphs=(square,)), gated.emit(Tanh(), gated.emit(FullyConnected(), *gated.inputs))
    )
    gated.outputs = [made]
    main = Graph("main", [Tensor("x", types[0])])
    weights = [
        constant(numbers.standard_normal(type_.shape).astype(np.float32), name)
        for name, type_ in zip("wb", types[1:3], strict=True)
    ]
    main.outputs = main.emit_all(Composite(graphs=(gated,)), main.inputs[0], *weights)
    for graph in (main, gated, square):
        for node in graph.nodes:
            node.carried["options"] = NAMED if isinstance(node.op, Composite) else {}
    constants = dict.fromkeys(t.buffer for t in main.all_tensors() if t.buffer is not None)
    return Model(Module([main, gated, square], [Buffer(), *constants]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_composite_is_what_it_is_composed_of(backend: str, tmp_path: Path) -> None:
    model, path = composed(), tmp_path / "composed.tflite"
    x = np.random.default_rng(1).standard_normal((2, 3)).astype(np.float32)
    w, b = (tensor.data for tensor in model.module.main.nodes[0].inputs[1:])
    expected = np.tanh(x @ w.T + b) ** 2
    np.testing.assert_allclose(ct.InferenceSession(model, backend=backend)(x), expected, rtol=1e-5)
    config = ct.TrainConfig(loss="mse", trainable="all", batch_size=2, optimizer=ct.optimizers.SGD(0.1))
    session = ct.TrainSession(model, config, backend=backend)
    assert sorted(session.parameters) == ["b", "w"]
    losses = [session.train_step(x, np.zeros((2, 4), np.float32)).loss for _ in range(3)]
    assert losses == sorted(losses, reverse=True)
    session.export(path)
    again = ct.load(path)
    assert [node.op.name for node in again.module.main.nodes] == ["STABLEHLO_COMPOSITE"]
    np.testing.assert_allclose(ct.InferenceSession(again)(x), session.predict(x), rtol=1e-6)
    np.testing.assert_allclose(litert_run(path, [x])[0], session.predict(x), rtol=1e-5)


def test_a_composite_whose_graph_makes_more_is_refused() -> None:
    main, gated, _ = composed().module.graphs
    gated.outputs = gated.outputs * 2
    with pytest.raises(ct.ModelError, match="has 1 outputs, its graph makes 2; the file is damaged"):
        decompose(main)


def test_a_condition_that_takes_other_values_is_refused() -> None:
    graph = ct.load(DATA / "loop_and_branch.tflite").module.main
    loop = next(node for node in graph.nodes if isinstance(node.op, While))
    loop.op.graphs[0].inputs.pop()
    with pytest.raises(
        ct.ModelError, match=r"a loop has . values, its condition takes .; the file is damaged"
    ):
        write_out(graph)


def test_a_condition_that_says_nothing_is_refused() -> None:
    graphs = counting(3, DType.INT32)
    graphs[0].outputs.clear()
    x = TensorType(DType.FLOAT32, (2,))
    with pytest.raises(
        ct.ModelError, match="its condition gives 0 tensors, expected one: the file is damaged"
    ):
        While(graphs=graphs).infer(TensorType(DType.INT32, ()), x)


def test_a_graph_that_runs_itself_is_refused() -> None:
    module = composed().module
    gated = module.graphs[1]
    gated.nodes[-1].op = Composite(graphs=(gated,))
    with pytest.raises(ct.ModelError, match="subgraph 'gated' runs itself"):
        format.read(format.write(module))
