"""What the engine computes is specified, of operators of any shape."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from networks import make
from test_backends import check, dense, error

from circle_train.backends import native
from circle_train.backends.native import Native
from circle_train.ir import DType, Node, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ops.base import Op
from circle_train.ops.internal.norms.layer_norm import LayerNorm
from circle_train.ops.layers.norm import RmsNorm
from circle_train.ops.registry import INTERNAL

needs_native = pytest.mark.skipif(not native.is_available(), reason="the native engine was not built")

NATIVE_ALONE = {
    "GATHER_FROM_END",
    "LAYER_NORM",
    "MAX_POOL_AND_PLACES",
    "MAX_POOL_SCATTER",
    "SOFTMAX_CROSS_ENTROPY",
    "SUM_TO",
}
"""Our own operators that have a kernel also where nothing is joined."""


# Operators of our own, and shapes that are multiples of nothing


def single(value: np.ndarray | None) -> np.ndarray | None:
    return None if value is None else dense(value.astype(np.float32) if value.dtype == np.float64 else value)


def typed(name: str, array: np.ndarray) -> Tensor:
    return Tensor(name, TensorType(DType.of(array.dtype), array.shape))


def bound(operator: Op, values: list[Any], expected: list[np.ndarray]) -> list[np.ndarray] | None:
    """What the engine computes of these values, on three threads; None where it has no kernel."""
    tensors = [None if v is None else constant(v) if v.dtype.kind == "i" else typed("x", v) for v in values]
    made = [typed("y", y) for y in expected]
    outputs = [np.full_like(y, 77) for y in expected]
    step = Native(3).bind(Node(operator, tensors, made), values, outputs)
    if step is None:
        return None
    step()
    return outputs


@needs_native
def test_what_the_engine_computes_of_our_own_operators_is_specified() -> None:
    found = set()
    for name, cls in sorted(INTERNAL.items()):
        for example in cls.examples():
            values = [single(value) for value in example.inputs]
            written = deepcopy(values)  # by operators that write into an operand
            with np.errstate(all="ignore"):
                expected = [dense(np.asarray(y)) for y in example.op.compute(written)]
            outputs = bound(example.op, values, expected)
            if outputs is not None:
                found.add(name)
                pairs = [*zip(expected, outputs, strict=True), *zip(written, values, strict=True)]
                assert max(error(*pair) for pair in pairs if pair[0] is not None) < 4e-5, example
    assert found >= NATIVE_ALONE


sizes = st.lists(st.integers(1, 13), min_size=1, max_size=4).map(tuple)

few = settings(max_examples=25, deadline=None)


def op(name: str, **options: Any) -> Op:
    return make(name, **options)


@needs_native
@few
@given(sizes, st.sampled_from(["ADD", "SUB", "MUL", "SQUARED_DIFFERENCE", "MAXIMUM", "MINIMUM"]), st.data())
def test_elementwise_operators_of_any_shape(shape: tuple[int, ...], name: str, data: st.DataObject) -> None:
    other = tuple(size if data.draw(st.booleans()) else 1 for size in shape)
    check(op(name), shape, other[data.draw(st.integers(0, len(shape) - 1)) :])


@needs_native
@few
@given(
    sizes, st.sampled_from(["TANH", "LOGISTIC", "RELU6", "ELU", "GELU", "HARD_SWISH", "EXP", "SQUARE", "NEG"])
)
def test_unary_operators_of_any_shape(shape: tuple[int, ...], name: str) -> None:
    check(op(name), shape)


@needs_native
@few
@given(st.integers(1, 70), st.integers(2, 300), st.sampled_from(["SOFTMAX", "LOG_SOFTMAX"]))
def test_softmax_of_any_size(rows: int, columns: int, name: str) -> None:
    check(op(name), (rows, columns))


def check_with_integers(operator: Op, shape: tuple[int, ...], integers: list[int]) -> None:
    """The operator and its gradient where the second input is a constant of integers."""
    x = np.random.default_rng([*shape]).uniform(-2, 2, shape).astype(np.float32)
    values = [x, np.array(integers, np.int32)]
    expected = [dense(np.asarray(y)) for y in operator.compute(values)]
    outputs = bound(operator, values, expected)
    assert outputs is not None, f"{operator.name} of {shape} by {integers} is not native"
    assert error(expected[0], outputs[0]) < 4e-5


@needs_native
@few
@given(sizes, st.sampled_from(["MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN"]), st.booleans(), st.data())
def test_reductions_of_any_shape(shape: tuple[int, ...], name: str, keep: bool, data: st.DataObject) -> None:
    axes = data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    check_with_integers(op(name, keep_dims=keep), shape, sorted(axes))


@needs_native
@few
@given(sizes, st.data())
def test_transposes_of_any_shape(shape: tuple[int, ...], data: st.DataObject) -> None:
    check_with_integers(op("TRANSPOSE"), shape, data.draw(st.permutations(range(len(shape)))))


@needs_native
@few
@given(st.sampled_from([LayerNorm(), RmsNorm(), RmsNorm(0.5)]), st.integers(1, 40), st.integers(2, 200))
def test_norms_of_any_size(operator: Op, rows: int, columns: int) -> None:
    rng = np.random.default_rng([rows, columns])
    shapes = ((rows, columns), (columns,), (columns,))[: len(operator.inputs)]
    values = [rng.normal(size=s).astype(np.float32) for s in shapes]
    expected = [dense(np.asarray(y)) for y in operator.compute(values)]
    outputs = bound(operator, values, expected)
    assert outputs is not None
    assert max(error(*pair) for pair in zip(expected, outputs, strict=True)) < 4e-5
