"""Every operator's gradients against finite differences, through fused activations, for all its examples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from single_operator import computed, every_operator, examples, is_float

from circle_train.compile.autodiff import add_backward
from circle_train.ir import Graph, Tensor
from circle_train.ir.graph import constant
from circle_train.ir.tensor_type import Array
from circle_train.ops import INTERNAL, REGISTRY, Example, Op
from circle_train.ops.numeric.arithmetic import Add, Mul
from circle_train.ops.numeric.reduce import Sum

OURS = {name: cls for name, cls in INTERNAL.items() if name != "PADDED_ROUNDED_CONV_2D"}
"""That one rounds its operands to bfloat16, in steps which are larger than those of the differences."""
STEP = 1e-5
DIRECTIONS = 3


def _differentiable() -> Iterator[Any]:
    """Every float input with a gradient, of every example; of our own operators too."""
    for parameter in (*examples(), *examples(OURS)):
        example: Example = parameter.values[0]
        for index, value in enumerate(example.inputs):
            name = example.op.input_name(index)
            if example.differentiable and is_float(value) and name in example.op.gradients:
                yield pytest.param(example, index, id=f"{parameter.id}-{name}{index}")


def _identical() -> Iterator[Any]:
    """Every input whose gradient is declared to be dy itself, where nothing is broadcast."""
    for parameter in _differentiable():
        example, index = parameter.values
        shape = np.shape(example.op.compute(example.inputs)[0])
        if (
            example.op.input_name(index) in example.op.identity_gradient
            and np.shape(example.inputs[index]) == shape
        ):
            yield parameter


GRADIENTS = list(_differentiable())
every_gradient = pytest.mark.parametrize(("example", "index"), GRADIENTS)


@every_operator
def test_every_gradient_has_an_example(cls: type[Op]) -> None:
    """A gradient that no example reaches could be anything."""
    reached = {
        ex.op.input_name(i) for ex, i in (parameter.values for parameter in GRADIENTS) if type(ex.op) is cls
    }
    assert set(cls.gradients) == reached


@every_gradient
def test_not_a_number_is_not_swallowed(example: Example, index: int) -> None:
    """A NaN in an element that matters reaches the result."""
    value = example.inputs[index]
    mattering = np.argwhere(gradient(example.op, example.inputs, index))
    assert value is not None
    for place in mattering[:1]:
        poisoned = value.copy()
        poisoned[tuple(place)] = np.nan
        inputs = [*example.inputs[:index], poisoned, *example.inputs[index + 1 :]]
        assert any(np.isnan(y).any() for y in computed(example.op, inputs) if y.dtype.kind == "f")


@every_gradient
def test_gradient_is_the_finite_difference(example: Example, index: int) -> None:
    """In float64, of a random projection of the outputs, along random directions of one input."""
    op, value = example.op, example.inputs[index]
    assert value is not None
    weights = projections(computed(op, example.inputs))
    analytic = gradient(op, example.inputs, index)
    assert analytic.dtype == np.float64
    for seed in range(DIRECTIONS):
        direction = np.random.default_rng(100 + seed).uniform(0.5, 1.5, value.shape)
        direction *= np.random.default_rng(200 + seed).choice([-1.0, 1.0], value.shape)
        ahead, behind = (
            projected(
                op,
                [*example.inputs[:index], value + sign * STEP * direction, *example.inputs[index + 1 :]],
                weights,
            )
            for sign in (1, -1)
        )
        numeric = (ahead - behind) / (2 * STEP)
        scale = float(np.abs(analytic * direction).sum())
        np.testing.assert_allclose(
            float((analytic * direction).sum()), numeric, rtol=1e-6, atol=1e-6 * scale + 1e-9
        )


def projections(outputs: Sequence[Array]) -> list[Array]:
    """Random weights for every output; integer outputs weigh nothing."""
    random = np.random.default_rng(7)
    return [random.uniform(0.5, 1.5, y.shape) * (y.dtype.kind == "f") for y in outputs]


def projected(op: Op, inputs: Sequence[Array | None], weights: Sequence[Array]) -> float:
    outputs = computed(op, inputs)
    return float(sum((y * w).sum() for y, w in zip(outputs, weights, strict=True) if y.dtype.kind == "f"))


def gradient(op: Op, inputs: Sequence[Array | None], index: int) -> Array:
    """The gradient of the projection by one input, through the fused activation, by the op's own method."""
    outputs = computed(op, inputs)
    dys = [op.activation.gradient(dy, y) for dy, y in zip(projections(outputs), outputs, strict=True)]
    padded = op.pad(inputs)
    given: dict[str, Any] = {"dy": dys[0], "dys": dys, "y": outputs[0], "y_shape": outputs[0].shape}
    given["index"] = index - (len(op.inputs) - 1)
    for position, spec in enumerate(op.inputs):
        operand = padded[position:] if spec.variadic else padded[position]
        given[spec.name] = operand
        given[f"{spec.name}_shape"] = [x.shape for x in operand] if spec.variadic else np.shape(operand)
    spec_ = op.gradients[op.input_name(index)]
    value = inputs[index]
    assert value is not None
    with np.errstate(all="ignore"):
        result = op.gradient(op.input_name(index), {name: given[name] for name in spec_.needs})
    return summed_to(np.asarray(result), value.shape)


