"""How operators that rearrange elements treat axes: views, transpositions, joins, splits, slices, picks (see ops.axes)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from math import prod
from typing import Any

import numpy as np

from circle_train.ir import Node, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Axes, Lying, Permuted, Types, heaviest, integers, own_type, shape_of
from circle_train.ops.orders import Order, aligned, identity, inverse, reordered, with_ones, without
from circle_train.record import record


@record
class Views(Axes):
    """The same elements in the same order under other sizes, which the operand `sizes`, or an option, may hold."""

    sizes: str = ""
    others: tuple[str, ...] = ()

    @property
    def operands(self) -> tuple[str, ...]:
        return (*([self.sizes] if self.sizes else ()), *self.others)

    def kept(self, node: Node, index: int, axis: int) -> int | None:
        shape, out = shape_of(node, index), node.outputs[0].shape
        if not self.is_data(node, index) or min((*shape, *out)) <= 0:
            return None
        return next(
            (at for at, n in enumerate(out) if n == shape[axis] and prod(out[:at]) == prod(shape[:axis])),
            None,
        )

    def permuted(self, node: Node, orders: Lying, types: Types = own_type) -> Permuted | None:
        """Splits, merges, drops and adds axes; what is merged must lie next to each other."""
        order = self.lies(node, orders)
        old, new = sizes_of(types(self.source(node))), sizes_of(types(node.outputs[0]))
        if order is None or order == identity(len(order)) or old is None or new is None:
            return None
        groups = aligned(old, new)
        if groups is None:
            return None
        places = dict(enumerate(order))
        lying = sorted((g for g in groups if g[0]), key=lambda g: min(places[axis] for axis in g[0]))
        sequence = [axis for group in lying for axis in group[0]]
        if sequence != sorted(sequence, key=lambda axis: places[axis]):
            order = inverse(with_ones(sequence, len(old)))
        made = with_ones([axis for group in lying for axis in group[1]], len(new))
        return Permuted(None, (order, *[None] * (len(node.inputs) - 1)), (inverse(made),))

    def resized(self, node: Node, index: int, axis: int, size: int) -> dict[int, Array]:
        """The axis of the output grows before which as many elements stand."""
        before, target = shape_of(node, index), node.outputs[0].shape
        if not self.sizes or not self.is_data(node, index) or min((*before, *target), default=1) < 0:
            return {}
        at = node.op.input_index(self.sizes)
        operand = node.inputs[at] if at < len(node.inputs) else None
        if prod(before) == 0 or (operand is None and not node.op.new_shape):
            return {}
        for place, old in enumerate(target):
            if prod(target[:place]) == prod(before[:axis]) and old * size % before[axis] == 0:
                shape = (*target[:place], old * size // before[axis], *target[place + 1 :])
                return {at: np.array(shape, np.int32 if operand is None else operand.dtype.numpy)}
        return {}


def sizes_of(types: Sequence[TensorType]) -> list[list[int]] | None:
    """For every axis its size in every case; None where one is open."""
    if not all(type_.is_static for type_ in types):
        return None
    return [[type_.shape[axis] for type_ in types] for axis in range(types[0].rank)]


@record
class Joins(Axes):
    """Operands side by side along the op's axis; `is_new`: an axis that they do not have."""

    is_new: bool = False
    data: str = field(default="xs", kw_only=True)

    def kept(self, node: Node, index: int, axis: int) -> int | None:
        joint = node.op.axis % node.outputs[0].type.rank
        if not self.is_data(node, index) or (axis == joint and not self.is_new):
            return None
        return axis + (self.is_new and axis >= joint)

    def permuted(self, node: Node, orders: Lying, types: Types = own_type) -> Permuted | None:
        if self.is_new:
            return None
        order = heaviest(node, orders)
        op = replace(node.op, axis=order[node.op.axis % len(order)])
        return Permuted(op, (order,) * len(node.inputs), (order,))


