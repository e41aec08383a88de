"""Nodes that are joined while others stand between them: where these would wait for one another, they stay apart."""

from __future__ import annotations

import numpy as np
import pytest

import circle_train as ct
from circle_train.backends import native
from circle_train.backends.native.fusion.rewriter import Rewriter
from circle_train.ir import DType, Graph, Tensor, TensorType
from circle_train.ops import REGISTRY
from circle_train.ops.internal.fused import Fused

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
    rewriter.fuse(nodes[:2], "sound", {}, nodes[1].outputs)
    rewriter.fuse([nodes[2], nodes[4]], "around", {}, [nodes[2].outputs[0], tensor])
    rewriter.settle()
    kinds = [n.op.kernel if isinstance(n.op, Fused) else n.op.name for n in graph.nodes]
    assert kinds == ["sound", "ABS", "NEG", "ABS"]
    assert [node.outputs[0].producer for node in graph.nodes] == list(graph.nodes)
