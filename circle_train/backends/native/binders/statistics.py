"""Normalisations made of sums and chains: what is added up is small, the tensors are walked as they lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from circle_train.backends.native.binders.chain import Builder, chain
from circle_train.backends.native.binders.elementwise import activate
from circle_train.backends.native.binders.reduce import reduced, summed
from circle_train.backends.native.engine.abi import ChainOp, Reduce
from circle_train.backends.native.engine.binding import (
    Calls,
    Values,
    binds,
    binds_gradient,
    floats,
    supported,
)
from circle_train.backends.native.engine.step import Call
from circle_train.ir.tensor_type import Array
from circle_train.ops.internal.gradient import Gradient
from circle_train.ops.layers.norm import SMALLEST_NORM, InstanceNorm, L2Normalization


class Sequel:
    """Calls one after the other; none where one of them is not covered."""

    def __init__(self) -> None:
        self.calls: list[Call] | None = []

    def add(self, calls: Calls) -> None:
        self.calls = None if self.calls is None or calls is None else [*self.calls, *calls]

    def chain(self, formula: Callable[..., int], inputs: Sequence[Array], output: Array) -> None:
        """One formula of the inputs."""
        self.add(chain(formula, inputs, output))

    def mean(self, x: Array, axes: Sequence[int]) -> Array:
        """Of x over the axes, which stay with one element."""
        kept = np.empty([1 if i in axes else n for i, n in enumerate(x.shape)], np.float32)
        self.add(reduced(x, kept, axes, Reduce.SUM, kept.size / x.size))
        return kept

    def deviation(self, x: Array, axes: Sequence[int], room: Array) -> tuple[Array, Array]:
        """Mean and variance of x over the axes; `room` is overwritten."""
        mean = self.mean(x, axes)
        self.chain(lambda b, x, m: b.emit(ChainOp.SQUARE, b.emit(ChainOp.SUB, x, m)), [x, mean], room)
        return mean, self.mean(room, axes)


def _normal(b: Builder, values: Sequence[int], epsilon: float) -> tuple[int, int]:
    """(x - mean) / deviation, and 1 / deviation, of x, mean and variance."""
    x, mean, variance = values
    inverse = b.emit(ChainOp.RSQRT, b.emit(ChainOp.ADD_IMM, variance, imm=epsilon))
    return b.emit(ChainOp.MUL, b.emit(ChainOp.SUB, x, mean), inverse), inverse


def _image(x: Array) -> tuple[int, ...]:
    return tuple(range(1, x.ndim - 1))


@binds(InstanceNorm)
def instance_norm(op: InstanceNorm, inputs: Values, outputs: Sequence[Array]) -> Calls:
    (x, gamma, beta), y = inputs, outputs[0]
    if not floats(x, gamma, beta, y) or not x.size or not supported(op.activation):
        return None
    made = Sequel()
    mean, variance = made.deviation(x, _image(x), y)

    def scaled(b: Builder, *values: int) -> int:
        gamma, beta, *rest = values
        normal, _ = _normal(b, rest, op.epsilon)
        return activate(b, op.activation, b.emit(ChainOp.MUL_ADD, normal, gamma, beta))

    made.chain(scaled, [gamma, beta, x, mean, variance], y)
    return made.calls


@binds_gradient("x", InstanceNorm)
def instance_norm_x(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    """(d - mean d - n mean(d n)) / deviation, d = dy gamma, n what is normal."""
    dy, x, gamma, of = given["dy"], given["x"], given["gamma"], op.of
    assert isinstance(of, InstanceNorm)
    if not floats(dy, x, gamma, out) or not x.size:
        return None
    made, axes = Sequel(), _image(x)
    mean, variance = made.deviation(x, axes, out)
    made.chain(lambda b, dy, gamma: b.emit(ChainOp.MUL, dy, gamma), [dy, gamma], out)
    first = made.mean(out, axes)

    def inner(b: Builder, *values: int) -> int:
        dy, gamma, *rest = values
        return b.emit(ChainOp.MUL, b.emit(ChainOp.MUL, dy, gamma), _normal(b, rest, of.epsilon)[0])

    made.chain(inner, [dy, gamma, x, mean, variance], out)
    second = made.mean(out, axes)

    def whole(b: Builder, *values: int) -> int:
        first, second, dy, gamma, *rest = values
        normal, inverse = _normal(b, rest, of.epsilon)
        centred = b.emit(ChainOp.SUB, b.emit(ChainOp.MUL, dy, gamma), first)
        return b.emit(ChainOp.MUL, b.emit(ChainOp.SUB, centred, b.emit(ChainOp.MUL, normal, second)), inverse)

    made.chain(whole, [first, second, dy, gamma, x, mean, variance], out)
    return made.calls


@binds_gradient("gamma", InstanceNorm)
def instance_norm_gamma(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    dy, x, of = given["dy"], given["x"], op.of
    assert isinstance(of, InstanceNorm)
    if not floats(dy, x, out) or not x.size:
        return None
    made, room = Sequel(), np.empty_like(x)
    mean, variance = made.deviation(x, _image(x), room)

    def inner(b: Builder, dy: int, *values: int) -> int:
        return b.emit(ChainOp.MUL, dy, _normal(b, values, of.epsilon)[0])

    made.chain(inner, [dy, x, mean, variance], room)
    made.add(summed(room, out))
    return made.calls


@binds_gradient("beta", InstanceNorm)
def instance_norm_beta(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    return summed(given["dy"], out)


def _length(b: Builder, squares: int) -> int:
    return b.emit(ChainOp.MAX_IMM, b.emit(ChainOp.SQRT, squares), imm=SMALLEST_NORM)


def _squares(made: Sequel, x: Array) -> Array:
    kept = np.empty((*x.shape[:-1], 1), np.float32)
    made.add(reduced(x, kept, [x.ndim - 1], Reduce.SUM_SQUARES))
    return kept


@binds(L2Normalization)
def l2_normalization(op: L2Normalization, inputs: Values, outputs: Sequence[Array]) -> Calls:
    x, y = inputs[0], outputs[0]
    if not floats(x, y) or not x.size or x.shape[-1] == 1 or not supported(op.activation):
        return None
    made = Sequel()
    squares = _squares(made, x)
    made.chain(
        lambda b, x, s: activate(b, op.activation, b.emit(ChainOp.DIV, x, _length(b, s))), [x, squares], y
    )
    return made.calls


@binds_gradient("x", L2Normalization)
def l2_normalization_x(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    """(dy - n Σ(dy n)) / ‖x‖, n = x / ‖x‖; where the norm is too small to divide by, dy / 1e-6."""
    dy, x = given["dy"], given["x"]
    if not floats(dy, x, out) or not x.size or x.shape[-1] == 1:
        return None
    made = Sequel()
    squares = _squares(made, x)
    made.chain(lambda b, dy, x: b.emit(ChainOp.MUL, dy, x), [dy, x], out)
    along = np.empty_like(squares)
    made.add(reduced(out, along, [x.ndim - 1]))

    def whole(b: Builder, dy: int, x: int, squares: int, along: int) -> int:
        length = _length(b, squares)
        share = b.emit(ChainOp.DIV, b.emit(ChainOp.DIV, along, length), length)
        is_long = b.emit(ChainOp.GREATER, length, b.constant(SMALLEST_NORM))
        radial = b.emit(ChainOp.SELECT, is_long, b.emit(ChainOp.MUL, x, share), b.constant(0))
        return b.emit(ChainOp.DIV, b.emit(ChainOp.SUB, dy, radial), length)

    made.chain(whole, [dy, x, squares, along], out)
    return made.calls
