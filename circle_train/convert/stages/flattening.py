"""An image flattened for dense layers: flattened as it lies, the layers' weights shuffled instead."""

from __future__ import annotations

from dataclasses import dataclass

from circle_train.convert.building.builder import Builder
from circle_train.ir import Node, Tensor
from circle_train.ir.size import Size
from circle_train.ops.layers.linear import FullyConnected
from circle_train.ops.orders import Order, aligned
from circle_train.ops.rearranging import sizes_of


@dataclass(frozen=True)
class Shuffled:
    """A flattened tensor that lists its elements in another order: sizes of the axes, and how they lie."""

    sizes: Order
    order: Order


def shuffled(old: Builder, node: Node, order: Order) -> Shuffled | None:
    """How a RESHAPE of what lies in this order lists its elements as they lie; None where that is no shuffled row, or others
    than dense layers read it."""
    source, target = node.inputs[0], node.outputs[0]
    users = old.graph.readers(target)
    if source is None or target.type.rank != 2 or target in old.graph.outputs or not users:
        return None
    if not all(isinstance(n.op, FullyConnected) and n.inputs[0] is target and _is_fixed(n) for n in users):
        return None
    sizes, made = sizes_of(old.types(source)), sizes_of(old.types(target))
    groups = aligned(sizes, made) if sizes and made else None
    if sizes is None or not groups or groups[-1][1] != [1]:
        return None
    axes = groups[-1][0]
    lying = sorted(axes, key=lambda axis: order[axis])
    before = [order[axis] for group in groups[:-1] for axis in group[0]]
    is_open = any(isinstance(sizes[axis][0], Size) for axis in axes)
    stays_in_front = before == sorted(before) and max(before, default=-1) < order[lying[0]]
    if lying == axes or is_open or not stays_in_front:
        return None
    return Shuffled(tuple(sizes[axis][0] for axis in axes), tuple(axes.index(axis) for axis in lying))


def _is_fixed(layer: Node) -> bool:
    return layer.inputs[1] is not None and layer.inputs[1].is_constant


def shuffled_weights(b: Builder, weights: Tensor, inputs: Shuffled) -> Tensor:
    """The weights of a dense layer in the order in which the elements of its input lie."""
    outputs, width = b.shape(weights)
    wide = b.reshape(weights, (outputs, *inputs.sizes))
    return b.reshape(b.transpose(wide, (0, *(1 + axis for axis in inputs.order))), (outputs, width))
