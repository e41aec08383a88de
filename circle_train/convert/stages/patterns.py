"""Functions that exporters write in many nodes and Circle in one operator."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import erf, pi, sqrt

import numpy as np

from circle_train.convert.building.emitter import make
from circle_train.convert.building.erf import Erf
from circle_train.ir import Graph, Node, Tensor
from circle_train.ir.node import made_by
from circle_train.ir.tensor_type import Array
from circle_train.ops import Op
from circle_train.ops.numeric.fill import Cast

LONGEST = 12
"""Nodes that a function of one tensor may consist of."""
PROBE = np.concatenate([np.linspace(-6, 6, 97), [-30.0, 30.0]])


@dataclass(frozen=True)
class Match:
    """What a node can be replaced by."""

    op: Op
    inputs: tuple[Tensor, ...]


@cache
def targets() -> tuple[tuple[Op, Array], ...]:
    """Circle's functions of one number that old opsets have no node for, with their values at the probe."""
    exact = PROBE * 0.5 * (1 + np.vectorize(erf)(PROBE / sqrt(2)))
    by_tanh = PROBE * 0.5 * (1 + np.tanh(sqrt(2 / pi) * (PROBE + 0.044715 * PROBE**3)))
    hard = PROBE * np.clip(PROBE + 3, 0, 6) / 6
    return (
        (make("GELU", {}), exact),
        (make("GELU", {"approximate": True}), by_tanh),
        (make("HARD_SWISH", {}), hard),
    )


def is_number(tensor: Tensor) -> bool:
    """A one-element constant of a formula."""
    return tensor.is_constant and tensor.type.size == 1


def function_of_one(node: Node, graph: Graph) -> Match | None:
    """The node as the end of a formula of one tensor: evaluated and compared, however it is written."""
    if node.op.name not in ("MUL", "DIV") or not node.outputs[0].dtype.is_float:
        return None
    region: list[Node] = [node]
    frontier = _operands(node)
    while len(region) <= LONGEST:
        if len(frontier) == 1 and (match := _recognised(region, next(iter(frontier)), node)) is not None:
            return match
        last = max(
            (t.producer for t in frontier if t.producer is not None and _is_elementwise(t.producer)),
            key=graph.place,
            default=None,
        )
        if last is None:
            return None
        del frontier[last.outputs[0]]
        region.append(last)
        frontier.update(_operands(last))
    return None


def _is_elementwise(node: Node) -> bool:
    """Whether it computes every number by itself."""
    computes = bool(node.op.formula) or isinstance(node.op, (Cast, Erf))
    return computes and node.outputs[0].dtype.is_float


def _operands(node: Node) -> dict[Tensor, None]:
    return dict.fromkeys(t for t in node.inputs if t is not None and not is_number(t))


def _recognised(region: list[Node], x: Tensor, end: Node) -> Match | None:
    if x.shape != end.outputs[0].shape or x.is_constant or len(region) < 3:
        return None
    values = {x: PROBE}
    with np.errstate(all="ignore"):
        for node in reversed(region):
            arrays = [_probe(t, values) for t in node.inputs]
            if any(a is None for a in arrays):
                return None
            (values[node.outputs[0]],) = node.op.compute(arrays)
    found = values[end.outputs[0]]
    for op, expected in targets():
        if found.shape == expected.shape and np.allclose(found, expected, rtol=1e-6, atol=2e-6):
            return Match(op, (x,))
    return None


def _probe(tensor: Tensor | None, values: dict[Tensor, Array]) -> Array | None:
    if tensor is None:
        return None
    return tensor.data.reshape(()).astype(np.float64) if is_number(tensor) else values.get(tensor)


def _split(node: Node | None) -> tuple[Tensor, Tensor] | None:
    """Operands of a commutative node: (computed, constant)."""
    if node is None or node.inputs[0] is None or node.inputs[1] is None:
        return None
    first, second = node.inputs[0], node.inputs[1]
    if second.is_constant and not first.is_constant:
        return first, second
    return (second, first) if first.is_constant and not second.is_constant else None


