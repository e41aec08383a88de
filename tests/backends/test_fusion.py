"""What is joined, and what must stay apart: where nodes would wait for one another, and what is nearly what is joined."""

from __future__ import annotations

from collections.abc import Callable

import networks
import numpy as np
import pytest
import test_attentions
import test_pads
import test_pooled_convolutions
from near.graphs import near
from test_backend_training import MODELS, Joined

import circle_train as ct
from circle_train.backends import native
from circle_train.backends.base import Reference
from circle_train.backends.native.fusion.rewriter import Rewriter
from circle_train.compile.compile import compile
from circle_train.compile.program import Mode
from circle_train.errors import CircleTrainError
from circle_train.ir import DType, Graph, StateKey, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ir.tensor_type import Array
from circle_train.model import Model
from circle_train.ops import REGISTRY
from circle_train.ops.attributes import Activation
from circle_train.ops.internal.fused import Fused
from circle_train.ops.internal.gradient import Accumulate, NotFinite
from circle_train.runtime.executor import Executor
from circle_train.runtime.state import State

onnx = pytest.importorskip("onnx")

NORMS_AROUND_A_SPLIT = """
<ir_version: 8, opset_import: ["" : 20]>
norms (float[N, 5] x) => (float[N, 3] y)
<float[5] scale = {1.8, 0.7, 0.2, 1.6, 1.1}, float[5] shift = {0.2, 0.3, 0.2, -0.2, 0.3}, float by = {1.6},
 int64[2] sizes = {2, 3}, float[3] scale2 = {0.9, 1.4, 0.8}, float[3] shift2 = {0.5, 0.4, 0.4}, float half = {0.5}>
{
  whole = LayerNormalization <axis: int = 1, epsilon: float = 0.001> (x, scale, shift)
  divided = Div (whole, by)
  left, right = Split <axis: int = 1> (divided, sizes)
  normed = LayerNormalization <axis: int = 1, epsilon: float = 0.001> (right, scale2, shift2)
  apart = Sub (normed, right)
  squared = Mul (apart, apart)
  more = Add (squared, half)
  y = Log (more)
}
"""


@pytest.mark.skipif(not native.is_available(), reason="the native engine was not built")
@pytest.mark.parametrize("trainable", ["all", ("last", 4)])
def test_what_reads_a_norms_input_and_result_trains_as_by_the_reference(trainable: object) -> None:
    model = onnx.parser.parse_model(NORMS_AROUND_A_SPLIT).SerializeToString()
    rng = np.random.default_rng(0)
    x, y = rng.random((2, 5), np.float32), rng.random((2, 3), np.float32)
    after = []
    for backend in ("reference", "native"):
        config = ct.TrainConfig(
            loss="mse", trainable=trainable, optimizer=ct.optimizers.SGD(0.1), batch_size=2
        )
        session = ct.TrainSession(ct.load(model), config, backend=backend, threads=1)
        for _ in range(3):
            session.train_step(x, y)
        after.append(session.parameters.flat())
    np.testing.assert_allclose(after[1], after[0], rtol=1e-4, atol=1e-6)


