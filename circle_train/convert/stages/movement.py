"""How each operator that does not care about the order of axes is told of another one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from circle_train.ir import Node, Tensor

if TYPE_CHECKING:
    from circle_train.convert.stages.layout import Layout

Order = tuple[int, ...]
Move = Callable[["Layout", Node], bool]
MOVES: dict[str, Move] = {}

ELEMENTWISE = [
    "ABS",
    "NEG",
    "SIGN",
    "FLOOR",
    "CEIL",
    "ROUND",
    "EXP",
    "LOG",
    "SQRT",
    "RSQRT",
    "SQUARE",
    "SIN",
    "COS",
    "RELU",
    "RELU6",
    "RELU_N1_TO_1",
    "RELU_0_TO_1",
    "LEAKY_RELU",
    "ELU",
    "GELU",
    "HARD_SWISH",
    "LOGISTIC",
    "TANH",
    "CAST",
    "LOGICAL_NOT",
    "ZEROS_LIKE",
    "ADD",
    "SUB",
    "MUL",
    "DIV",
    "MAXIMUM",
    "MINIMUM",
    "POW",
    "SQUARED_DIFFERENCE",
    "FLOOR_DIV",
    "FLOOR_MOD",
    "EQUAL",
    "NOT_EQUAL",
    "LESS",
    "LESS_EQUAL",
    "GREATER",
    "GREATER_EQUAL",
    "LOGICAL_AND",
    "LOGICAL_OR",
    "SELECT_V2",
    "ATAN2",
    "BITWISE_XOR",
    "RIGHT_SHIFT",
    "ADD_N",
    "PRELU",
    "QUANTIZE",
    "DEQUANTIZE",
]
REDUCTIONS = ("SUM", "MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "REDUCE_ANY", "REDUCE_ALL")


@dataclass(frozen=True)
class Stored:
    """A tensor of the new graph; the old one is its transposition by `order`."""

    tensor: Tensor
    order: Order


@dataclass(frozen=True)
class Shuffled:
    """A flattened tensor that lists its elements in another order: sizes of the axes, and how they lie."""

    sizes: Order
    order: Order


def moves(*names: str) -> Callable[[Move], Move]:
    """Register how operators are given another order; the function says whether it could."""

    def add(move: Move) -> Move:
        MOVES.update(dict.fromkeys(names, move))
        return move

    return add


def inverse(order: Sequence[int]) -> Order:
    return tuple(int(axis) for axis in np.argsort(order))


def permuted(values: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    return tuple(values[axis] for axis in order)


def constant_integers(tensor: Tensor | None) -> list[int] | None:
    """The elements of a constant operand."""
    if tensor is None or not tensor.is_constant:
        return None
    return [int(value) for value in tensor.data.reshape(-1)]


def without(order: Order, dropped: Sequence[int]) -> Order:
    """The order of what remains when old axes are dropped."""
    left = [order[axis] for axis in range(len(order)) if axis not in dropped]
    return tuple(sorted(left).index(axis) for axis in left)


@moves("TRANSPOSE")
def transpose(layout: Layout, node: Node) -> bool:
    source = node.inputs[0]
    order = constant_integers(node.inputs[1])
    if source is None or order is None or source.is_constant:
        return False
    stored = layout.where(source)
    layout.alias(node.outputs[0], stored.tensor, permuted(stored.order, order))
    return True


@moves(*ELEMENTWISE)
def elementwise(layout: Layout, node: Node) -> bool:
    rank = node.outputs[0].type.rank
    operands = [tensor for tensor in node.inputs if tensor is not None]
    order = layout.choose(operands, rank)
    if order == tuple(range(rank)):
        return False
    layout.emit(node, node.op, [_spread(layout, tensor, order) for tensor in operands], [order])
    return True


def _spread(layout: Layout, tensor: Tensor, order: Order) -> Tensor:
    """An operand in the given order; one of lower rank gets the axes that it is broadcast over."""
    rank = len(order)
    if tensor.type.rank == rank:
        return layout.ordered(tensor, order)
    plain = layout.plain(tensor)
    assert plain is not None
    own = range(rank - plain.type.rank, rank)
    if (plain.type.is_static and plain.type.size == 1) or all(order[axis] == axis for axis in own):
        return plain
    shape = layout.b.shape(plain)
    wide = layout.b.reshape(plain, (*(1,) * (rank - len(shape)), *shape))
    return layout.ordered(wide, order)


@moves(*REDUCTIONS)
def reduction(layout: Layout, node: Node) -> bool:
    source, axes = node.inputs[0], constant_integers(node.inputs[1])
    if source is None or axes is None:
        return False
    stored = layout.where(source)
    if stored.tensor.is_constant:
        return False
    old = sorted({axis % source.type.rank for axis in axes})
    order = stored.order if node.op.keep_dims else without(stored.order, old)
    moved = layout.b.integers(sorted(stored.order[axis] for axis in old))
    layout.emit(node, node.op, [stored.tensor, moved], [order])
    return True


@moves("ARG_MAX", "ARG_MIN", "CUMSUM", "REVERSE_V2")
def along_axis(layout: Layout, node: Node) -> bool:
    source, axes = node.inputs[0], constant_integers(node.inputs[1])
    if source is None or axes is None:
        return False
    stored = layout.where(source)
    old = [axis % source.type.rank for axis in axes]
    operand = node.inputs[1]
    assert operand is not None
    moved = layout.b.constant(
        np.array([stored.order[a] for a in old], operand.dtype.numpy).reshape(operand.shape)
    )
    order = without(stored.order, old) if node.op.name.startswith("ARG") else stored.order
    layout.emit(node, node.op, [stored.tensor, moved], [order])
    return True


@moves("SOFTMAX", "LOG_SOFTMAX", "FULLY_CONNECTED")
def last_axis(layout: Layout, node: Node) -> bool:
    """Works along the last axis alone, so the others may lie as they like."""
    source = node.inputs[0]
    if source is None:
        return False
    if node.op.name == "FULLY_CONNECTED" and source in layout.shuffled:
        return _shuffled_layer(layout, node, source)
    stored = layout.where(source)
    last = source.type.rank - 1
    if stored.order[last] != last or node.outputs[0].type.rank != source.type.rank:
        return False
    rest = [layout.plain(tensor) for tensor in node.inputs[1:]]
    layout.emit(node, node.op, [stored.tensor, *rest], [stored.order])
    return True


def _shuffled_layer(layout: Layout, node: Node, source: Tensor) -> bool:
    """A dense layer after a flattening: its weights are put into the order in which the elements lie."""
    shuffled = layout.shuffled[source]
    b, weights = layout.b, node.inputs[1]
    assert weights is not None
    outputs, inputs = b.shape(weights)
    wide = b.transpose(
        b.reshape(weights, (outputs, *shuffled.sizes)), (0, *(1 + axis for axis in shuffled.order))
    )
    rest = [layout.plain(tensor) for tensor in node.inputs[2:]]
    layout.emit(node, node.op, [layout.where(source).tensor, b.reshape(wide, (outputs, inputs)), *rest])
    return True


@moves("SHAPE")
def shape(layout: Layout, node: Node) -> bool:
    """The sizes as they lie, put into the old order."""
    source = node.inputs[0]
    if source is None:
        return False
    stored = layout.where(source)
    if stored.order == tuple(range(source.type.rank)):
        return False
    b = layout.b
    sizes = b.emit(node.op, [stored.tensor])[0]
    layout.alias(node.outputs[0], b("GATHER", sizes, b.integers(stored.order), axis=0, batch_dims=0), (0,))
    return True


@moves("CONCATENATION")
def concatenation(layout: Layout, node: Node) -> bool:
    rank = node.outputs[0].type.rank
    operands = [tensor for tensor in node.inputs if tensor is not None]
    order = layout.choose(operands, rank)
    op = replace(node.op, axis=order[node.op.axis % rank])
    layout.emit(node, op, [layout.ordered(tensor, order) for tensor in operands], [order])
    return True


@moves("SPLIT", "SPLIT_V")
def split(layout: Layout, node: Node) -> bool:
    at = 1 if node.op.name == "SPLIT" else 0
    source, axis = node.inputs[at], constant_integers(node.inputs[1 - at if at else 2])
    if source is None or axis is None:
        return False
    stored = layout.where(source)
    moved = layout.b.constant(np.int32(stored.order[axis[0] % source.type.rank]))
    inputs = [moved, stored.tensor] if at else [stored.tensor, node.inputs[1], moved]
    layout.emit(node, node.op, inputs, [stored.order] * len(node.outputs))
    return True


@moves("PAD", "PADV2", "MIRROR_PAD", "SLICE", "TILE", "BROADCAST_TO")
def per_axis(layout: Layout, node: Node) -> bool:
    """Operands with one entry (or row) per axis."""
    source = node.inputs[0]
    tables = node.inputs[1:3] if node.op.name == "SLICE" else node.inputs[1:2]
    if source is None or source.is_constant or source.type.rank != node.outputs[0].type.rank:
        return False
    stored = layout.where(source)
    back = inverse(stored.order)
    if back == tuple(range(len(back))):
        return False
    if any(table is None or not table.is_constant for table in tables):
        return False
    moved = [layout.b.constant(table.data[list(back)]) for table in tables if table is not None]
    layout.emit(node, node.op, [stored.tensor, *moved, *node.inputs[1 + len(tables) :]], [stored.order])
    return True


@moves("STRIDED_SLICE")
def strided_slice(layout: Layout, node: Node) -> bool:
    source, op = node.inputs[0], node.op
    if source is None or op.ellipsis_mask or op.new_axis_mask or op.shrink_axis_mask:
        return False
    tables = [constant_integers(tensor) for tensor in node.inputs[1:4]]
    rank = source.type.rank
    if any(table is None or len(table) != rank for table in tables):
        return False
    stored = layout.where(source)
    back = inverse(stored.order)
    moved = [
        layout.b.constant(np.array(permuted(table, back), np.int32)) for table in tables if table is not None
    ]
    masks = {name: _mask(getattr(op, name), back) for name in ("begin_mask", "end_mask")}
    layout.emit(node, replace(op, **masks), [stored.tensor, *moved], [stored.order])
    return True


def _mask(mask: int, back: Order) -> int:
    return sum(1 << new for new, old in enumerate(back) if mask >> old & 1)


@moves("GATHER")
def gather(layout: Layout, node: Node) -> bool:
    source, indices = node.inputs[0], node.inputs[1]
    if source is None or indices is None or source.is_constant or node.op.batch_dims or indices.type.rank > 1:
        return False
    stored = layout.where(source)
    axis = node.op.axis % source.type.rank
    order = stored.order if indices.type.rank else without(stored.order, [axis])
    layout.emit(
        node, replace(node.op, axis=stored.order[axis]), [stored.tensor, layout.plain(indices)], [order]
    )
    return True