def _squared(tensor: Tensor | None) -> Tensor | None:
    """x where the tensor is x²."""
    node = made_by(tensor, "SQUARE", "MUL", "POW")
    if node is None or (node.op.name == "MUL" and node.inputs[0] is not node.inputs[1]):
        return None
    if node.op.name == "POW" and not (
        node.inputs[1] is not None and is_number(node.inputs[1]) and node.inputs[1].data.item() == 2
    ):
        return None
    return node.inputs[0]


def _over_last(node: Node | None) -> Tensor | None:
    """What is reduced over the last axis alone, keeping it."""
    if node is None or node.inputs[0] is None or node.inputs[1] is None or not node.inputs[1].is_constant:
        return None
    axes = [int(a) % node.inputs[0].type.rank for a in node.inputs[1].data.reshape(-1)]
    return node.inputs[0] if node.op.keep_dims and axes == [node.inputs[0].type.rank - 1] else None


def root_mean_square(node: Node, _graph: Graph) -> Match | None:
    """γ · x / √(mean(x²) + ε) over the last axis; not in a LayerNormalization, which TFLite must read."""
    outer = _split(node) if node.op.name == "MUL" else None
    if (
        outer is None
        or outer[1].type.rank != 1
        or outer[1].shape != outer[0].shape[-1:]
        or outer[1].shape == (1,)
    ):
        return None
    found = _divided(outer[0])
    if found is None:
        return None
    x, root = found
    centred = made_by(x, "SUB")
    if centred is not None and made_by(centred.inputs[1], "MEAN") is not None:
        return None
    sum_ = _split(made_by(root, "ADD"))
    if sum_ is None or not is_number(sum_[1]) or _squared(_over_last(made_by(sum_[0], "MEAN"))) is not x:
        return None
    return Match(make("RMS_NORM", {"epsilon": float(sum_[1].data.item())}), (x, outer[1]))


def _divided(tensor: Tensor) -> tuple[Tensor, Tensor] | None:
    """(x, s) where the tensor is x / √s, in one of the ways to write that."""
    node = made_by(tensor, "MUL", "DIV")
    if node is None or node.inputs[0] is None or node.inputs[1] is None:
        return None
    first, second = node.inputs[0], node.inputs[1]
    if node.op.name == "DIV":
        inside = _root_of(second)
        return None if inside is None else (first, inside)
    for x, factor in ((first, second), (second, first)):
        if (inside := _inverse_root_of(factor)) is not None:
            return x, inside
    return None


def _root_of(tensor: Tensor | None) -> Tensor | None:
    """s where the tensor is √s."""
    root = made_by(tensor, "SQRT")
    return None if root is None else root.inputs[0]


def _inverse_root_of(tensor: Tensor) -> Tensor | None:
    """s where the tensor is 1 / √s."""
    if (inverse := made_by(tensor, "RSQRT")) is not None:
        return inverse.inputs[0]
    divided = made_by(tensor, "DIV")
    one = None if divided is None else divided.inputs[0]
    if divided is None or one is None or not is_number(one) or one.data.item() != 1:
        return None
    return _root_of(divided.inputs[1])


def unit_length(node: Node, _graph: Graph) -> Match | None:
    """x / max(√(Σ x²), ε) over the last axis, ε as small as L2_NORMALIZATION's own."""
    if node.op.name != "DIV" or node.inputs[0] is None:
        return None
    norm = node.inputs[1]
    if (limited := _split(made_by(norm, "MAXIMUM"))) is not None:
        if not is_number(limited[1]) or not 0 < limited[1].data.item() <= 1e-6:
            return None
        norm = limited[0]
    elif (spread := made_by(norm, "BROADCAST_TO")) is not None:
        return unit_length_of(node.inputs[0], spread.inputs[0])
    return unit_length_of(node.inputs[0], norm)


def unit_length_of(x: Tensor, norm: Tensor | None) -> Match | None:
    if (limited := _split(made_by(norm, "MAXIMUM"))) is not None:
        if not is_number(limited[1]) or not 0 < limited[1].data.item() <= 1e-6:
            return None
        norm = limited[0]
    root = made_by(norm, "SQRT")
    total = made_by(root.inputs[0], "SUM") if root is not None else None
    if total is None or _squared(_over_last(total)) is not x:
        return None
    return Match(make("L2_NORMALIZATION", {}), (x,))


PATTERNS = (function_of_one, root_mean_square, unit_length)