@pytest.mark.skipif(not native.is_available(), reason="the native engine was not built")
@pytest.mark.parametrize("activation", [Activation.NONE, Activation.RELU, Activation.TANH])
@pytest.mark.parametrize("squares", ["SQUARE", "MUL"])
def test_a_norm_is_known_by_what_it_computes(squares: str, activation: Activation) -> None:
    """Squared by one operator or as a product with itself, an activation within its last sum."""
    graph = Graph("norm", [networks.new_input("x", 3, 8)])
    axis, mean = constant(np.array([1], np.int32), "axis"), networks.make("MEAN", keep_dims=True)
    apart = graph.emit(networks.make("SUB"), graph.inputs[0], graph.emit(mean, graph.inputs[0], axis))
    square = graph.emit(networks.make(squares), *[apart] * (1 if squares == "SQUARE" else 2))
    shifted = graph.emit(
        networks.make("ADD"), graph.emit(mean, square, axis), constant(np.float32(1e-3), "epsilon")
    )
    normal = graph.emit(networks.make("MUL"), apart, graph.emit(networks.make("RSQRT"), shifted))
    scaled = graph.emit(networks.make("MUL"), normal, networks.weight("gamma", 8))
    last = networks.make("ADD", fused_activation_function=activation)
    model = networks.finish(graph, graph.emit(last, scaled, networks.weight("beta", 8)))
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(3, 8)).astype(np.float32), rng.normal(size=(3, 8)).astype(np.float32)
    config = ct.TrainConfig(
        loss="mse", optimizer=ct.optimizers.SGD(0.1), batch_size=3, trainable=["gamma", "beta"]
    )
    program = compile(model.module.main, config, engine=native.Native(threads=1))
    kernels = {node.op.kernel for node in program.graph.nodes if isinstance(node.op, Fused)}
    assert {kernel for kernel in kernels if "norm" in kernel}, kernels
    found = [
        ct.TrainSession(model, config, backend=backend, threads=1) for backend in ("reference", "native")
    ]
    losses = [[session.train_step(x, y).loss for _ in range(3)] for session in found]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    np.testing.assert_allclose(found[1].predict(x), found[0].predict(x), atol=1e-5)


def test_nodes_joined_around_another_are_separated_and_others_stay_joined() -> None:
    """abs -> neg -> abs -> neg -> abs: the first two can be one, the outer two around the middle cannot."""
    graph = Graph("g", [Tensor("x", TensorType(DType.FLOAT32, (2,)))])
    tensor = graph.inputs[0]
    for name in ("ABS", "NEG", "ABS", "NEG", "ABS"):
        tensor = graph.emit(REGISTRY[name](), tensor)
    graph.outputs = [tensor]
    nodes = list(graph.nodes)
    rewriter = Rewriter(graph, [tensor])
    assert rewriter.fuse(nodes[:2], "sound", {}, nodes[1].outputs)
    assert not rewriter.fuse([nodes[2], nodes[4]], "around", {}, [nodes[2].outputs[0], tensor])
    kinds = [n.op.kernel if isinstance(n.op, Fused) else n.op.name for n in graph.nodes]
    assert kinds == ["sound", "ABS", "NEG", "ABS"]
    assert [node.outputs[0].producer for node in graph.nodes] == list(graph.nodes)


def test_an_update_waits_for_whom_a_join_moves_behind_it() -> None:
    """read(w), its neg, update(w), and a later abs of x: joined with the first, it takes the neg along, and the update."""
    place = TensorType(DType.FLOAT32, (2,))
    graph = Graph("g", [Tensor("x", place), Tensor("g", place)])
    x, g = graph.inputs
    w = Tensor("w", place, state=StateKey("value", "w"))
    read = graph.emit(REGISTRY["ADD"](), w, x)
    again = graph.emit(REGISTRY["MUL"](), w, read)
    graph.emit_all(Accumulate(), w, g)
    apart = graph.emit(REGISTRY["ABS"](), x)
    graph.outputs = [read, again, apart]
    first, second, update, last = graph.nodes
    joined = Rewriter(graph, graph.outputs).fuse([first, last], "late", {}, [read, apart])
    assert list(graph.nodes) == [joined, second, update]


@pytest.mark.skipif(not native.is_available(), reason="the native engine was not built")
def test_the_same_model_gives_the_same_program_again() -> None:
    """Nothing that is decided depends on where objects lie in memory."""
    model = onnx.parser.parse_model(NORMS_AROUND_A_SPLIT).SerializeToString()
    config = ct.TrainConfig(loss="mse", batch_size=2)
    seen, objects = set(), []
    for _ in range(6):
        program = compile(ct.load(model).module.main, config, engine=native.Native(threads=1))
        seen.add(
            str([(node.op, [str(t) for t in node.inputs], node.outputs) for node in program.graph.nodes])
        )
        objects += [Tensor("between", TensorType(DType.FLOAT32, (n,))) for n in range(99)]
    assert len(seen) == 1


JOINED: dict[str, Callable[[], Model]] = {
    **MODELS,
    "masked attention": lambda: test_attentions.network(test_attentions.FORMS["masked"]),
    "guarded attention": lambda: test_attentions.network(test_attentions.FORMS["chosen and guarded"]),
    "pads": lambda: test_pads.network((1, 1, 1, 1), "CONV_2D"),
    "pooled": test_pooled_convolutions.network,
}


