"""Rounding to bfloat16 and products of bfloat16s, in numpy and in every tier of the engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bfloat16_nets import RNG, engine_of, needs_native, normal

from circle_train.backends.native import Native
from circle_train.backends.native.engine.abi import Tier
from circle_train.ir import DType, Node, Tensor, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import Activation, Padding
from circle_train.ops.base import Op
from circle_train.ops.internal.bfloat16 import (
    Narrow,
    RoundedBatchMatMul,
    RoundedConv2D,
    RoundedFullyConnected,
    RoundToBfloat16,
    Widen,
    narrowed,
    rounded,
)
from circle_train.ops.internal.gradient import Gradient


def test_rounding_is_to_nearest_even() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    bits = RNG.integers(0, 1 << 32, 200_000, dtype=np.uint32)
    halfway = (RNG.integers(0, 1 << 16, 50_000, dtype=np.uint32) << 16) | 0x8000
    x = np.concatenate([bits, halfway]).view(np.float32)
    x = x[(np.abs(x) >= 2.0**-126) | (x == 0)]
    with np.errstate(all="ignore"):
        expected = x.astype(ml_dtypes.bfloat16)
    ours = narrowed(x).view(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(np.isnan(ours), np.isnan(x))
    np.testing.assert_array_equal(ours[~np.isnan(x)].view(np.uint16), expected[~np.isnan(x)].view(np.uint16))


def test_subnormals_become_zero_and_keep_their_sign() -> None:
    tiny = np.array([1e-40, -1e-40], np.float32)
    assert rounded(tiny).tobytes() == np.array([0.0, -0.0], np.float32).tobytes()


SPECIAL = np.array(
    [np.nan, -np.nan, np.inf, -np.inf, 0, -0.0, 1e-40, 3.4e38, -3.4e38, 1.00390625], np.float32
)


@needs_native
@pytest.mark.parametrize("tier", list(Tier)[1:])
@pytest.mark.parametrize("size", [1, 3, 15, 16, 33, 4099])
def test_engine_rounds_alike(tier: Tier, size: int) -> None:
    engine = engine_of(tier)
    x = np.resize(np.concatenate([SPECIAL, RNG.normal(size=50).astype(np.float32)]), size).astype(np.float32)
    for op, given in ((RoundToBfloat16(), x), (Narrow(), x), (Widen(), narrowed(x))):
        expected = np.asarray(op.forward(given))
        out = np.zeros_like(expected)
        step = engine.bind(node_of(op, [given], out), [given], [out])
        assert step is not None
        step()
        assert out.tobytes() == expected.tobytes(), op


def node_of(op: Op, values: list[Array | None], out: Array) -> Node:
    tensors = [None if v is None else Tensor("x", TensorType(DType.of(v.dtype), v.shape)) for v in values]
    return Node(op, tensors, [Tensor("y", TensorType(DType.of(out.dtype), out.shape))])


# Products


def products() -> list[Any]:
    """Rounded operators and inputs of sizes that are multiples of nothing, and of what tiles are."""
    cases = []
    for rows, inputs, outputs in (
        (5, 7, 3),
        (50, 33, 40),
        (130, 64, 96),
        (300, 129, 17),
        (1, 1, 1),
        (13, 4000, 33),
    ):
        x, w, b = normal(rows, inputs), normal(outputs, inputs), normal(outputs)
        cases.append(pytest.param(RoundedFullyConnected(), (x, w, b), id=f"fc-{rows}x{inputs}x{outputs}"))
    for lhs in (False, True):
        for rhs in (False, True):
            x, w = normal(5, 2, 19, 34), normal(5, 2, 34, 21)
            x, w = np.swapaxes(x, 2, 3).copy() if lhs else x, np.swapaxes(w, 2, 3).copy() if rhs else w
            cases.append(pytest.param(RoundedBatchMatMul(lhs, rhs), (x, w), id=f"bmm-{lhs}-{rhs}"))
    for size, stride in ((1, 1), (3, 1), (3, 2), (1, 2)):
        op = RoundedConv2D(Padding.SAME, stride, stride, Activation.RELU6)
        given = (normal(2, 9, 8, 18), normal(35, size, size, 18), normal(35))
        cases.append(pytest.param(op, given, id=f"conv-{size}-{stride}"))
    return cases


def all_of_product(engine: Native, op: Op, given: tuple[Array, ...]) -> list[tuple[Array, Array]]:
    """Forward and the gradients of x and w: what the engine computes, and what is specified."""
    y = op.compute(given)[0]
    dy = normal(*y.shape)
    nodes: list[tuple[Op, list[Array | None]]] = [(op, list(given))]
    for wrt, other in ((0, given[1]), (1, given[0])):
        name, kept = ("x", "w") if wrt == 0 else ("w", "x")
        needs = op.gradients[name].needs
        shapes = {f"{name}_shape": given[wrt].shape} if f"{name}_shape" in needs else {}
        type_ = TensorType(DType.FLOAT32, given[wrt].shape)
        nodes.append((Gradient(op, wrt, type_, (("dy", 1), (kept, 1)), shapes), [dy, other]))
    results = []
    for one, values in nodes:
        expected = np.ascontiguousarray(one.compute(values)[0])
        out = np.full_like(expected, np.nan)
        step = engine.bind(node_of(one, values, out), values, [out])
        assert step is not None, one
        step()
        results.append((out, expected))
    return results


@needs_native
@pytest.mark.parametrize(("op", "given"), products())
def test_products_are_of_rounded_operands(op: Op, given: tuple[Array, ...]) -> None:
    for found, expected in all_of_product(Native(3), op, given):
        assert np.abs(found - expected).max() <= 3e-6 * max(float(np.abs(expected).max()), 1.0) * 8


@needs_native
@pytest.mark.parametrize(("op", "given"), products())
def test_products_are_the_same_bits_with_and_without_the_instruction(
    op: Op, given: tuple[Array, ...]
) -> None:
    """AVX2 code has no instruction for them and multiplies in two steps; the weight gradients' sums are cut alike."""
    best, other = engine_of(Tier.AUTO), engine_of(Tier.AVX2)
    for (a, _), (b, _) in zip(
        all_of_product(best, op, given)[:2], all_of_product(other, op, given)[:2], strict=True
    ):
        assert a.tobytes() == b.tobytes()


@needs_native
def test_float32_would_not_pass() -> None:
    """The bound above tells rounded operands from others."""
    x, w, b = normal(50, 33), normal(40, 33), normal(40)
    exact = x @ w.T + b
    assert np.abs(RoundedFullyConnected().forward(x, w, b) - exact).max() > 1e-3