def summed_to(array: Array, shape: tuple[int, ...]) -> Array:
    """Undo a broadcast, one axis at a time."""
    while array.ndim > len(shape):
        array = array.sum(axis=0)
    for axis, size in enumerate(shape):
        if size == 1 and array.shape[axis] != 1:
            array = array.sum(axis=axis, keepdims=True)
    assert array.shape == shape, f"the gradient has shape {array.shape}, the input {shape}"
    return array


@pytest.mark.parametrize(("example", "index"), list(_identical()))
def test_identity_gradients_are_dy(example: Example, index: int) -> None:
    """What is declared to need no gradient node hands dy on unchanged."""
    outputs = computed(example.op, example.inputs)
    dys = [example.op.activation.gradient(dy, y) for dy, y in zip(projections(outputs), outputs, strict=True)]
    np.testing.assert_array_equal(gradient(example.op, example.inputs, index), dys[0])


@every_gradient
def test_graph_of_gradients_computes_the_same(example: Example, index: int) -> None:
    """Differentiated as a graph, node by node, the projection has the gradient that the op's method gives."""
    op, inputs = example.op, example.inputs
    leaves = [None if x is None else constant(x, f"x{i}") for i, x in enumerate(inputs)]
    graph = Graph()
    loss: Tensor | None = None
    weights = projections(computed(op, inputs))
    for y, weight in zip(graph.emit_all(op, *leaves), weights, strict=True):
        if y.dtype.is_float:
            term = graph.emit(Mul(), y, constant(weight))
            whole = graph.emit(Sum(), term, constant(np.arange(weight.ndim)))
            loss = whole if loss is None else graph.emit(Add(), loss, whole)
    wanted = leaves[index]
    assert loss is not None
    assert wanted is not None
    found = add_backward(graph, loss, [wanted])[wanted]
    np.testing.assert_allclose(evaluated(graph, found), gradient(op, inputs, index), rtol=1e-12, atol=1e-12)


def evaluated(graph: Graph, wanted: Tensor) -> Array:
    """The value of one tensor, by running every node in order."""
    values = {t: t.data for t in (wanted, *graph.all_tensors()) if t.is_constant}
    for node in graph.nodes:
        given = [None if t is None else values[t] for t in node.inputs]
        values.update(zip(node.outputs, computed(node.op, given), strict=True))
    return values[wanted]


@pytest.mark.parametrize("cls", [cls for cls in REGISTRY.values() if cls.together], ids=lambda cls: cls.name)
def test_one_node_gives_gradients_that_one_computation_makes(cls: type[Op]) -> None:
    """A sweep back through time is not repeated for every weight."""
    example = next(iter(cls.examples()))
    inputs = [
        None if value is None else constant(value, example.op.input_name(i))
        for i, value in enumerate(example.inputs)
    ]
    graph = Graph("joint")
    outputs = graph.emit_all(example.op, *inputs)
    loss = graph.emit(Sum(), outputs[0], constant(np.arange(outputs[0].type.rank)))
    wanted = [t for t in inputs if t is not None]
    found = add_backward(graph, loss, wanted)
    sweeps = [node for node in graph.nodes if node.op.name == "GRADIENTS"]
    assert len(sweeps) == 1 and list(sweeps[0].outputs) == [found[t] for t in wanted]
    assert not [node for node in graph.nodes if node.op.name == "GRADIENT" and node.op.of is example.op]  # type: ignore[attr-defined]