@record
class Splits(Axes):
    """Parts along the axis that an operand holds, or the option `axis`: then it disappears."""

    picks = True
    axis: str = ""
    others: tuple[str, ...] = ()

    @property
    def operands(self) -> tuple[str, ...]:
        return (self.axis, *self.others) if self.axis else ()

    def kept(self, node: Node, index: int, axis: int) -> int | None:
        cut = self._cut(node)
        if cut is None or axis == cut or not self.is_data(node, index):
            return None
        return axis - (not self.axis and cut < axis)

    def permuted(self, node: Node, orders: Lying, types: Types = own_type) -> Permuted | None:
        order, cut = self.lies(node, orders), self._cut(node)
        if order is None or cut is None:
            return None
        if not self.axis:
            return self.turned(node, order, without(order, [cut]), replace(node.op, axis=order[cut]))
        return self.turned(node, order, order, **{self.axis: np.asarray(order[cut], np.int32)})

    def _cut(self, node: Node) -> int | None:
        given = integers(node, self.axis) if self.axis else [node.op.axis]
        return None if given is None else given[0] % self.source(node).type.rank


@record
class Permutes(Axes):
    """The axes in the order that an operand holds."""

    perm: str = "perm"

    @property
    def operands(self) -> tuple[str, ...]:
        return (self.perm,)

    def kept(self, node: Node, index: int, axis: int) -> int | None:
        perm = self._perm(node)
        return perm.index(axis) if perm is not None and self.is_data(node, index) else None

    def permuted(self, node: Node, orders: Lying, types: Types = own_type) -> Permuted | None:
        order, perm = self.lies(node, orders), self._perm(node)
        if order is None or perm is None:
            return None
        return Permuted(None, (order, None), (reordered(order, perm),))

    def _perm(self, node: Node) -> Order | None:
        values = integers(node, self.perm)
        return None if values is None else tuple(axis % len(values) for axis in values)


@record
class Picks(Axes):
    """Parts of a table along the op's axis, which indices choose."""

    picks = True
    indices: str = "indices"
    data: str = field(default="table", kw_only=True)

    def kept(self, node: Node, index: int, axis: int) -> int | None:
        picked = node.op.input_index(self.indices)
        rank, chosen = len(shape_of(node, picked)), self._axis(node)
        batch: int = getattr(node.op, "batch_dims", 0)
        batch += rank if batch < 0 else 0
        if index == picked:
            return axis if axis < batch else axis + chosen - batch
        if axis == chosen or not self.is_data(node, index):
            return None
        return axis if axis < chosen else axis + rank - batch - 1

    def permuted(self, node: Node, orders: Lying, types: Types = own_type) -> Permuted | None:
        order, rank = self.lies(node, orders), len(shape_of(node, node.op.input_index(self.indices)))
        if order is None or rank > 1 or getattr(node.op, "batch_dims", 1) != 0:
            return None
        axis = self._axis(node)
        out = order if rank else without(order, [axis])
        return self.turned(node, order, out, replace(node.op, axis=order[axis]))

    def _axis(self, node: Node) -> int:
        axis: int = getattr(node.op, "axis", 0) % self.source(node).type.rank
        return axis


@record
class Within(Axes):
    """As the operator that this one is computed by."""

    of: Any = None
    """An Op."""

    def kept(self, node: Node, index: int, axis: int) -> int | None:
        """Where each entry has a scale of its own it is not treated as the others."""
        at: int | None = self.of.axes.kept(self._node(node), index, axis)
        scales = [(node.inputs[index], axis), *((out, at) for out in node.outputs)]
        is_alike = not any(t and t.quantization and t.quantization.is_along(a) for t, a in scales)
        return at if is_alike else None

    def resized(self, node: Node, index: int, axis: int, size: int) -> dict[int, Array]:
        constants: dict[int, Array] = self.of.axes.resized(self._node(node), index, axis, size)
        return constants

    def _node(self, node: Node) -> Node:
        return Node(self.of, node.inputs, node.outputs)
