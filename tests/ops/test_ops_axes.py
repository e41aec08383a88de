"""What operators say of axes holds for each of their examples; a new operator needs no test of its own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from networks import make
from single_operator import computed, is_constant

from circle_train.ir import DType, Node, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ir.tensor_type import Array
from circle_train.ops import INTERNAL, REGISTRY, Example, Op
from circle_train.ops.axes import Mixes, Permuted
from circle_train.ops.base import random, register
from circle_train.ops.elementwise import Unary
from circle_train.ops.internal.integers.quantized import Quantized
from circle_train.ops.orders import Order, inverse

MORE = [
    Example(make("SLICE"), (random(2, 4, 3), np.array([0, 1, 0]), np.array([-1, 2, 3]))),
    *(
        Example(
            make("STRIDED_SLICE", begin_mask=1, end_mask=end, shrink_axis_mask=shrink),
            (random(2, 4, 3), np.array([0, 1, 0]), np.array([2, 3, 2]), np.array([1, 1, 1])),
        )
        for end in (0, 1)
        for shrink in (0, 2, 4)
    ),
    Example(make("RESHAPE"), (random(4, 1, 6, 5), np.array([4, 2, 3, 5]))),
    Example(make("RESHAPE"), (random(2, 3, 4, 5), np.array([2, 12, 5]))),
    Example(make("GATHER", axis=1), (random(2, 4, 3), np.array([2, 0, 2]))),
    Example(make("ADD"), (random(2, 3, 4, 5), random(4, 1, seed=1))),
    Example(
        Quantized(make("RESHAPE"), (None, None), ((DType.FLOAT64, None),)),
        (random(4, 6), np.array([4, 2, 3])),
    ),
]
"""Where the operators' own examples leave an answer out."""


NAMED = {**INTERNAL, **REGISTRY}
every_operator = pytest.mark.parametrize("name", sorted(NAMED))
NEVER_KEPT = {"ACTIVATION_GRADIENT", "NARROW", "WIDEN", "QUANTIZED"}
"""What has no examples; where it stands in a program it is tested by the engines."""


def node_of(op: Op, values: list[Any], constants: list[bool]) -> Node:
    inputs = [
        None
        if value is None
        else constant(value, f"x{i}")
        if is_given
        else Tensor(f"x{i}", TensorType(DType.of(value.dtype), value.shape))
        for i, (value, is_given) in enumerate(zip(values, constants, strict=True))
    ]
    outputs = [Tensor("y", TensorType(DType.of(y.dtype), y.shape)) for y in computed(op, values)]
    return Node(op, inputs, outputs)


def nodes(name: str) -> Iterator[tuple[Node, list[Any]]]:
    """Every example as a node, its indices being constants, and its inputs' values; and each with one of these constants
    an operand that is computed while running."""
    for example in [*NAMED[name].examples(), *(one for one in MORE if one.op.name == name)]:
        if not example.op.mutates:
            values = list(example.inputs)
            given = [is_constant(example, i) for i in range(len(values))]
            yield node_of(example.op, values, given), values
            for chosen in (i for i, is_given in enumerate(given) if is_given and len(values) > 1):
                yield (
                    node_of(example.op, values, [known and i != chosen for i, known in enumerate(given)]),
                    values,
                )


def axes_of(values: list[Any]) -> list[tuple[int, int]]:
    return [(i, axis) for i, value in enumerate(values) if value is not None for axis in range(value.ndim)]


def kept(name: str) -> Iterator[tuple[Node, list[Any], int, list[tuple[int, int]]]]:
    """Every axis of the outputs whose entries are said to be treated one by one, and which axes of inputs come out as it."""
    for node, values in nodes(name):
        found = {(i, axis): node.op.axes.kept(node, i, axis) for i, axis in axes_of(values)}
        for at in sorted({at for at in found.values() if at is not None}):
            yield node, values, at, [place for place, out in found.items() if out == at]


def close(made: Array, expected: Array, what: object) -> None:
    np.testing.assert_allclose(made, expected, rtol=1e-9, atol=1e-12, err_msg=str(what))


