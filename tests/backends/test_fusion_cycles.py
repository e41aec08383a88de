"""Nodes that are joined while others stand between them: where these would wait for one another, they stay apart."""

from __future__ import annotations

import numpy as np
import pytest

import circle_train as ct
from circle_train.backends import native
from circle_train.backends.native.fusion.rewriter import Rewriter
from circle_train.compile.compile import compile
from circle_train.ir import DType, Graph, StateKey, Tensor, TensorType
from circle_train.ops import REGISTRY
from circle_train.ops.internal.fused import Fused
from circle_train.ops.internal.gradient import Accumulate

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
