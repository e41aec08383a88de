"""Cross-layer equalisation: scales of channels move from one layer's weights to the next one's, so that both round well.

max(s·x, 0) = s·max(x, 0) for s > 0: where nothing or a RELU lies between two layers, a channel may be divided by any number
that the next layer multiplies by. It is chosen so that the channel's largest weights are the same before and behind (data-free
quantization, arXiv:1906.04721).
"""

from __future__ import annotations

import numpy as np

from circle_train.ir import Graph, Node, Tensor
from circle_train.ir.graph import constant
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import Activation
from circle_train.ops.integers import InIntegers
from circle_train.quantize.plan import is_real, weights_of

ROUNDS = 3
"""Through all layers: what one pair gains passes on to the next."""
FARTHEST = 1000.0
"""By how much a channel is moved at most."""


def equalise(graph: Graph) -> int:
    """Change the weights of pairs of layers; what the graph computes stays. How many pairs there are."""
    pairs = [(node, reader) for node in graph.nodes if (reader := _follower(graph, node)) is not None]
    for _ in range(ROUNDS):
        for first, second in pairs:
            _balance(graph, first, second)
    return len(pairs)


def _follower(graph: Graph, node: Node) -> Node | None:
    """The layer that alone reads this one, channel by channel."""
    if not _is_layer(node) or node.op.activation not in (Activation.NONE, Activation.RELU):
        return None
    made = node.outputs[0]
    reader = graph.only_reader(made)
    if reader is None or not _is_layer(reader) or reader.inputs[reader.op.input_index("x")] is not made:
        return None
    channels = made.shape[-1]
    fits = (
        _weights(reader).shape[_facts(reader).takes] == channels
        and _weights(node).shape[_axis(node)] == channels
    )
    rows = made.type.rank == 2 or getattr(reader.op, "keep_num_dims", True)
    return reader if fits and rows else None


def _balance(graph: Graph, first: Node, second: Node) -> None:
    before, behind = _largest(_weights(first), _axis(first)), _largest(_weights(second), _facts(second).takes)
    usable = (before > 0) & (behind > 0)
    factor = np.sqrt(np.divide(before, behind, out=np.ones_like(before), where=usable))
    factor = np.clip(np.where(usable, factor, 1.0), 1 / FARTHEST, FARTHEST)
    _scale(graph, first, "w", 1 / factor, _axis(first))
    _scale(graph, first, _facts(first).bias, 1 / factor, 0)
    _scale(graph, second, "w", factor, _facts(second).takes)


def _scale(graph: Graph, node: Node, name: str, factor: Array, axis: int) -> None:
    """A constant of the node, each entry of the axis multiplied."""
    place = node.op.input_index(name)
    old = node.inputs[place] if place < len(node.inputs) else None
    if old is None:
        return
    shape = [1] * old.type.rank
    shape[axis] = -1
    made = constant((old.data * factor.reshape(shape)).astype(np.float32), old.name)
    graph.reconnect(node, [made if i == place else t for i, t in enumerate(node.inputs)])


def _is_layer(node: Node) -> bool:
    facts: InIntegers | None = node.op.in_integers
    if facts is None or not facts.bias or facts.takes < 0:
        return False
    held = [
        t for i, t in enumerate(node.inputs) if t is not None and node.op.input_name(i) in ("w", facts.bias)
    ]
    return bool(held) and all(map(_is_constant, held)) and all(t.type.rank == 1 for t in held[1:])


def _is_constant(tensor: Tensor) -> bool:
    return tensor.is_constant and is_real(tensor)


def _facts(node: Node) -> InIntegers:
    facts: InIntegers = node.op.in_integers
    return facts


def _weights(node: Node) -> Array:
    w = node.inputs[node.op.input_index("w")]
    assert w is not None
    found: Array = w.data
    return found


def _axis(node: Node) -> int:
    """Of the outputs."""
    (axis,) = weights_of(node).values()
    assert axis is not None
    return axis


def _largest(w: Array, axis: int) -> Array:
    found: Array = np.abs(w).max(axis=tuple(i for i in range(w.ndim) if i != axis)).astype(np.float64)
    return found
