"""Whether a tensor holds probabilities, seen through whatever changes no value: what was normalised, and by what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from circle_train.ir import Node, Tensor
from circle_train.ir.tensor_type import Array
from circle_train.ops import Op
from circle_train.ops.internal.integers.quantized import Quantized
from circle_train.ops.numeric.activation import Logistic, LogSoftmax, Softmax, Tanh
from circle_train.ops.numeric.arithmetic import Add, Div, Maximum, Minimum, Mul, Sub
from circle_train.ops.numeric.reduce import Sum
from circle_train.ops.numeric.unary import Exp, Neg
from circle_train.ops.shapes.join import Concatenation, Pack, Split, SplitV
from circle_train.ops.shapes.shape import Transpose
from circle_train.ops.shapes.slice import Slice
from circle_train.record import record

EPSILON = 1e-3
"""How far from 0 and 1 a clip may keep probabilities, and how far from 1 a row of them may add up to."""
ROUNDS = "DEQUANTIZE QUANTIZE FAKE_QUANT ROUND_TO_BFLOAT16".split()
KEEPS = "CAST RELU RELU6 RELU_0_TO_1 RELU_N1_TO_1 ON_GRID".split()
"""They change no number from 0 to 1; the grid of an integer output does, but its 0 would have no gradient."""


@record
class Probabilities:
    """Numbers from 0 to 1; of rows they add up to 1."""

    logits: Tensor | None
    """What normalising gives exactly these, in another shape perhaps; None: something happened to them since."""
    beta: float = 1.0


def rows_of(output: Tensor) -> Probabilities | None:
    """Distributions along the last axis."""
    return _through(output, _softmax, rows=True)


def single_ones(output: Tensor) -> Probabilities | None:
    """Each by itself a probability."""
    return _through(output, _logistic, rows=False) or _through(output, _softmax, rows=False)


def _through(
    output: Tensor, made: Callable[[Node], Probabilities | None], rows: bool
) -> Probabilities | None:
    exact, tensor = True, output
    while (node := tensor.producer) is not None:
        if isinstance(node.op, Quantized):  # the same probabilities in steps
            node, exact = replace(node, op=node.op.of), False
        found = made(node)
        if found is not None:
            return found if exact else Probabilities(None)
        before, keeps = _before(node, tensor, rows)
        if before is None and not rows:
            return _joined(node, made)
        if before is None:
            return None
        exact, tensor = exact and keeps, before
    return None


def _before(node: Node, tensor: Tensor, rows: bool) -> tuple[Tensor | None, bool]:
    """The tensor of the same probabilities before a node, and whether they are the same to the bit."""
    op, name, first = node.op, node.op.name, node.inputs[0] if node.inputs else None
    if node.op.view_input is not None or (name in KEEPS and first is not None):
        same_rows = first is not None and first.shape[-1:] == tensor.shape[-1:]
        return (first if same_rows or not rows else None), True
    if name in ROUNDS:
        return first, False
    if isinstance(op, Slice) and first is not None and first.shape == tensor.shape:
        return first, True
    if isinstance(op, Transpose) and not rows:
        return first, False
    if isinstance(op, Concatenation):
        return _split(node), True
    if type(op) in HARMLESS:
        for x, number in (node.inputs, node.inputs[::-1]):
            fits = x is not None and x.shape == tensor.shape and number is not None and number.is_constant
            if fits and number is not None and HARMLESS[type(op)](number.data):
                return x, not isinstance(op, (Maximum, Minimum))
    return None, False


HARMLESS: dict[type[Op], Callable[[Array], bool]] = {
    Mul: lambda c: bool((c == 1).all()),
    Div: lambda c: bool((c == 1).all()),
    Add: lambda c: bool((c == 0).all()),
    Sub: lambda c: bool((c == 0).all()),
    Maximum: lambda c: bool((c <= EPSILON).all()),
    Minimum: lambda c: bool((c >= 1 - EPSILON).all()),
}
"""By operator: the constants with which it leaves probabilities what they are, or almost."""


def _split(node: Node) -> Tensor | None:
    """What was taken apart and is put together again."""
    first = node.inputs[0]
    maker = _maker(first, Split, SplitV)
    if maker is None or list(maker.outputs) != list(node.inputs):
        return None
    whole = maker.inputs[1 if isinstance(maker.op, Split) else 0]
    return whole if whole is not None and whole.shape == node.outputs[0].shape else None


def _joined(node: Node, made: Callable[[Node], Probabilities | None]) -> Probabilities | None:
    """Of several heads, each with its own."""
    if not isinstance(node.op, (Concatenation, Pack)):
        return None
    parts = [None if t is None else _through(t, made, rows=False) for t in node.inputs]
    return None if None in parts else Probabilities(None)


def _softmax(node: Node) -> Probabilities | None:
    if isinstance(node.op, Softmax):
        return Probabilities(node.inputs[0], node.op.beta)
    if isinstance(node.op, Exp) and (log := _maker(node.inputs[0], LogSoftmax)) is not None:
        return Probabilities(log.inputs[0])
    if isinstance(node.op, Div) and not node.op.activation:
        return _shares(*node.inputs[:2])
    return None


def _shares(x: Tensor | None, total: Tensor | None) -> Probabilities | None:
    """Numbers from 0, divided by the sum of each row."""
    total_of = _maker(total, Sum)
    part = None if x is None else x.producer
    if (
        x is None
        or total_of is None
        or part is None
        or total_of.inputs[0] is not x
        or not total_of.op.keep_dims
    ):
        return None
    axes = total_of.inputs[1]
    if (
        axes is None
        or not axes.is_constant
        or {int(i) % len(x.shape) for i in axes.data.flat} != {len(x.shape) - 1}
    ):
        return None
    return Probabilities(part.inputs[0] if isinstance(part.op, Exp) else None)


def _logistic(node: Node) -> Probabilities | None:
    """1/(1 + e^-x), in one operator or spelt out; or (1 + tanh)/2."""
    if isinstance(node.op, Logistic):
        return Probabilities(node.inputs[0])
    if isinstance(node.op, Div) and _is(node.inputs[0], 1.0):
        negative = _plus_one(node.inputs[1], Exp)
        inner = None if negative is None else _maker(negative.inputs[0], Neg)
        return None if inner is None else Probabilities(inner.inputs[0])
    if isinstance(node.op, Mul):
        for x, half in (node.inputs, node.inputs[::-1]):
            if _is(half, 0.5) and _plus_one(x, Tanh) is not None:
                return Probabilities(None)
    return None


def _plus_one(tensor: Tensor | None, kind: type[Op]) -> Node | None:
    """The operator of this kind in 1 + operator."""
    add = _maker(tensor, Add)
    if add is None:
        return None
    found = [_maker(x, kind) for x, one in (add.inputs, add.inputs[::-1]) if _is(one, 1.0)]
    return found[0] if found else None


def _maker(tensor: Tensor | None, *kinds: type[Op]) -> Node | None:
    """The node that makes the tensor, if it is one of these operators."""
    node = None if tensor is None else tensor.producer
    return node if node is not None and isinstance(node.op, kinds) else None


def _is(tensor: Tensor | None, number: float) -> bool:
    return (
        tensor is not None
        and tensor.is_constant
        and tensor.dtype.is_float
        and bool((tensor.data == number).all())
    )


def look_like_rows(values: Array) -> bool:
    """Whether numbers can hardly be anything but distributions along the last axis."""
    if values.ndim < 2 or values.shape[-1] < 2 or not values.size or not look_like_probabilities(values):
        return False
    return bool(np.abs(values.sum(-1) - 1).max() <= EPSILON)


def look_like_probabilities(values: Array) -> bool:
    return bool(values.size) and bool(values.min() >= 0) and bool(values.max() <= 1)