@every_operator
def test_entries_that_change_places_do_so_in_the_outputs(name: str) -> None:
    for node, values, at, places in kept(name):
        order = np.roll(np.arange(node.outputs[0].shape[at]), 1)
        moved = list(values)
        for i, axis in places:
            assert values[i].shape[axis] == len(order), (node.op, i, axis)
            moved[i] = np.take(moved[i], order, axis)
        for made, whole in zip(computed(node.op, moved), computed(node.op, values), strict=True):
            close(made, np.take(whole, order, at), (node.op, places, at))


@every_operator
def test_an_entry_that_changes_changes_no_other(name: str) -> None:
    """Changed places alone would allow a mean over the entries."""
    for node, values, at, places in kept(name):
        others = np.arange(1, node.outputs[0].shape[at])
        changed = list(values)
        for i, axis in places:
            if values[i].dtype.kind == "f":
                changed[i] = changed[i].copy()
                changed[i][(slice(None),) * axis + (0,)] *= 0.75
        for made, whole in zip(computed(node.op, changed), computed(node.op, values), strict=True):
            close(np.take(made, others, at), np.take(whole, others, at), (node.op, places, at))


@every_operator
def test_operands_that_lie_otherwise_give_what_lies_otherwise(name: str) -> None:
    for node, values in nodes(name):
        rank = max((t.type.rank for t in node.inputs if t is not None and not t.is_constant), default=0)
        for order in permutations(range(rank)):
            varies = [t is not None and not t.is_constant and t.type.rank == rank for t in node.inputs]
            orders = [order if free else None for free in varies]
            found = node.op.axes.permuted(node, orders)
            if found is not None:
                expected = computed(node.op, values)
                for one, lies, whole in zip(
                    turned(found, values, expected), found.orders, expected, strict=True
                ):
                    close(one.transpose(lies), whole, (node.op, order))


def turned(found: Permuted, values: list[Any], expected: list[Array]) -> list[Array]:
    operands = [
        lying(value, wanted) if isinstance(wanted, tuple) else wanted
        for value, wanted in zip(values, found.operands, strict=True)
    ]
    if found.op is None:
        return [operands[0].reshape(lying(expected[0], found.orders[0]).shape)]
    return computed(found.op, operands)


def lying(value: Array, order: Order) -> Array:
    """What lies in memory when the value lies in this order; a longer one has axes of size 1 in front."""
    return value.reshape((1,) * (len(order) - value.ndim) + value.shape).transpose(inverse(order))


@every_operator
def test_a_node_made_for_a_size_takes_twice_as_much(name: str) -> None:
    for node, values, at, places in kept(name):
        grown = list(values)
        for index, axis in places:
            for i, constant_ in node.op.axes.resized(
                node, index, axis, 2 * values[index].shape[axis]
            ).items():
                grown[i] = constant_
            grown[index] = np.concatenate([values[index]] * 2, axis)
        for made, whole in zip(computed(node.op, grown), computed(node.op, values), strict=True):
            close(made, np.concatenate([whole] * 2, at), (node.op, places))


@every_operator
def test_every_operator_says_how_it_treats_axes(name: str) -> None:
    """And some example shows it."""
    axes = NAMED[name].axes
    assert axes is not Op.axes, f"{name} declares no axes"
    if isinstance(axes, Mixes):
        assert axes.why
    else:
        assert name in NEVER_KEPT or any(kept(name)), f"no entries of any example of {name} are kept apart"


def test_a_class_may_not_speak_of_inputs_that_it_has_not() -> None:
    class Wrong(Unary):
        static_inputs = ("places",)

        def forward(self, x: Array) -> Array:
            return x

    with pytest.raises(TypeError, match="Wrong speaks of \\['places'\\], which forward has not"):
        register("WRONG", internal=True)(Wrong)


def test_a_formula_is_that_of_the_forward_beside_it() -> None:
    class Halved(NAMED["RELU"]):  # type: ignore[misc]
        def forward(self, x: Array) -> Array:
            return x / 2

    with pytest.raises(TypeError, match="Halved has a forward of its own, but the formula of a base"):
        register("HALVED", internal=True)(Halved)