def results(model: Model, engine: Reference | native.Native, loss: str) -> tuple[dict[str, Array], int]:
    """Outputs without training; loss and weights of a step. How many nodes it took."""
    found: dict[str, Array] = {}
    nodes = 0
    config = ct.TrainConfig(loss=loss, optimizer=ct.optimizers.SGD(0.05), batch_size=2)
    for mode in (Mode.PREDICT, Mode.TRAIN):
        program = compile(model.module.main, config, mode, 2, engine)
        nodes += len(program.graph.nodes)
        state = State(program.parameters, 0.05)
        executor, rng = Executor(program, state, engine), np.random.default_rng(3)
        feeds: dict[Tensor, Array] = {}
        for tensor in program.inputs:
            is_float = tensor.dtype.is_float
            x = rng.normal(size=tensor.shape) if is_float else rng.integers(0, 20, tensor.shape)
            feeds[tensor] = x.astype(np.float32) if is_float else x
        feeds |= {t: np.resize(np.eye(t.shape[-1], dtype=np.float32), t.shape) for t in program.targets}
        state.set_scalars(config.rule)
        executor.run(feeds)
        found |= {f"{mode} {i}": np.array(executor[t], np.float64) for i, t in enumerate(program.outputs)}
        found |= {p.name: np.array(state.value(p.name)) for p in program.trained}
    return found, nodes


def differences(one: dict[str, Array], other: dict[str, Array]) -> list[str]:
    return [name for name, x in one.items() if not np.allclose(x, other[name], rtol=2e-3, atol=1e-4)]


NEARLY = {
    "lstm": 1797, "gru": 1676, "rnn": 1650, "mlp": 991, "cnn": 2213, "grouped": 1064, "residual": 14873, "attention": 20067,
    "rms_norm": 1442, "masked attention": 7089, "guarded attention": 7750, "pads": 2201, "pooled": 1383,
}  # fmt: skip
"""Nodes of all programs of networks that are nearly one of these: a pattern that is seen in less, or in more, has others."""


@pytest.mark.skipif(not native.is_available(), reason="the native engine was not built")
@pytest.mark.parametrize("name", JOINED)
def test_what_is_nearly_joined_computes_what_it_says(name: str) -> None:
    """Whatever operand or option is another: natively, and by numpy on what was joined, as by numpy on the plain graph."""
    engine, loss = native.Native(1), "mse" if name == "mlp" else "categorical_crossentropy"
    wrong, left = {}, 0
    for what, model in near(JOINED[name]()):
        try:
            plain, _ = results(model, Reference(), loss)
        except (CircleTrainError, ArithmeticError, NotFinite):
            continue
        if differences(plain, plain):
            continue  # no numbers
        for other in (Joined(engine), engine):
            there, nodes = results(model, other, loss)
            if found := differences(plain, there):
                wrong[what, type(other).__name__] = found
        left += nodes
    assert not wrong
    assert left == NEARLY[name]


NODES = {
    "lstm": (21, 6), "gru": (20, 6), "rnn": (20, 6), "mlp": (10, 3), "cnn": (15, 5), "grouped": (10, 3), "residual": (35, 11),
    "attention": (41, 15), "rms_norm": (13, 4), "masked attention": (22, 9), "guarded attention": (22, 9), "pads": (14, 4),
    "pooled": (10, 4),
}  # fmt: skip
"""That are left of a training step and of a prediction: fewer where more is computed together."""


@pytest.mark.skipif(not native.is_available(), reason="the native engine was not built")
@pytest.mark.parametrize("name", JOINED)
def test_what_can_be_joined_is(name: str) -> None:
    config = ct.TrainConfig(loss="mse" if name == "mlp" else "categorical_crossentropy", batch_size=2)
    graph, engine = JOINED[name]().module.main, native.Native(1)
    programs = [compile(graph, config, mode, 2, engine) for mode in (Mode.TRAIN, Mode.PREDICT)]
    assert tuple(len(program.graph.nodes) for program in programs) == NODES[name]
