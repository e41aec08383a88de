"""Passes: batch size, shared buffers, float masters, order, early updates."""

from __future__ import annotations

import numpy as np
import pytest
from networks import finish, make, mlp, new_input, weight

import circle_train as ct
from circle_train.ir import DType, Graph, Node, StateKey, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ops.internal.gradient import Accumulate
from circle_train.passes import pipelines
from circle_train.passes.order import sort_topologically
from circle_train.passes.schedule import update_early

FLOATS = TensorType(DType.FLOAT32, (2,))


@pytest.mark.parametrize(
    ("target", "before", "after", "expected"),
    [
        ((1, 24), (1, 4, 6), (3, 4, 6), (3, 24)),
        ((4, 6), (1, 4, 6), (3, 4, 6), (12, 6)),
        ((1, 4, 2, 3), (1, 24), (5, 24), (5, 4, 2, 3)),
        ((5, 8), (5, 1, 8), (5, 3, 8), (5, 24)),
        ((5, 1, 2, 4), (5, 1, 8), (5, 3, 8), (5, 3, 2, 4)),
        ((2, 12), (2, 4, 3), (6, 4, 3), (6, 12)),
        ((8, 3), (2, 4, 3), (1, 4, 3), (4, 3)),
    ],
)
def test_a_reshape_grows_where_the_batch_lies(
    target: tuple[int, ...], before: tuple[int, ...], after: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    """The stretched target must cut the data as the old one did: sample by sample, numpy tells."""
    (grown,) = (axis for axis, size in enumerate(before) if after[axis] != size)
    sizes = constant(np.array(target, np.int32))
    made = Tensor("y", TensorType(DType.FLOAT32, target))
    node = Node(make("RESHAPE"), [new_input("x", *before), sizes], [made])
    assert tuple(node.op.axes.resized(node, 0, grown, after[grown])[1]) == expected
    assert np.prod(expected) == np.prod(after)


def reshaping() -> ct.Model:
    """A dense layer between reshapes whose constants hold the batch of 1, one of them merged with another axis."""
    graph = Graph("reshaping", [new_input("x", 1, 4, 6)])
    shape = constant(np.array([4, 6], np.int32), "merged")
    x = graph.emit(make("RESHAPE", new_shape=(4, 6)), graph.inputs[0], shape, name="rows")
    x = graph.emit(make("FULLY_CONNECTED"), x, weight("w", 3, 6), weight("b", 3), name="fc")
    x = graph.emit(
        make("RESHAPE", new_shape=(1, 12)), x, constant(np.array([1, 12], np.int32), "flat"), name="flat"
    )
    return finish(graph, x)


def test_a_bigger_batch_computes_each_sample_as_alone() -> None:
    x = np.random.default_rng(0).normal(size=(5, 4, 6)).astype(np.float32)
    infer = ct.InferenceSession(reshaping(), backend="reference")
    np.testing.assert_allclose(infer(x), np.concatenate([infer(x[i : i + 1]) for i in range(5)]), atol=1e-6)


def test_shape_arithmetic_is_computed_beforehand() -> None:
    """SHAPE → STRIDED_SLICE → PACK → RESHAPE, as converters write a flatten."""
    graph = Graph("shapes", [new_input("x", 1, 3, 4)])
    size = graph.emit(make("SHAPE"), graph.inputs[0], name="shape")
    indices = [constant(np.array([i], np.int32)) for i in (0, 1, 1)]
    first = graph.emit(make("STRIDED_SLICE", shrink_axis_mask=1), size, *indices, name="first")
    target = graph.emit(
        make("PACK", values_count=2, axis=0), first, constant(np.array(12, np.int32)), name="target"
    )
    x = graph.emit(make("RESHAPE"), graph.inputs[0], target, name="flat")
    model = finish(graph, x)
    made = pipelines.run(pipelines.before_training(7), model.module.main.copy())
    assert [node.op.name for node in made.nodes] == ["RESHAPE"]
    assert made.outputs[0].shape == (7, 12)


def test_an_update_waits_for_the_last_reader() -> None:
    w = Tensor("w", FLOATS, state=StateKey("value", "w"))
    graph = Graph("g", [Tensor("x", FLOATS)])
    gradient = graph.emit(make("NEG"), graph.inputs[0], name="gradient")
    graph.emit(make("ADD"), graph.inputs[0], graph.inputs[0], name="between")
    reader = graph.emit(make("MUL"), gradient, w, name="reader")
    graph.emit(make("ADD"), reader, reader, name="late")
    graph.emit_all(Accumulate(), w, gradient)
    update_early(graph)
    assert [node.op.name for node in graph.nodes] == ["NEG", "ADD", "MUL", "ACCUMULATE", "ADD"]


def test_an_update_moves_up_to_its_gradient() -> None:
    w = Tensor("w", FLOATS, state=StateKey("value", "w"))
    graph = Graph("g", [Tensor("x", FLOATS)])
    gradient = graph.emit(make("NEG"), graph.inputs[0], name="gradient")
    graph.emit(make("ADD"), graph.inputs[0], graph.inputs[0], name="between")
    graph.emit_all(Accumulate(), w, gradient)
    update_early(graph)
    assert [node.op.name for node in graph.nodes] == ["NEG", "ACCUMULATE", "ADD"]


def test_nodes_are_sorted_and_cycles_refused() -> None:
    model = mlp()
    graph = model.module.main
    names = [node.outputs[0].name for node in graph.nodes]
    graph.nodes = graph.nodes[::-1]
    sort_topologically(graph)
    assert [node.outputs[0].name for node in graph.nodes] == names
    first, second = Tensor("a", FLOATS), Tensor("b", FLOATS)
    ring = Graph("ring", [], [second])
    for source, result in ((second, first), (first, second)):
        ring.append(Node(make("NEG"), [source], [result]))
    with pytest.raises(ct.ModelError, match="cycle"):
        sort_topologically(ring)


def test_where_gradients_stop_training_goes_on_by_other_paths() -> None:
    """y = floor(h) + h: the first term passes nothing, the second everything."""
    x = np.random.default_rng(1).normal(size=(4, 6)).astype(np.float32)
    y = np.zeros((4, 3), np.float32)

    def model(with_floor: bool) -> ct.Model:
        graph = Graph("floor", [new_input("x", 1, 6)])
        h = graph.emit(make("FULLY_CONNECTED"), graph.inputs[0], weight("w", 3, 6), weight("b", 3), name="fc")
        floor = (
            graph.emit(make("FLOOR"), h, name="floor")
            if with_floor
            else constant(np.zeros((1, 3), np.float32))
        )
        return finish(graph, graph.emit(make("ADD"), floor, h, name="sum"))

    config = ct.TrainConfig(
        loss="mae", optimizer=ct.optimizers.SGD(learning_rate=1.0), batch_size=4, trainable=[0]
    )
    steps = []
    for with_floor in (True, False):
        session = ct.TrainSession(model(with_floor), config, backend="reference")
        before = session.parameters["w"].copy()
        out = session.train_step(x, y).outputs[0]
        steps.append((session.parameters["w"] - before, np.sign(out)))
    for step, sign in steps:
        np.testing.assert_allclose(step, -(sign.T @ x) / 12, atol=1e-6)
